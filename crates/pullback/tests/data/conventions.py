"""Derivatives at kinks as frameworks give them: `python conventions.py torch > conventions_torch.txt`, and with `jax` likewise.

A line is the name of the kink, then the derivatives there.
"""
import sys


def in_torch():
    import torch
    import torch.nn.functional as F

    def slopes(f, *xs):
        xs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in xs]
        return [v for g in torch.autograd.grad(f(*xs).sum(), xs) for v in g.reshape(-1).tolist()]

    two = torch.tensor([0.25], dtype=torch.float64)
    return torch.__version__.split("+")[0], slopes, {
        "relu": F.relu, "abs": torch.abs, "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "prelu": lambda x: F.prelu(x, two),
        "clamp": lambda x: torch.clamp(x, -1.0, 1.0), "clamp_by": lambda x, low: torch.clamp(x, min=low),
        "hardtanh": lambda x: F.hardtanh(x, -1.0, 1.0), "relu6": F.relu6, "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish, "maximum": torch.maximum, "minimum": torch.minimum, "max": torch.amax, "min": torch.amin,
        "norm": torch.linalg.vector_norm, "std": torch.std, "hypot": torch.hypot,
    }


def in_jax():
    import jax
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    def slopes(f, *xs):
        xs = [jnp.array(x, dtype=jnp.float64) for x in xs]
        got = jax.grad(lambda *xs: f(*xs).sum(), argnums=tuple(range(len(xs))))(*xs)
        return [v for g in got for v in g.reshape(-1).tolist()]

    return jax.__version__, slopes, {
        "relu": jax.nn.relu, "abs": jnp.abs, "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.25),
        "clamp": lambda x: jnp.clip(x, -1.0, 1.0), "clamp_by": lambda x, low: jnp.clip(x, min=low),
        "lax_clamp": lambda x: jax.lax.clamp(-1.0, x, 1.0), "hardtanh": jax.nn.hard_tanh, "relu6": jax.nn.relu6,
        "hardsigmoid": jax.nn.hard_sigmoid, "hardswish": jax.nn.hard_swish, "maximum": jnp.maximum,
        "minimum": jnp.minimum, "max": jnp.max, "min": jnp.min, "norm": jnp.linalg.norm,
        "std": lambda x: jnp.std(x, ddof=1), "hypot": jnp.hypot,
    }


POINTS = {
    "relu": ([0.0],), "abs": ([0.0],), "leaky_relu": ([0.0],), "prelu": ([0.0],), "clamp": ([-1.0, 1.0],),
    "clamp_by": ([1.0], [1.0]), "lax_clamp": ([-1.0, 1.0],), "hardtanh": ([-1.0, 1.0],), "relu6": ([0.0, 6.0],),
    "hardsigmoid": ([-3.0, 3.0],), "hardswish": ([-3.0, 3.0],), "maximum": ([2.0], [2.0]), "minimum": ([2.0], [2.0]),
    "max": ([1.0, 2.0, 2.0],), "min": ([1.0, 1.0, 2.0],), "norm": ([0.0, 0.0],), "std": ([3.0, 3.0],),
    "hypot": ([0.0], [0.0]),
}

if __name__ == "__main__":
    which = sys.argv[1]
    version, slopes, functions = {"torch": in_torch, "jax": in_jax}[which]()
    print("#", {"torch": "PyTorch", "jax": "JAX"}[which], version)
    for name, at in POINTS.items():
        if name in functions:
            print(name, *(f"{v:.9g}" for v in slopes(functions[name], *at)))
