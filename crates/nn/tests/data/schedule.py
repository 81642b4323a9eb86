"""Rates of torch.optim.lr_scheduler (2.15) for two groups with base rates 0.1 and 0.02, before each of 130 steps (the second before every tenth): `schedule.json`."""
import json, math, pathlib
import torch
from torch.optim import lr_scheduler as s

BASES, STEPS = [0.1, 0.02], 130


def optimizer():
    return torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in BASES], lr=1.0, momentum=0.9)


def run(make, metrics=None):
    opt = optimizer()
    scheduler = make(opt)
    rows = []
    for t in range(STEPS):
        # The second group is recorded now and then.
        groups = opt.param_groups if t % 10 == 0 else opt.param_groups[:1]
        rows.append([float(g["lr"]) for g in groups])
        opt.step()
        scheduler.step(metrics[t]) if metrics else scheduler.step()
    return rows


def sequential(opt):
    parts = [s.LinearLR(opt, 0.2, 1.0, 15), s.StepLR(opt, 20, 0.5), s.CosineAnnealingLR(opt, 40, 1e-4)]
    return s.SequentialLR(opt, parts, [15, 90])


def warmup(opt):
    return s.SequentialLR(opt, [s.LinearLR(opt, 0.1, 1.0, 30), s.CosineAnnealingLR(opt, 100, 1e-3)], [30])


# Falls, stays, rises, with noise that does not count and some that does.
METRICS = [2.0 * math.exp(-0.05 * min(t, 40)) + 0.03 * math.sin(1.3 * t) + (0.002 * (t - 80) if t > 80 else 0) for t in range(STEPS)]
PLATEAU = {
    "plateau": dict(patience=3, factor=0.5),
    "plateau_absolute": dict(patience=2, factor=0.3, threshold=0.05, threshold_mode="abs", cooldown=4, min_lr=1e-3),
    "plateau_max": dict(mode="max", patience=4, factor=0.7, threshold=0.01, cooldown=2),
    "plateau_max_absolute": dict(mode="max", patience=1, factor=0.7, threshold=0.02, threshold_mode="abs", eps=1e-3),
}
RATES = {
    "constant": run(lambda o: s.ConstantLR(o, 0.4, 25)),
    "linear": run(lambda o: s.LinearLR(o, 0.25, 0.9, 80)),
    "step": run(lambda o: s.StepLR(o, 30, 0.3)),
    "milestones": run(lambda o: s.MultiStepLR(o, [10, 50, 50, 100], 0.4)),
    "exponential": run(lambda o: s.ExponentialLR(o, 0.97)),
    "cosine": run(lambda o: s.CosineAnnealingLR(o, 130, 2e-3)),
    "cosine_restarts": run(lambda o: s.CosineAnnealingWarmRestarts(o, 10, 2, 1e-3)),
    "cosine_restarts_same": run(lambda o: s.CosineAnnealingWarmRestarts(o, 17, 1, 1e-3)),
    "polynomial": run(lambda o: s.PolynomialLR(o, 110, 2.5)),
    "one_cycle": run(lambda o: s.OneCycleLR(o, BASES, STEPS)),
    "one_cycle_linear": run(lambda o: s.OneCycleLR(o, BASES, STEPS, pct_start=0.37, anneal_strategy="linear", div_factor=10, final_div_factor=100)),
    "one_cycle_three": run(lambda o: s.OneCycleLR(o, BASES, STEPS, pct_start=0.25, three_phase=True)),
    "cyclic": run(lambda o: s.CyclicLR(o, BASES, [5 * b for b in BASES], 12, 7)),
    "cyclic_halved": run(lambda o: s.CyclicLR(o, BASES, [4 * b for b in BASES], 15, mode="triangular2")),
    "cyclic_power": run(lambda o: s.CyclicLR(o, BASES, [4 * b for b in BASES], 15, mode="exp_range", gamma=0.98)),
    "sequential": run(sequential),
    "warmup": run(warmup),
} | {name: run(lambda o: s.ReduceLROnPlateau(o, **how), METRICS) for name, how in PLATEAU.items()}

here = pathlib.Path(__file__).parent
text = ",\n".join(f"{json.dumps(name)}:{json.dumps(rows, separators=(',', ':'))}" for name, rows in RATES.items())
(here / "schedule.json").write_text('{"metrics":' + json.dumps(METRICS) + ",\n" + text + "}\n")
