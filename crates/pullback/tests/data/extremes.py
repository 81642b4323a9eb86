"""What PyTorch gives at extremes: values, first and second derivatives of every pointwise function, activation and
loss at zeros, infinities, NaN, the smallest and largest numbers, and kinks. Written to extremes.txt.

    python extremes.py > extremes.txt

`points NAME DTYPE` begins a list of points, with one line for each operand; `NAME DTYPE POINTS` the results of a function there,
with one line for each. Of one operand: y y' y''. Of two: y ya yb yaa yab yba ybb. Of rows of three: the results, then the gradient of
their sum weighted by 1, 2, 3. `v*n` is v, n times; a derivative that PyTorch refuses is `-`.
"""
import math
import sys
import torch
import torch.nn.functional as F
from torch import special

torch.set_num_threads(1)
inf, nan = math.inf, math.nan

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "square": torch.square, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "recip": torch.reciprocal, "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh,
    "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "erf": torch.erf, "erfc": torch.erfc, "erfcx": special.erfcx, "erfinv": torch.erfinv,
    "log_ndtr": special.log_ndtr, "ndtri": special.ndtri, "ndtr": special.ndtr, "lgamma": torch.lgamma,
    "digamma": torch.digamma, "polygamma1": lambda x: torch.polygamma(1, x), "i0": torch.i0, "i0e": special.i0e,
    "i1": special.i1, "i1e": special.i1e, "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "elu": lambda x: F.elu(x, 1.5), "celu": lambda x: F.celu(x, 2.0),
    "selu": F.selu, "softplus": lambda x: F.softplus(x, 2.0, 20.0), "log_sigmoid": F.logsigmoid, "mish": F.mish,
    "softsign": F.softsign, "tanhshrink": F.tanhshrink, "softshrink": lambda x: F.softshrink(x, 0.5),
    "hardshrink": lambda x: F.hardshrink(x, 0.5), "hardtanh": lambda x: F.hardtanh(x, -1.0, 1.0), "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "threshold": lambda x: F.threshold(x, 0.5, -9.0),
    "logit": torch.logit, "logit_within": lambda x: torch.logit(x, eps=0.125), "sinc": torch.sinc,
    "entr": special.entr, "frac": torch.frac, "deg2rad": torch.deg2rad, "rad2deg": torch.rad2deg,
    "nan_to_num": lambda x: torch.nan_to_num(x, 7.0, 8.0, -9.0), "angle": torch.angle,
    "clamp": lambda x: torch.clamp(x, -1.0, 1.0), "clamp_min": lambda x: torch.clamp_min(x, 0.0),
    "clamp_max": lambda x: torch.clamp_max(x, 0.0), "round_to": lambda x: torch.round(x, decimals=1),
    "pow0": lambda x: x ** 0.0, "pow1": lambda x: x ** 1.0, "pow2": lambda x: x ** 2.0, "pow3": lambda x: x ** 3.0,
    "pow_half": lambda x: x ** 0.5, "pow_3_2": lambda x: x ** 1.5, "pow_-1": lambda x: x ** -1.0,
    "pow_-2": lambda x: x ** -2.0, "pow_-half": lambda x: x ** -0.5, "two_pow": lambda x: 2.0 ** x,
    "zero_pow": lambda x: torch.zeros_like(x) ** x, "multigammaln": lambda x: special.multigammaln(x, 2),
    "remainder_3": lambda x: torch.remainder(x, 3.0), "fmod_3": lambda x: torch.fmod(x, 3.0),
}

BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "atan2": torch.atan2,
    "copysign": torch.copysign, "maximum": torch.maximum, "minimum": torch.minimum, "remainder": torch.remainder,
    "fmod": torch.fmod, "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "fmax": torch.fmax, "fmin": torch.fmin,
    "hypot": torch.hypot, "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2, "xlogy": torch.xlogy,
    "xlog1py": special.xlog1py, "lerp_half": lambda a, b: torch.lerp(a, b, 0.25),
    "heaviside": torch.heaviside, "prelu": None, "clamp_min_by": lambda a, b: torch.clamp(a, min=b),
    "clamp_max_by": lambda a, b: torch.clamp(a, max=b),
}
BINARY["prelu"] = lambda a, b: torch.prelu(a.reshape(1, -1), b).reshape(-1)

