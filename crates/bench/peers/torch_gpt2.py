"""The run of `pullback train text --model gpt2 --reference DIR`, by PyTorch.

From the same weights, on the same batches, with the same AdamW and schedule, in the same
precision; several times, as PyTorch's backward pass on a GPU adds in no fixed order. Prints how far
our losses are from those of the first run, and how far PyTorch's other runs are from them.

    pullback train text.txt --model gpt2 --device cuda --out RUN --reference DIR
    python3 torch_gpt2.py DIR --log RUN/log.jsonl --device cuda --json curves.json

Needs torch and nothing else. On a CPU every run after the first has a thread less, or more: with
the same number they would be equal. There, or where runs of the same kernels hardly differ, the
noise to compare with is that of PyTorch's other kernels, which round elsewhere: `--math` runs
attention as plain products, `--compile` runs the model under torch.compile.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32}


def tensors(path):
    """The tensors of a safetensors file."""
    data = bytearray(Path(path).read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    read = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
            count = (last - first) // dtype.itemsize
            flat = torch.frombuffer(data, dtype=dtype, count=count, offset=start + first)
            read[name] = flat.reshape(shape).clone()
    return read


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        parts = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in qkv.split(width, 2))
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """With the names of our parameters."""

    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def factor(settings):
    """The learning rate of a step, as a share of the highest."""
    warmup, steps, kind = settings["warmup"], settings["total"], settings["schedule"]
    after = max(steps - warmup, 1)
    course = {
        "constant": lambda t: 1.0,
        "cosine": lambda t: (1 + math.cos(math.pi * t / after)) / 2,
        "linear": lambda t: 1 - min(t, after) / after,
    }
    if kind not in course:
        raise SystemExit(f"the schedule {kind} is not one of {', '.join(course)}")
    return lambda step: 0.1 + 0.9 * step / warmup if step < warmup else course[kind](step - warmup)


def train(weights, batches, settings, device, wanted_lrs, compiled=False):
    """The loss of each step, and the tokens a second of the later half."""
    vocabulary, width = weights["wte.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
    with torch.device("meta"):
        model = Gpt2(vocabulary, len(weights["wpe.weight"]), width, layers, settings["heads"])
    model = model.to(weights["wte.weight"].dtype).to_empty(device=device)
    model.load_state_dict(weights)
    kind = torch.device(device).type
    optimizer = torch.optim.AdamW(
        model.parameters(), settings["lr"], weight_decay=settings["weight_decay"], fused=kind == "cuda"
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(settings))
    low = settings["precision"] == "bf16"
    called = torch.compile(model) if compiled else model
    losses, times = [], []
    for step in range(len(batches["x"])):
        began = time.perf_counter()
        lr = schedule.get_last_lr()[0]
        if wanted_lrs and abs(lr - wanted_lrs[step]) > 1e-6 * settings["lr"]:
            raise SystemExit(f"step {step + 1} has a learning rate of {lr}, and had {wanted_lrs[step]}")
        x, y = (batches[name][step].to(device).long() for name in "xy")
        with torch.autocast(kind, torch.bfloat16, enabled=low):
            loss = called(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - began)
    later = sorted(times[len(times) // 2 :])
    return losses, x.numel() / later[len(later) // 2]


def compared(name, curve, first):
    """A row: differences of two curves, of single steps and of means of ten."""
    apart = [abs(a - b) for a, b in zip(curve, first)]
    tens = lambda all: [sum(all[i : i + 10]) / 10 for i in range(0, len(all) - 9, 10)]
    smooth = [abs(a - b) for a, b in zip(tens(curve), tens(first))] or apart
    row = {
        "first": apart[0],
        "mean": sum(apart) / len(apart),
        "max": max(apart),
        "mean_of_tens": sum(smooth) / len(smooth),
        "max_of_tens": max(smooth),
        "last": apart[-1],
    }
    print(f"{name:<34}" + "".join(f"{value:>14.3e}" for value in row.values()))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path, help="the folder that --reference wrote")
    parser.add_argument("--log", type=Path, required=True, help="log.jsonl of that run")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=int, default=2, help="how many runs of PyTorch")
    parser.add_argument("--math", action="store_true", help="and one with attention as plain products")
    parser.add_argument("--compile", action="store_true", help="and one under torch.compile")
    parser.add_argument("--json", type=Path, help="writes the curves and differences")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs: at least one run of PyTorch is compared with")
    on_gpu = torch.device(args.device).type == "cuda"

    settings = json.loads((args.reference / "settings.json").read_text())
    weights = tensors(args.reference / "weights.safetensors")
    batches = tensors(args.reference / "batches.safetensors")
    lines = [json.loads(line) for line in args.log.read_text().splitlines()]
    lines = lines[: len(batches["x"])]
    if len(lines) < len(batches["x"]):
        raise SystemExit(f"{args.log} has {len(lines)} steps, and there are {len(batches['x'])} batches")
    ours, lrs = [line["loss"] for line in lines], [line["lr"] for line in lines]

    threads = torch.get_num_threads()
    curves, rates = {"ours": ours}, {}
    for run in range(args.runs):
        if not on_gpu and run > 0:
            torch.set_num_threads(threads - run if threads > run else threads + run)
        name = f"torch run {run + 1}"
        curves[name], rates[name] = train(weights, batches, settings, args.device, lrs)
    torch.set_num_threads(threads)
    if args.math:
        name = "torch, plain attention"
        with sdpa_kernel(SDPBackend.MATH):
            curves[name], rates[name] = train(weights, batches, settings, args.device, lrs)
    if args.compile:
        name = "torch.compile"
        curves[name], rates[name] = train(weights, batches, settings, args.device, lrs, compiled=True)

    for i in sorted({0, len(ours) // 4, len(ours) // 2, 3 * len(ours) // 4, len(ours) - 1}):
        print(f"step {i + 1}: " + ", ".join(f"{name} {curve[i]:.5f}" for name, curve in curves.items()))
    for name, rate in rates.items():
        print(f"{name}: {rate:.0f} tokens a second")
    print(f"{'|loss − loss of torch run 1|':<34}" + "".join(
        f"{name:>14}" for name in ["step 1", "mean", "max", "mean of tens", "max of tens", "last"]))
    first = curves["torch run 1"]
    rows = {name: compared(name, curve, first) for name, curve in curves.items() if curve is not first}
    if args.json:
        versions = {"torch": torch.__version__, "device": args.device}
        if on_gpu:
            versions["device"] = torch.cuda.get_device_name(args.device)
        text = {"settings": settings, **versions, "tokens_per_second": rates, "differences": rows, "curves": curves}
        args.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
