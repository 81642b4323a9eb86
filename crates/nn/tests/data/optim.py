"""Trajectories of torch.optim (2.15) in float64 on a small problem that is not convex: parameters at steps 1, 2, 10 and 100, and the
optimiser's state at the end, one JSON file for each optimiser in `optim/` beside this script.

Lion is not in torch: here it is the formula of its paper, in numpy. Muon iterates in bfloat16 in torch; the
cases `precise` are torch's own code with float64 in its place.
"""
import json, math, pathlib, types
import numpy as np
import torch
import torch.optim._muon as muon_module

torch.set_default_dtype(torch.float64)
HERE = pathlib.Path(__file__).parent / "optim"
AT = [1, 2, 10, 100]
SHAPES = {"w": (4, 3), "v": (2, 4), "b": (4,), "s": (), "c": (2,), "k": (2, 2, 3)}


def wave(n, a, b):
    return [math.sin(a * i + b) for i in range(n)]


START = {
    name: [0.8 * v for v in wave(math.prod(shape), 1.7 + k, 0.3 * k)] for k, (name, shape) in enumerate(SHAPES.items())
}
X, Y = wave(15, 2.3, 0.1), wave(10, 0.9, 0.4)
x, y = torch.tensor(X).reshape(5, 3), torch.tensor(Y).reshape(5, 2)


def loss_at(p, t, without_c):
    h = torch.tanh(x * (1 + 0.2 * math.sin(t)) @ p["w"].T + p["b"])
    out = torch.sin(h @ p["v"].T) * p["s"]
    loss = ((out - y) ** 2).mean() + 0.1 * torch.cos(p["k"]).sum()
    # Now and then a parameter has no gradient.
    return loss if without_c and t % 3 == 2 else loss + 0.1 * torch.cos(p["c"] * 2).sum()


def flat(t):
    return np.asarray(t.detach() if isinstance(t, torch.Tensor) else t, dtype=float).reshape(-1).tolist()


class Lion:
    def __init__(self, groups):
        self.groups = [{"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False} | g for g in groups]
        self.state = {p: {"exp_avg": np.zeros(tuple(p.shape))} for g in groups for p in g["params"]}

    def zero_grad(self):
        for g in self.groups:
            for p in g["params"]:
                p.grad = None

    def step(self):
        for g in self.groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.numpy() * (-1 if g["maximize"] else 1)
                m = self.state[p]["exp_avg"]
                value = p.detach().numpy()
                update = np.sign(b1 * m + (1 - b1) * grad) + g["weight_decay"] * value
                self.state[p]["exp_avg"] = b2 * m + (1 - b2) * grad
                p.data = torch.as_tensor(value - g["lr"] * update)


def torch_options(options):
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if k != "precise"}


TORCH = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam, "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta,
    "rmsprop": torch.optim.RMSprop, "adafactor": torch.optim.Adafactor, "muon": torch.optim.Muon,
    "adamax": torch.optim.Adamax, "asgd": torch.optim.ASGD, "rprop": torch.optim.Rprop,
}
ALL = list(SHAPES)
MATRICES = ["w", "v"]


def one(params, **options):
    return [{"params": params, "options": options}]


def two(first, second):
    return [{"params": ["w", "v", "k"], "options": first}, {"params": ["b", "s", "c"], "options": second}]


