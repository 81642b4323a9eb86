"""Writes weights.safetensors as PyTorch saves a model (tied weights, buffers, several dtypes), and weights.json with what is in it.

Run in this folder: python weights.py
"""

import json

import torch
from safetensors.torch import save_model


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(4)
        self.narrow = torch.nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.register_buffer("mask", torch.tensor([True, False, True]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.norm = Norm()
        self.head = torch.nn.Linear(4, 5)
        self.head.weight = self.embedding.weight


torch.manual_seed(0)
model = Model()
model.norm.bn(torch.randn(6, 4))
save_model(model, "weights.safetensors")
values = {name: {"shape": list(x.shape), "values": x.double().flatten().tolist()} for name, x in model.state_dict().items()}
with open("weights.json", "w") as file:
    json.dump(values, file)
