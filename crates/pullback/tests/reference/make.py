"""Writes the reference cases of this folder: outputs and derivatives by PyTorch, in float64, in the format of golden/README.md.

    python make.py [NAME …]

The cases are chosen here, keyword by keyword after PyTorch's documentation, with edge cases of our own. Each line below is
name, positional arguments, named arguments. `r(shape)` is a differentiated random tensor.
"""
import json, math, os, struct, sys
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))
CASES = []
# Cases without a reference in forward mode, as (name, number).
REVERSE_ONLY = set()


def case(name, *args, **kwargs):
    CASES.append((name, args, kwargs))


GEN = torch.Generator().manual_seed(7)


def r(*shape, low=-2.0, high=2.0):
    x = torch.rand(shape, generator=GEN) * (high - low) + low
    return x.requires_grad_()


def c(*shape, low=-2.0, high=2.0):
    return r(*shape, low=low, high=high).detach()


def ints(*shape, low=0, high=3):
    return torch.randint(low, high, shape, generator=GEN)


def t(values, dtype=None, diff=False):
    x = torch.tensor(values, dtype=dtype)
    return x.requires_grad_() if diff else x


exec(open(os.path.join(HERE, "cases.py")).read())


def resolve(name):
    if name.startswith("nn.functional."):
        return getattr(F, name.split(".")[2])
    at = torch
    for part in name.split("."):
        at = getattr(at, part)
    return at


def tensors_of(value, found):
    if isinstance(value, torch.Tensor):
        if not any(value is f for f in found):
            found.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            tensors_of(v, found)


def encode(value, found):
    if isinstance(value, torch.Tensor):
        j = next(i for i, f in enumerate(found) if f is value)
        return {"tensor": j, "dtype": str(value.dtype)[6:], "diff": value.requires_grad}
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return {"float": value if math.isfinite(value) else str(value)}
    return [encode(v, found) for v in value]


KINDS = {torch.float64: "F64", torch.int64: "I64", torch.uint8: "U8"}


def store(path, tensors):
    head, blobs, at = {}, [], 0
    for key in sorted(tensors):
        x = tensors[key].detach().contiguous()
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        data = x.numpy(force=True).tobytes()
        head[key] = {"dtype": KINDS[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def like(x):
    return torch.rand(x.shape, generator=GEN) * 2 - 1


def run(name, args, kwargs, index, out):
    found = []
    tensors_of(args, found)
    tensors_of(list(kwargs.values()), found)
    for j, x in enumerate(found):
        out[f"{index}.in.{j}"] = x.detach().clone()
    f = resolve(name)
    wrt = [(j, x) for j, x in enumerate(found) if x.requires_grad]

    def call(values):
        table = {id(x): v for (_, x), v in zip(wrt, values)}
        swap = lambda v: table.get(id(v), v.clone() if isinstance(v, torch.Tensor) else v) if not isinstance(v, (list, tuple)) else type(v)(swap(w) for w in v)
        y = f(*[swap(a) for a in args], **{k: swap(v) for k, v in kwargs.items()})
        return list(y) if isinstance(y, (list, tuple)) else [y]

    ys = call([x for _, x in wrt])
    entry = {
        "args": [encode(a, found) for a in args],
        "kwargs": {k: encode(v, found) for k, v in kwargs.items()},
        "outputs": [{"shape": list(y.shape), "dtype": str(y.dtype)[6:], "diff": bool(y.requires_grad)} for y in ys],
        "vjp": False, "jvp": False, "gg": False,
    }
    for k, y in enumerate(ys):
        out[f"{index}.out.{k}"] = y
    kept = [(k, y) for k, y in enumerate(ys) if y.requires_grad]
    if not kept or not wrt:
        return entry
    cots = [like(y) for _, y in kept]
    tans = [like(x) for _, x in wrt]
    for (k, _), v in zip(kept, cots):
        out[f"{index}.cot.{k}"] = v
    for (j, _), v in zip(wrt, tans):
        out[f"{index}.tan.{j}"] = v
    xs = [x for _, x in wrt]
    # The tangent of y is the derivative of <grad, tan> by the cotangent.
    dummies = [v.clone().requires_grad_() for v in cots]
    grads = torch.autograd.grad([y for _, y in kept], xs, dummies, create_graph=True, allow_unused=True)
    entry["vjp"] = True
    for (j, _), g in zip(wrt, grads):
        if g is not None:
            out[f"{index}.grad.{j}"] = g
    inner = sum((g * v).sum() for g, v in zip(grads, tans) if g is not None)
    if not isinstance(inner, torch.Tensor) or not inner.requires_grad:
        return entry
    try:
        back = torch.autograd.grad(inner, dummies + xs, allow_unused=True)
    except RuntimeError as why:
        print(f"{name} {index}: no second order: {str(why)[:90]}")
        return entry
    entry["jvp"] = (name, index) not in REVERSE_ONLY
    entry["gg"] = True
    for (k, y), v in zip(kept, back):
        out[f"{index}.jvp.{k}"] = torch.zeros_like(y) if v is None else v
    for (j, _), v in zip(wrt, back[len(dummies):]):
        if v is not None:
            out[f"{index}.gg.{j}"] = v
    return entry


names = sorted({n for n, _, _ in CASES})
for name in names:
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    out, cases = {}, []
    for args, kwargs in [(a, k) for n, a, k in CASES if n == name]:
        cases.append(run(name, args, kwargs, len(cases), out))
    json.dump({"op": name, "reference": f"PyTorch {torch.__version__.split('+')[0]}", "cases": cases},
              open(os.path.join(HERE, name + ".json"), "w"), separators=(",", ":"))
    store(os.path.join(HERE, name + ".safetensors"), out)
print(len(names), "operators,", len(CASES), "cases")
