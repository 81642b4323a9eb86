"""Runs of torch.amp.GradScaler (2.15, "cpu"), one JSON file: the scale after each update, the parameters after some, and how many steps the
optimiser counted.

`injected`: float32, with an infinity in the data of some steps, with and without clipping, for SGD with momentum, Adam and AdamW.
`autocast`: float16 by torch.autocast with a scale that is far too large at first, so that it overflows by itself.
"""
import json, math, pathlib
import torch

WRONG = [0, 4, 5, 13]
STEPS = 24
AT = [0, 3, 8, 23]


def wave(shape, a, b):
    n = math.prod(shape)
    return torch.tensor([math.sin(a * i + b) for i in range(n)], dtype=torch.float32).reshape(shape)


def network():
    w = wave((4, 3), 1.7, 0.2).mul_(0.8).requires_grad_()
    b = wave((4,), 0.7, 0.4).mul_(0.1).requires_grad_()
    v = wave((2, 4), 2.1, 0.6).mul_(0.8).requires_grad_()
    return [w, b, v]


X, Y = wave((5, 3), 2.3, 0.1), wave((5, 2), 0.9, 0.4)


def forward(p, x):
    w, b, v = p
    return torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(x, w, b)), v)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05),
}


def run(make, clip, scaling, low):
    p = network()
    opt, scaler = make(p), torch.amp.GradScaler("cpu", **scaling)
    out = {"scales": [], "parameters": [], "losses": []}
    for t in range(STEPS):
        opt.zero_grad()
        x = X.clone()
        if not low and t in WRONG:
            x[1, 1] = math.inf
        if low:
            with torch.autocast("cpu", dtype=torch.float16):
                y = forward(p, x)
                assert y.dtype == torch.float16
        else:
            y = forward(p, x)
        loss = ((y.float() - Y) ** 2).mean()
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(p, clip)
        scaler.step(opt)
        scaler.update()
        out["scales"].append(scaler.get_scale())
        out["losses"].append(loss.item() if math.isfinite(loss.item()) else None)
        if t in AT:
            out["parameters"].append([float(e) for q in p for e in q.detach().flatten()])
    state = opt.state[p[0]].get("step")
    out["steps"] = None if state is None else int(state)
    return out


INJECTED = dict(init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
LOW = dict(init_scale=2.0**24, growth_factor=2.0, backoff_factor=0.5, growth_interval=6)
cases = {}
for name, make in OPTIMIZERS.items():
    cases[f"injected/{name}"] = run(make, None, INJECTED, False)
    cases[f"injected/{name}/clipped"] = run(make, 0.1, INJECTED, False)
    cases[f"autocast/{name}"] = run(make, None, LOW, True)
here = pathlib.Path(__file__).parent
(here / "scaler.json").write_text(json.dumps(cases))
