"""How PyTorch's numbers are recorded: what a case is given, what comes out, and the gradients of everything.

A file holds many cases. The tensors of the case `lstm` are
    lstm/in/x            an input
    lstm/par/weight_ih_l0  a parameter (their order is in the header, under `lstm`)
    lstm/out/0           an output
    lstm/din/x, lstm/dpar/weight_ih_l0  gradients of Σ output · cotangent, where element i of a cotangent is cos(i + 1)
"""

import os

import torch
from safetensors.torch import save_file

torch.set_default_dtype(torch.float64)
HERE = os.path.dirname(os.path.abspath(__file__))


class Recording:
    def __init__(self, name):
        self.name, self.tensors, self.order = name, {}, {}

    def case(self, name, module, forward, inputs):
        """Runs `forward(module, **inputs)`; float inputs are differentiated."""
        for x in inputs.values():
            if x.is_floating_point():
                x.requires_grad_()
        parameters = dict(module.named_parameters()) if module is not None else {}
        outputs = forward(module, **inputs)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        total = 0
        for y in outputs:
            cotangent = torch.cos(torch.arange(y.numel()) + 1.0).reshape(y.shape)
            total = total + (y * cotangent).sum()
        total.backward()
        put = lambda kind, key, x: self.tensors.__setitem__(
            f"{name}/{kind}/{key}", x.detach().contiguous().clone()
        )
        for key, x in inputs.items():
            put("in", key, x)
            if x.grad is not None:
                put("din", key, x.grad)
        for key, x in parameters.items():
            put("par", key, x)
            put("dpar", key, x.grad)
        for i, y in enumerate(outputs):
            put("out", i, y)
        self.order[name] = ",".join(parameters)

    def save(self):
        path = os.path.join(HERE, self.name + ".safetensors")
        save_file(self.tensors, path, metadata=self.order)
        print(f"{self.name}: {len(self.order)} cases, {os.path.getsize(path)} bytes")
