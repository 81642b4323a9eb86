"""PyTorch's side of `pullback-bench sweep`, which starts it and talks to it through pipes.

    python torch_sweep.py THREADS

It reads an expression, the number of its operands (x, y, z, w, v) and these, then a line
`forward` or `gradient` for each time that is asked for, and answers with the least seconds of a
call, `inf` where there is no gradient, or the error.
"""

import math
import sys
import time
import warnings

import numpy as np
import torch
import torch.nn.functional as F

BATCH, BUDGET = 2e-4, 0.02  # as `least` in sweep/mod.rs
NAMES = "x, y, z, w, v"
DTYPES = {"f32": (np.float32, torch.float32), "bf16": (np.float32, torch.bfloat16),
          "i64": (np.int64, torch.int64), "bool": (np.bool_, torch.bool)}
SCOPE = {"torch": torch, "F": F, "L": torch.linalg, "sp": torch.special, "math": math,
         "complex": torch.view_as_complex}


def least(call):
    def batch(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    batch(1)
    calls = min(max(math.ceil(BATCH / batch(1)), 1), 1000)
    start, best = time.perf_counter(), batch(calls)
    while time.perf_counter() - start < BUDGET:
        best = min(best, batch(calls))
    return best


def operand(source):
    dtype, lengths, wanted = source.readline().decode().split()
    stored, used = DTYPES[dtype]
    shape = [int(n) for n in lengths.split(",")]
    raw = source.read(math.prod(shape) * np.dtype(stored).itemsize)
    x = torch.from_numpy(np.frombuffer(raw, stored).reshape(shape).copy()).to(used)
    return x.requires_grad_(wanted == "true")


class Function:
    def __init__(self, expression, operands):
        names = ", ".join(NAMES.split(", ")[: len(operands)])
        self.call = eval(f"lambda {names}: {expression}", SCOPE)
        self.operands = operands
        y = self.value()
        self.cotangent = torch.rand_like(y.detach()) if y.requires_grad else None

    def value(self):
        y = self.call(*self.operands)
        return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y

    def forward(self):
        with torch.no_grad():
            self.call(*self.operands)

    def gradient(self):
        for x in self.operands:
            x.grad = None
        self.value().backward(self.cotangent)

    def time(self, mode):
        if mode == "forward":
            return least(self.forward)
        return math.inf if self.cotangent is None else least(self.gradient)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(sys.argv[1]))
    source, function = sys.stdin.buffer, None
    answer = lambda text: print(str(text).replace("\n", " "), flush=True)  # noqa: E731
    answer(torch.__version__)
    while line := source.readline().decode().strip():
        try:
            if line in ("forward", "gradient"):
                answer(function.time(line))
            else:
                operands = [operand(source) for _ in range(int(source.readline()))]
                function, failed = None, None
                try:
                    function = Function(line, operands)
                except Exception as error:  # noqa: BLE001
                    failed = error
                answer(failed or "ready")
        except Exception as error:  # noqa: BLE001
            answer(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
