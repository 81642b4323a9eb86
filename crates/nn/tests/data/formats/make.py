"""Writes the files that data_formats.rs reads, with NumPy, ml_dtypes, safetensors and Pillow.

Run it in this folder: python make.py. What the files hold is in expected.json.
"""

import json
import struct

import ml_dtypes
import numpy as np
from numpy.lib import format as npy
from PIL import Image
from safetensors.numpy import save_file

expected = {}


def values(x):
    return np.asarray(x, dtype=np.float64).ravel().tolist()


def expect(name, x, dtype):
    expected[name] = {"dtype": dtype, "shape": list(x.shape), "values": values(x)}


# Each kind of number, in both orders of bytes; what the reader makes of it.
base = np.array([[0, 1, 2], [3, 100, 5]])
kinds = {
    "f8": "f64", "f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i32", "i1": "i32",
    "u8": "i64", "u4": "i64", "u2": "i32", "u1": "u8", "b1": "bool",
}
arrays = {}
for kind, dtype in kinds.items():
    for order, word in [("<", "little"), (">", "big")]:
        x = base.astype(np.dtype(order + kind))
        if kind[0] in "fi":
            x = -x
        arrays[f"{kind}_{word}"] = x
        expect(f"kinds.npz/{kind}_{word}", x, dtype)
arrays["bf16"] = base.astype(ml_dtypes.bfloat16)
expect("kinds.npz/bf16", arrays["bf16"], "bf16")
np.savez_compressed("kinds.npz", **arrays)

# Orders of elements, versions of the header, and shapes that are easily got wrong.
cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
np.save("fortran.npy", np.asfortranarray(cube))
expect("fortran.npy", cube, "f32")
for version in [(1, 0), (2, 0), (3, 0)]:
    name = f"version{version[0]}.npy"
    with open(name, "wb") as f:
        npy.write_array(f, cube, version=version)
    expect(name, cube, "f32")
for name, x in [("scalar.npy", np.float64(2.5)), ("vector.npy", np.array([7.0])), ("empty.npy", np.zeros((0, 3)))]:
    np.save(name, x)
    expect(name, np.asarray(x), "f64")

for name, save in [("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)]:
    save(name, a=cube, b=np.array([1, 2, 3]))
    expect(f"{name}/a", cube, "f32")
    expect(f"{name}/b", np.array([1, 2, 3]), "i64")

# Safetensors, with the two short floats and a note.
save_file(
    {
        "f32": cube,
        "f64": base.astype(np.float64),
        "f16": base.astype(np.float16),
        "bf16": base.astype(ml_dtypes.bfloat16),
        "i64": base,
        "i32": base.astype(np.int32),
        "u8": base.astype(np.uint8),
        "bool": base.astype(bool),
        "i16": base.astype(np.int16),
        "scalar": np.array(3.5),
    },
    "all.safetensors",
    metadata={"made_by": "make.py"},
)
for name, x, dtype in [
    ("f32", cube, "f32"), ("f64", base, "f64"), ("f16", base, "f16"), ("bf16", base, "bf16"), ("i64", base, "i64"),
    ("i32", base, "i32"), ("u8", base, "u8"), ("bool", base.astype(bool), "bool"), ("i16", base, "i32"), ("scalar", np.array(3.5), "f64"),
]:
    expect(f"all.safetensors/{name}", x, dtype)

# IDX, by hand: MNIST's own layout.
with open("images.idx", "wb") as f:
    f.write(struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + bytes(range(24)))
expect("images.idx", np.arange(24).reshape(2, 3, 4), "u8")
with open("shorts.idx", "wb") as f:
    f.write(struct.pack(">HBBI", 0, 0x0B, 1, 3) + struct.pack(">3h", -2, 0, 300))
expect("shorts.idx", np.array([-2, 0, 300]), "i32")

# A picture of two by three pixels.
pixels = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[10, 20, 30], [40, 50, 60], [70, 80, 90]]], dtype=np.uint8)
Image.fromarray(pixels).save("pixels.png")
expect("pixels.png", pixels.transpose(2, 0, 1), "u8")

with open("expected.json", "w") as f:
    json.dump(expected, f, separators=(",", ":"))
    f.write("\n")