LOSS = {
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"), "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=2.0),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=2.0),
    "kl_div": lambda x, y: F.kl_div(x, y, reduction="none"),
    "kl_div_log": lambda x, y: F.kl_div(x, y, reduction="none", log_target=True),
    "bce_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "poisson_log": lambda x, y: F.poisson_nll_loss(x, y, log_input=True, full=False, reduction="none"),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y, log_input=False, full=False, eps=1e-8, reduction="none"),
    "poisson_full": lambda x, y: F.poisson_nll_loss(x, y, log_input=True, full=True, reduction="none"),
    "gaussian": lambda x, y: F.gaussian_nll_loss(x, y, torch.full_like(x, 0.25), reduction="none"),
}

# The second operand is one of a few: a probability, a sign.
CHOSEN = {
    "bce": ([0.0, 0.5, 1.0], [0.0, 0.25, 1.0, "tiny", "less"],
            lambda x, y: F.binary_cross_entropy(x, y, reduction="none")),
    "soft_margin": ([-1.0, 1.0], None, lambda x, y: F.soft_margin_loss(x, y.detach(), reduction="none")),
    "hinge_embedding": ([-1.0, 1.0], None, lambda x, y: F.hinge_embedding_loss(x, y, margin=1.0, reduction="none")),
    "margin_ranking": ([-1.0, 1.0], None,
                       lambda x, y: F.margin_ranking_loss(x, torch.zeros_like(x), y, margin=1.0, reduction="none")),
    "gaussian_variance": ([0.0, 1.0, inf, nan, "max"], ["tiny", 0.0, 0.25, 1.0, inf, nan, "max"],
                          lambda v, x: gaussian(v, x)),
}


def gaussian(v, x):
    return F.gaussian_nll_loss(x, torch.zeros_like(x), v, reduction="none")


ROWS = {
    "softmax": lambda x: torch.softmax(x, 1), "log_softmax": lambda x: torch.log_softmax(x, 1),
    "logsumexp": lambda x: torch.logsumexp(x, 1, keepdim=True), "cumsum": lambda x: torch.cumsum(x, 1),
    "cumprod": lambda x: torch.cumprod(x, 1), "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "prod": lambda x: torch.prod(x, 1, keepdim=True), "norm": lambda x: torch.linalg.vector_norm(x, 2, 1, keepdim=True),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, 1, keepdim=True),
    "norm3": lambda x: torch.linalg.vector_norm(x, 3, 1, keepdim=True),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, inf, 1, keepdim=True),
    "mean": lambda x: torch.mean(x, 1, keepdim=True), "var": lambda x: torch.var(x, 1, keepdim=True),
    "std": lambda x: torch.std(x, 1, keepdim=True), "max": lambda x: torch.amax(x, 1, keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (3,)), "rms_norm": lambda x: F.rms_norm(x, (3,), eps=1e-5),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.long), reduction="none")[:, None],
}

KINKS = [0.125, 0.25, 0.5, 0.875, 1.5, 2.0, 3.0, 6.0, 10.0, 20.0, 100.0, 1000.0, 1e8]


def number(v, dtype):
    info = torch.finfo(dtype)
    if v == "max":
        return info.max
    if v == "tiny":
        return info.tiny
    if v == "less":
        return 1.0 - info.eps
    return v


def unary_points(dtype):
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps
    big = 1e308 if dtype == torch.float64 else 3e38
    positive = [0.0, subnormal, info.tiny, math.sqrt(info.tiny), info.eps, 1.0, math.sqrt(info.max), big, info.max, inf] + KINKS
    return [nan] + [s * v for v in positive for s in (1.0, -1.0)]


def binary_points(dtype):
    info = torch.finfo(dtype)
    return [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, info.tiny, info.max, inf, -inf, nan]


def text(v, dtype):
    if v is None:
        return "-"
    if math.isnan(v):
        return "nan"
    if v == 0 or math.isinf(v):
        return {"0.0": "0", "-0.0": "-0"}.get(str(v), str(v))
    short = f"{v:.9g}" if dtype == torch.float32 else repr(v)
    return short.removesuffix(".0")