CASES = {
    "sgd": {
        "plain": one(ALL, lr=0.1),
        "momentum": one(ALL, lr=0.05, momentum=0.9),
        "dampening_decay": one(ALL, lr=0.05, momentum=0.8, dampening=0.3, weight_decay=0.1),
        "nesterov": one(ALL, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        "maximize": one(ALL, lr=0.003, momentum=0.5, maximize=True, weight_decay=0.1),
        "groups": two({"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}, {"lr": 0.1}),
    },
    "adam": {
        "plain": one(ALL, lr=0.02),
        "decay_betas": one(ALL, lr=0.03, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.05),
        "amsgrad": one(ALL, lr=0.05, amsgrad=True),
        "maximize": one(ALL, lr=0.01, amsgrad=True, maximize=True, weight_decay=0.1),
        "groups": two({"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.05, "betas": [0.5, 0.9]}),
    },
    "adamw": {
        "plain": one(ALL, lr=0.02),
        "decay_betas": one(ALL, lr=0.03, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.3),
        "amsgrad_maximize": one(ALL, lr=0.01, amsgrad=True, maximize=True, weight_decay=0.1),
        "groups": two({"lr": 0.02, "weight_decay": 0.5}, {"lr": 0.05, "weight_decay": 0.0}),
    },
    "nadam": {
        "plain": one(ALL, lr=0.02),
        "decay": one(ALL, lr=0.03, betas=[0.8, 0.95], weight_decay=0.05, momentum_decay=0.1),
        "decoupled_maximize": one(ALL, lr=0.01, weight_decay=0.2, decoupled_weight_decay=True, maximize=True),
        "groups": two({"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.05, "momentum_decay": 0.0}),
    },
    "radam": {
        "plain": one(ALL, lr=0.02),
        "short_memory": one(ALL, lr=0.03, betas=[0.8, 0.9], weight_decay=0.05),
        "decoupled_maximize": one(ALL, lr=0.01, weight_decay=0.2, decoupled_weight_decay=True, maximize=True),
        "groups": two({"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.05, "betas": [0.5, 0.9]}),
    },
    "adagrad": {
        "plain": one(ALL, lr=0.1),
        "decays": one(ALL, lr=0.2, lr_decay=0.02, weight_decay=0.05, initial_accumulator_value=0.1),
        "maximize": one(ALL, lr=0.05, maximize=True, eps=1e-6),
    },
    "adadelta": {
        "plain": one(ALL),
        "decay": one(ALL, lr=3.0, rho=0.8, eps=1e-4, weight_decay=0.05),
        "maximize": one(ALL, lr=1.0, maximize=True),
    },
    "rmsprop": {
        "plain": one(ALL, lr=0.02),
        "momentum_decay": one(ALL, lr=0.01, momentum=0.8, alpha=0.9, weight_decay=0.05),
        "centered": one(ALL, lr=0.01, centered=True),
        "centered_momentum_maximize": one(ALL, lr=0.003, alpha=0.95, centered=True, momentum=0.5, maximize=True, eps=1e-3),
    },
    "lion": {
        "plain": one(ALL, lr=0.01),
        "decay_betas": one(ALL, lr=0.02, betas=[0.8, 0.9], weight_decay=0.3),
        "maximize": one(ALL, lr=0.005, maximize=True, weight_decay=0.1),
    },
    "adafactor": {
        "plain": one(ALL, lr=0.05),
        "options": one(ALL, lr=0.05, beta2_decay=-0.5, eps=[1e-4, 1e-2], d=1.5, weight_decay=0.05),
        # Long enough for 1/√t to be the shorter one.
        "shortened": one(ALL, lr=0.15, d=2.0, weight_decay=0.1),
        "maximize": one(ALL, lr=0.005, maximize=True),
    },
    "muon": {
        "bf16": one(MATRICES, lr=0.02),
        "precise": one(MATRICES, lr=0.02, precise=True),
        "precise_decay": one(MATRICES, lr=0.05, weight_decay=0.5, momentum=0.8, nesterov=False, adjust_lr_fn="match_rms_adamw", precise=True),
        "precise_spectral": one(MATRICES, lr=0.05, ns_steps=3, ns_coefficients=[2.0, -1.5, 0.5], adjust_lr_fn="spectral_unclamped", precise=True),
    },
    "adamax": {
        "plain": one(ALL, lr=0.02),
        "decay_maximize": one(ALL, lr=0.01, betas=[0.8, 0.95], weight_decay=0.1, maximize=True),
    },
    "asgd": {
        "plain": one(ALL, lr=0.1),
        "averaged": one(ALL, lr=0.2, lambd=0.01, alpha=0.6, t0=20.0, weight_decay=0.05),
        "maximize": one(ALL, lr=0.005, maximize=True),
    },
    "rprop": {
        "plain": one(ALL, lr=0.01),
        "options_maximize": one(ALL, lr=0.02, etas=[0.4, 1.3], step_sizes=[1e-3, 0.1], maximize=True),
    },
}


# A learning rate that rises to ten times its first value in 40 steps.
RISING = {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 40}
SCHEDULED = {"sgd": "momentum", "adadelta": "decay", "rmsprop": "momentum_decay", "muon": "precise", "asgd": "averaged"}


def trajectory(name, groups, linear=None):
    p = {k: torch.tensor(v).reshape(SHAPES[k]).requires_grad_() for k, v in START.items()}
    precise = groups[0]["options"].get("precise", False)
    muon_module.torch = types.SimpleNamespace(**(vars(torch) | {"bfloat16": torch.float64})) if precise else torch
    if name == "lion":
        opt = Lion([{"params": [p[k] for k in g["params"]]} | g["options"] for g in groups])
    elif len(groups) == 1:
        # Some options (Adagrad's initial value) count as arguments alone.
        opt = TORCH[name]([p[k] for k in groups[0]["params"]], **torch_options(groups[0]["options"]))
    else:
        opt = TORCH[name]([{"params": [p[k] for k in g["params"]]} | torch_options(g["options"]) for g in groups])
    rises = linear and torch.optim.lr_scheduler.LinearLR(opt, **linear)
    used = [k for g in groups for k in g["params"]]
    points = {}
    for t in range(max(AT)):
        opt.zero_grad()
        loss_at(p, t, True).backward()
        opt.step()
        if rises:
            rises.step()
        if t + 1 in AT:
            points[t + 1] = {k: flat(p[k]) for k in used}
    state = {k: {n: flat(v) for n, v in opt.state[p[k]].items() if v is not None} for k in used}
    return {"groups": groups, "linear": linear, "points": points, "state": state}


def lbfgs(steps, **options):
    """Parameters after each step of L-BFGS, which evaluates the loss several times; the problem is that of step 0."""
    p = {k: torch.tensor(v).reshape(SHAPES[k]).requires_grad_() for k, v in START.items()}
    opt = torch.optim.LBFGS(list(p.values()), **torch_options(options))
    sign = -1 if options.get("maximize") else 1

    def closure():
        opt.zero_grad()
        loss = sign * loss_at(p, 0, False)
        loss.backward()
        return loss

    points, losses = [], []
    for _ in range(steps):
        losses.append(opt.step(closure).item())
        points.append({k: flat(v) for k, v in p.items()})
    state = opt.state[p["w"]]
    return {"options": options, "points": points, "losses": losses, "func_evals": state["func_evals"], "n_iter": state["n_iter"]}


def clipped():
    """Norms and gradients after clipping by several norms and by value."""
    cases = []
    for order, most in [(2.0, 0.5), (2.0, 100.0), (math.inf, 0.05), (1.0, 2.0), (None, 0.1)]:
        p = {k: torch.tensor(v).reshape(SHAPES[k]).requires_grad_() for k, v in START.items()}
        # `c` has no gradient.
        loss_at(p, 2, True).backward()
        if order is None:
            torch.nn.utils.clip_grad_value_(p.values(), most)
            norm = None
        else:
            norm = torch.nn.utils.clip_grad_norm_(p.values(), most, order).item()
        grads = {k: flat(v.grad) for k, v in p.items() if v.grad is not None}
        cases.append({"order": "inf" if order == math.inf else order, "most": most, "norm": norm, "grads": grads})
    return cases


def averaged(decay):
    """The average of `w` over 20 steps of SGD, and of a buffer that is copied."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor(START["w"]).reshape(SHAPES["w"]))
            self.register_buffer("seen", torch.tensor(0))

    model = Model()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
    average.update_parameters(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        opt.zero_grad()
        torch.cos(model.w * 3).sum().backward()
        opt.step()
        model.seen += 1
        average.update_parameters(model)
    return {"decay": decay, "model": flat(model.w), "average": flat(average.module.w), "seen": int(average.module.seen)}


def write(name, value):
    (HERE / f"{name}.json").write_text(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    write("problem", {"x": X, "y": Y, "shapes": SHAPES, "start": START})
    for name, cases in CASES.items():
        recorded = {case: trajectory(name, groups) for case, groups in cases.items()}
        if name in TORCH:
            recorded["scheduled"] = trajectory(name, cases[SCHEDULED.get(name, "plain")], RISING)
        write(name, recorded)
    write("around", {"clip": clipped(), "ema": [averaged(0.9), averaged(0.5)]})
    write("lbfgs", {
        "strong_wolfe": lbfgs(4, line_search_fn="strong_wolfe", max_iter=5),
        "short_history": lbfgs(6, line_search_fn="strong_wolfe", max_iter=4, history_size=3, lr=0.5),
        "fixed_step": lbfgs(4, lr=0.2, max_iter=5, line_search_fn=None),
        "maximize": lbfgs(3, line_search_fn="strong_wolfe", max_iter=4, maximize=True),
    })
