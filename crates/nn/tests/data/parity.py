"""Trains three small networks in PyTorch and writes down where they started, what they saw and how their losses fell.

    python parity.py          # writes parity_{gpt,cnn,lstm}{,_batches}.safetensors and parity.json

Needs torch and safetensors. Weights and batches are kept in f32; the run in f64 starts from the same numbers, widened.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS = 50
HERE = Path(__file__).parent


class Gpt(torch.nn.Module):
    """Pre-norm blocks, learned positions, one table for the embedding and the logits."""

    def __init__(self, vocabulary=40, length=16, width=32, heads=4, layers=2):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, width)
        self.position = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu",
                                             batch_first=True, norm_first=True)
            for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        torch.nn.init.normal_(self.token.weight, std=0.1)
        torch.nn.init.normal_(self.position.weight, std=0.1)

    def forward(self, ids):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=self.token.weight.dtype)
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return F.linear(self.norm(x), self.token.weight)

    def loss(self, x, y):
        return F.cross_entropy(self(x).flatten(0, 1), y.flatten())


class Cnn(torch.nn.Sequential):
    """Two convolutions with batch normalisation, then a linear layer."""

    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(16 * 16, 10))

    def loss(self, x, y):
        return F.cross_entropy(self(x), y)


class Lstm(torch.nn.Module):
    """A two-layer LSTM whose last output is read by a linear layer."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(6, 16, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(16, 3)

    def loss(self, x, y):
        return F.mse_loss(self.head(self.lstm(x)[0][:, -1]), y)


def batches_gpt():
    # A noisy walk over the vocabulary, so that there is something to learn.
    walk = (torch.arange(5 * 4 * 17) * 7 + torch.randint(0, 3, (5 * 4 * 17,))) % 40
    ids = walk.reshape(5, 4, 17)
    return ids[..., :-1].contiguous(), ids[..., 1:].contiguous()


def batches_cnn():
    y = torch.randint(0, 10, (5, 16))
    x = torch.randn(5, 16, 1, 8, 8) + 0.2 * y[:, :, None, None, None]
    return x, y


def batches_lstm():
    x = torch.randn(5, 8, 12, 6)
    return x, torch.stack([x.sum((2, 3)).tanh(), x[..., 0].mean(2), x[:, :, -1, 1]], -1)


CASES = {
    "gpt": (Gpt, batches_gpt, lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.01)),
    "cnn": (Cnn, batches_cnn, lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "lstm": (Lstm, batches_lstm, lambda p: torch.optim.Adam(p, lr=5e-3)),
}


def curve(model, optimizer, x, y):
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(x[step % len(x)], y[step % len(y)])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


curves = {}
for name, (make, batches, optimizer) in CASES.items():
    torch.manual_seed(7)
    model = make()
    x, y = batches()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(start, HERE / f"parity_{name}.safetensors")
    save_file({"x": x, "y": y}, HERE / f"parity_{name}_batches.safetensors")
    runs = {}
    for dtype in (torch.float32, torch.float64):
        model.load_state_dict(start)
        model.to(dtype)
        model.train()
        cast = [v.to(dtype) if v.is_floating_point() else v for v in (x, y)]
        runs[str(dtype).removeprefix("torch.")] = curve(model, optimizer(model.parameters()), *cast)
        model.to(torch.float32)
    curves[name] = runs
(HERE / "parity.json").write_text(json.dumps({"torch": torch.__version__, "curves": curves}, indent=1) + "\n")