def derivatives(y, xs):
    """By each operand; None where there is none. An operand that y does not depend on has zeros."""
    if not y.requires_grad:
        return [torch.zeros_like(x) for x in xs]
    try:
        got = torch.autograd.grad(y.sum(), xs, create_graph=True, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        # One at a time: some are known.
        got = []
        for x in xs:
            try:
                got += torch.autograd.grad(y.sum(), [x], create_graph=True, allow_unused=True)
            except (RuntimeError, NotImplementedError):
                got.append("refused")
    return [torch.zeros_like(x) if g is None else (None if isinstance(g, str) else g) for g, x in zip(got, xs)]


def line(values, dtype):
    """The numbers of a line; runs of one number are counted."""
    runs = []
    for v in (text(v, dtype) for v in values):
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    print(" ".join(v if n == 1 else f"{v}*{n}" for v, n in runs))


SHORT = {torch.float64: "f64", torch.float32: "f32"}


def points(name, columns, dtype):
    print("points", name, SHORT[dtype])
    for column in columns:
        line(torch.tensor(column, dtype=dtype).tolist(), dtype)
    return name, columns


def table(name, f, where, dtype):
    xs = [torch.tensor(column, dtype=dtype, requires_grad=True) for column in where[1]]
    y = f(*xs)
    firsts = derivatives(y, xs)
    seconds = []
    for first in firsts:
        seconds += [None] * len(xs) if first is None else derivatives(first, xs)
    print(name, SHORT[dtype], where[0])
    for t in [y, *firsts, *seconds]:
        line([None] * len(y) if t is None else (t.detach() + 0.0).tolist(), dtype)


def rows(name, f, where, dtype):
    x = torch.tensor(where[1], dtype=dtype).T.requires_grad_()
    y = f(x)
    (dx,) = torch.autograd.grad((y * torch.tensor([1.0, 2.0, 3.0], dtype=dtype)[: y.shape[1]]).sum(), x)
    print(name, SHORT[dtype], where[0])
    for column in [*y.T.tolist(), *dx.T.tolist()]:
        line(column, dtype)


def columns(pairs):
    return list(map(list, zip(*pairs)))


def three(dtype):
    info = torch.finfo(dtype)
    some = [0.0, 1.0, -2.0, inf, -inf, nan, info.max, info.tiny]
    lines = [(a, b, c) for a in some for b in some for c in (0.0, 1.0, inf)]
    lines += [(12345.678,) * 3, (1e8, 1e8 + 1, 1e8 + 2), (-inf,) * 3, (nan,) * 3, (info.max,) * 3]
    return columns(lines)


if __name__ == "__main__":
    print(f"# PyTorch {torch.__version__.split('+')[0]}; made by extremes.py")
    for dtype in (torch.float64, torch.float32):
        one = points("one", [unary_points(dtype)], dtype)
        for name, f in UNARY.items():
            table(name, f, one, dtype)
        some = binary_points(dtype)
        pairs = [(a, b) for a in some for b in some]
        two = points("two", columns(pairs), dtype)
        for name, f in {**BINARY, **LOSS}.items():
            table(name, f, two, dtype)
        # Quotients that are whole but for rounding.
        near = [(1.0, 0.1), (0.7, 0.1), (6.0, 0.2), (-1.0, 0.1), (5.3, -0.1), (4.5, 1.5), (-4.5, 1.5), (1.0, 1 / 3)]
        near = points("near", columns(near), dtype)
        for name in ("remainder", "fmod", "floor_div", "trunc_div"):
            table(name, BINARY[name], near, dtype)
        for name, (second, first, f) in CHOSEN.items():
            first = [number(v, dtype) for v in (some if first is None else first)]
            chosen = [(a, number(b, dtype)) for a in first for b in second]
            table(name, f, points("of_" + name, columns(chosen), dtype), dtype)
        rows_of = points("rows", three(dtype), dtype)
        for name, f in ROWS.items():
            rows("rows_" + name, f, rows_of, dtype)
