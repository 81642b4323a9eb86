"""Makes norms.json: what PyTorch's parametrisations `weight_norm` and `spectral_norm` give, forward and backward, in f64.

Weights and inputs are computed by `numbers` on both sides, exactly; the vectors of a spectral norm too, as both sides would draw others.
Run it in this directory: python norms.py
"""

import json

import torch
from torch import nn
from torch.nn.utils import parametrizations


def numbers(seed, shape):
    """Distinct numbers between -1 and 1."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    k = (torch.arange(count) * 7919 + seed * 104729) % 2003
    return ((k.double() + 0.5) / 1000 - 1).reshape(shape)


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), [2, 4]),
    "conv": (lambda: nn.Conv2d(2, 3, 3), [2, 2, 5, 5]),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 2), [2, 2, 4]),
}


def fresh(name):
    layer = LAYERS[name][0]().double()
    with torch.no_grad():
        layer.weight.copy_(numbers(1, list(layer.weight.shape)))
        layer.bias.copy_(numbers(2, list(layer.bias.shape)))
    return layer, numbers(3, LAYERS[name][1])


def flat(x):
    return x.detach().reshape(-1).tolist()


def run(layer, x, calls, training):
    """The last of some calls, backward from the sum of its squares; names, gradients and buffers."""
    layer.train(training)
    for _ in range(calls):
        layer.zero_grad()
        y = layer(x)
        y.square().sum().backward()
    return {
        "y": flat(y),
        "names": list(layer.state_dict()),
        "grads": {n: flat(p.grad) for n, p in layer.named_parameters()},
        "buffers": {n: flat(b) for n, b in layer.named_buffers()},
    }


cases = {}
for name in LAYERS:
    for dim in [0, 1, None]:
        layer, x = fresh(name)
        layer = parametrizations.weight_norm(layer, dim=dim)
        with torch.no_grad():
            # Away from where it begins, so that lengths and directions are apart.
            layer.parametrizations.weight.original0.mul_(1.5)
        cases[f"weight_norm.{name}.{dim}"] = run(layer, x, 1, True)
    for calls, steps, training in [(1, 1, True), (3, 2, True), (2, 1, False)]:
        layer, x = fresh(name)
        layer = parametrizations.spectral_norm(layer, n_power_iterations=steps)
        norm = layer.parametrizations.weight[0]
        with torch.no_grad():
            norm._u.copy_(nn.functional.normalize(numbers(4, list(norm._u.shape)), dim=0))
            norm._v.copy_(nn.functional.normalize(numbers(5, list(norm._v.shape)), dim=0))
        cases[f"spectral_norm.{name}.{calls}.{steps}.{training}"] = run(layer, x, calls, training)

with open("norms.json", "w") as file:
    json.dump({"torch": torch.__version__, "cases": cases}, file, indent=0)
