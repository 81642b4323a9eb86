"""Makes layers.json and layers.safetensors: what PyTorch's layers give for the cases in the table below, forward and backward, in f64.

Inputs, weights and cotangents are not stored: both sides compute them from `numbers`, exactly.
Run it in this directory: python layers.py
"""

import json

import torch
from safetensors.torch import save_file
from torch import nn


def numbers(seed, shape):
    """Distinct numbers between -1 and 1, none of them at a kink."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    k = (torch.arange(count) * 7919 + seed * 104729) % 2003
    return ((k.double() + 0.5) / 1000 - 1).reshape(shape)


# layer, positional arguments, named arguments, shape of the input, and more: "below" for integers
# below it, "scale" of the input, "mode", "batches" to go through (the last one is compared),
# "tolerance" where 1e-9 is too tight.
CASES = [
    ("Linear", [5, 3], {}, [4, 5], {}),
    ("Linear", [5, 3], {"bias": False}, [2, 2, 5], {}),
    ("Linear", [5, 3], {}, [5], {}),
    ("Bilinear", [3, 4, 2], {}, [5, 3], {}),
    ("Bilinear", [3, 4, 2], {"bias": False}, [2, 2, 3], {}),
    ("Conv1d", [2, 3, 3], {}, [2, 2, 7], {}),
    ("Conv1d", [2, 4, 3], {"stride": 2, "padding": 1, "groups": 2}, [2, 2, 8], {}),
    ("Conv1d", [2, 3, 2], {"dilation": 2, "bias": False}, [2, 7], {}),
    ("Conv1d", [2, 3, 4], {"padding": "same"}, [1, 2, 7], {}),
    ("Conv1d", [2, 3, 3], {"padding": 2, "padding_mode": "reflect"}, [1, 2, 6], {}),
    ("Conv1d", [2, 3, 3], {"padding": 2, "padding_mode": "circular", "stride": 2}, [1, 2, 6], {}),
    ("Conv2d", [2, 3, 3], {}, [2, 2, 5, 4], {}),
    ("Conv2d", [2, 4, 3], {"stride": 2, "padding": 1}, [1, 2, 6, 5], {}),
    ("Conv2d", [4, 4, [3, 2]], {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 4}, [1, 4, 6, 5], {}),
    ("Conv2d", [2, 3, 3], {"padding": "same", "dilation": 2, "bias": False}, [1, 2, 5, 5], {}),
    ("Conv2d", [2, 2, 3], {"padding": 1, "padding_mode": "replicate"}, [2, 4, 4], {}),
    ("Conv2d", [2, 2, 3], {"padding": [1, 2], "padding_mode": "reflect"}, [1, 2, 4, 4], {}),
    ("Conv3d", [1, 2, 2], {}, [1, 1, 3, 4, 3], {}),
    ("Conv3d", [2, 2, [2, 1, 2]], {"stride": [1, 2, 1], "padding": [1, 0, 1], "groups": 2}, [1, 2, 3, 3, 2], {}),
    ("Conv3d", [1, 2, 2], {"dilation": [2, 1, 1], "bias": False, "padding": 1, "padding_mode": "circular"}, [1, 1, 3, 2, 2], {}),
    ("ConvTranspose1d", [2, 3, 3], {}, [2, 2, 4], {}),
    ("ConvTranspose1d", [2, 4, 3], {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2}, [1, 2, 4], {}),
    ("ConvTranspose1d", [2, 2, 3], {"stride": 2, "dilation": 2, "bias": False}, [2, 4], {}),
    ("ConvTranspose2d", [2, 3, 2], {}, [1, 2, 3, 3], {}),
    ("ConvTranspose2d", [2, 2, [3, 2]], {"stride": 2, "padding": [1, 0], "output_padding": [1, 0]}, [1, 2, 3, 2], {}),
    ("ConvTranspose2d", [4, 4, 2], {"groups": 2, "dilation": 2, "bias": False}, [1, 4, 2, 2], {}),
    ("ConvTranspose3d", [1, 2, 2], {}, [1, 1, 2, 2, 2], {}),
    ("ConvTranspose3d", [2, 2, 2], {"stride": [2, 1, 1], "padding": [0, 1, 0], "output_padding": [1, 0, 0], "groups": 2}, [1, 2, 2, 3, 2], {}),
    ("MaxPool1d", [2], {}, [2, 2, 7], {}),
    ("MaxPool1d", [3], {"stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True}, [2, 8], {}),
    ("MaxPool2d", [2], {}, [1, 2, 5, 4], {}),
    ("MaxPool2d", [[3, 2]], {"stride": [2, 1], "padding": [1, 0], "ceil_mode": True}, [1, 2, 6, 5], {}),
    ("MaxPool3d", [2], {"stride": 1, "dilation": [1, 2, 1]}, [1, 1, 3, 4, 3], {}),
    ("AvgPool1d", [3], {"stride": 2, "padding": 1}, [2, 2, 7], {}),
    ("AvgPool1d", [3], {"padding": 1, "count_include_pad": False, "ceil_mode": True}, [2, 7], {}),
    ("AvgPool2d", [2], {}, [1, 2, 5, 4], {}),
    ("AvgPool2d", [[3, 2]], {"stride": 2, "padding": 1, "ceil_mode": True, "divisor_override": 5}, [1, 2, 5, 4], {}),
    ("AvgPool3d", [2], {"stride": 1, "padding": 1, "count_include_pad": False}, [1, 1, 2, 3, 3], {}),
    ("AdaptiveAvgPool1d", [3], {}, [2, 2, 7], {}),
    ("AdaptiveAvgPool2d", [1], {}, [2, 2, 3, 4], {}),
    ("AdaptiveAvgPool2d", [[3, None]], {}, [1, 2, 5, 4], {}),
    ("AdaptiveAvgPool3d", [2], {}, [1, 1, 3, 4, 5], {}),
    ("AdaptiveMaxPool1d", [3], {}, [2, 7], {}),
    ("AdaptiveMaxPool2d", [[2, 3]], {}, [1, 2, 5, 4], {}),
    ("AdaptiveMaxPool3d", [[None, 2, 1]], {}, [1, 1, 2, 3, 3], {}),
    ("Embedding", [7, 3], {}, [2, 5], {"below": 7}),
    ("Embedding", [5, 3], {"padding_idx": 2}, [9], {"below": 5}),
    ("Embedding", [4, 3], {"scale_grad_by_freq": True}, [9], {"below": 4}),
    ("EmbeddingBag", [5, 3], {"mode": "sum"}, [3, 4], {"below": 5}),
    ("EmbeddingBag", [5, 3], {"mode": "mean", "padding_idx": 1}, [3, 4], {"below": 5}),
    ("EmbeddingBag", [5, 3], {"mode": "max"}, [3, 4], {"below": 5}),
    ("LayerNorm", [[6]], {}, [2, 3, 6], {}),
    ("LayerNorm", [[3, 4]], {"eps": 1e-3, "bias": False}, [2, 3, 4], {}),
    ("LayerNorm", [[5]], {"elementwise_affine": False}, [4, 5], {}),
    ("RMSNorm", [[6]], {}, [2, 3, 6], {}),
    ("RMSNorm", [[3, 4]], {"eps": 1e-3}, [2, 3, 4], {}),
    ("RMSNorm", [[5]], {"elementwise_affine": False}, [4, 5], {}),
    ("GroupNorm", [2, 4], {}, [2, 4, 3], {}),
    ("GroupNorm", [1, 3], {"eps": 1e-3}, [2, 3, 2, 2], {}),
    ("GroupNorm", [4, 4], {"affine": False}, [2, 4, 3, 2], {}),
    ("BatchNorm1d", [3], {}, [4, 3], {"batches": 2}),
    ("BatchNorm1d", [3], {}, [2, 3, 4], {"batches": 2}),
    ("BatchNorm1d", [3], {"momentum": None}, [4, 3], {"batches": 3}),
    ("BatchNorm1d", [3], {}, [1, 3], {"mode": "eval"}),
    ("BatchNorm2d", [2], {"eps": 1e-3, "momentum": 0.3}, [2, 2, 3, 2], {"batches": 2}),
    ("BatchNorm2d", [2], {}, [2, 2, 3, 2], {"mode": "eval"}),
    ("BatchNorm2d", [2], {"affine": False}, [2, 2, 3, 2], {"batches": 2}),
    ("BatchNorm2d", [2], {"track_running_stats": False}, [2, 2, 3, 2], {}),
    ("BatchNorm2d", [2], {"track_running_stats": False}, [2, 2, 3, 2], {"mode": "eval"}),
    ("BatchNorm3d", [2], {"momentum": None}, [2, 2, 2, 2, 2], {"batches": 2}),
    ("BatchNorm3d", [2], {"affine": False}, [2, 2, 2, 2, 2], {"mode": "eval"}),
    ("InstanceNorm1d", [3], {}, [2, 3, 4], {}),
    ("InstanceNorm1d", [3], {"affine": True}, [3, 4], {}),
    ("InstanceNorm2d", [2], {"affine": True, "track_running_stats": True}, [2, 2, 3, 2], {"batches": 2}),
    ("InstanceNorm2d", [2], {"affine": True, "track_running_stats": True}, [2, 2, 3, 2], {"mode": "eval"}),
    ("InstanceNorm2d", [2], {"eps": 1e-3}, [2, 2, 3, 2], {"mode": "eval"}),
    ("InstanceNorm3d", [2], {"track_running_stats": True, "momentum": 0.3}, [2, 2, 2, 2, 2], {"batches": 2}),
    ("Dropout", [0.5], {}, [2, 3], {"mode": "eval"}),
    ("Dropout1d", [0.5], {}, [2, 3, 2], {"mode": "eval"}),
    ("Dropout2d", [0.5], {}, [2, 3, 2, 2], {"mode": "eval"}),
    ("Dropout3d", [0.5], {}, [1, 2, 2, 2, 2], {"mode": "eval"}),
    ("AlphaDropout", [0.5], {}, [2, 3], {"mode": "eval"}),
    ("Dropout", [1.0], {}, [2, 3], {}),
    ("Dropout", [0.0], {}, [2, 3], {}),
    *[(name, [], {}, [24], {"scale": 4}) for name in (
        "Identity", "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LogSigmoid", "ELU", "SELU", "CELU", "Softplus",
        "Softsign", "Mish", "Hardswish", "Hardtanh", "Softshrink", "Hardshrink", "Tanhshrink", "PReLU")],
    # PyTorch's slope is the f32 nearest to 1/6, also in f64.
    ("Hardsigmoid", [], {}, [24], {"scale": 4, "tolerance": 1e-7}),
    ("ReLU6", [], {}, [12], {"scale": 9}),
    ("GELU", [], {"approximate": "tanh"}, [24], {"scale": 4}),
    ("LeakyReLU", [0.2], {}, [12], {}),
    ("ELU", [0.7], {}, [12], {"scale": 4}),
    ("CELU", [0.7], {}, [12], {"scale": 4}),
    ("Softplus", [2.0, 3.0], {}, [24], {"scale": 4}),
    ("Hardtanh", [-0.3, 0.7], {}, [12], {}),
    ("Softshrink", [0.3], {}, [12], {}),
    ("Hardshrink", [0.3], {}, [12], {}),
    ("Threshold", [0.1, 20.0], {}, [12], {}),
    ("PReLU", [3], {}, [2, 3, 4], {}),
    ("RReLU", [0.1, 0.3], {}, [12], {"mode": "eval"}),
    ("GLU", [], {}, [3, 6], {}),
    ("GLU", [0], {}, [4, 3], {}),
    ("Softmax", [-1], {}, [3, 4], {"scale": 4}),
    ("Softmax", [1], {}, [2, 3, 2], {"scale": 4}),
    ("Softmin", [-1], {}, [3, 4], {"scale": 4}),
    ("LogSoftmax", [-1], {}, [3, 4], {"scale": 4}),
    ("LogSoftmax", [0], {}, [3, 4], {"scale": 4}),
    ("Flatten", [], {}, [2, 3, 2], {}),
    ("Flatten", [0, 1], {}, [2, 3, 2], {}),
    ("Unflatten", [1, [3, -1]], {}, [2, 6], {}),
    ("Upsample", [], {"scale_factor": 2.0}, [1, 2, 3, 2], {}),
    ("Upsample", [], {"scale_factor": 2.0, "mode": "bilinear"}, [1, 2, 3, 2], {}),
    ("Upsample", [], {"size": [5, 4], "mode": "bilinear", "align_corners": True}, [1, 2, 3, 2], {}),
    ("Upsample", [], {"scale_factor": 2.0, "mode": "bicubic"}, [1, 1, 4, 4], {}),
    ("Upsample", [], {"size": [5], "mode": "linear"}, [1, 2, 3], {}),
    ("ZeroPad2d", [[1, 2, 0, 1]], {}, [1, 2, 2, 3], {}),
    ("ZeroPad2d", [[-1, 2, 1, -1]], {}, [1, 2, 3, 3], {}),
    ("ConstantPad1d", [[2, 1], 0.5], {}, [2, 3], {}),
    ("ReflectionPad1d", [[2, 1]], {}, [1, 2, 4], {}),
    ("ReplicationPad2d", [[1, 2, 2, 0]], {}, [1, 1, 2, 3], {}),
    ("CircularPad3d", [[1, 0, 1, 1, 0, 1]], {}, [1, 1, 2, 2, 2], {}),
    ("LocalResponseNorm", [3], {}, [2, 5, 3], {}),
    ("LocalResponseNorm", [2, 0.5, 0.6, 2.0], {}, [1, 4, 2, 2], {}),
    ("PixelShuffle", [2], {}, [1, 8, 2, 3], {}),
    ("PixelUnshuffle", [2], {}, [1, 2, 4, 6], {}),
]


def inputs_of(layer, args, shape, more, seed):
    if "below" in more:
        return [((numbers(seed, shape) + 1) * 1000).long() % more["below"]]
    first = numbers(seed, shape) * more.get("scale", 1)
    if layer == "Bilinear":
        return [first, numbers(seed + 100, shape[:-1] + [args[1]])]
    return [first]


def tupled(x):
    return tuple(x) if isinstance(x, list) else x


def main():
    torch.set_default_dtype(torch.float64)
    cases, tensors = [], {}
    for layer, args, kwargs, shape, more in CASES:
        given = [tupled(a) for a in args]
        module = getattr(nn, layer)(*given, **{key: tupled(value) for key, value in kwargs.items()})
        name = f"{len(cases)}"
        with torch.no_grad():
            for i, (_, p) in enumerate(module.named_parameters()):
                p.copy_(numbers(10 + i, list(p.shape)) * 0.5)
        if more.get("mode") == "eval":
            module.eval()
            with torch.no_grad():
                for i, (_, b) in enumerate(b for b in module.named_buffers() if b[1].is_floating_point()):
                    b.copy_(numbers(20 + i, list(b.shape)) + 1.5)
        for batch in range(more.get("batches", 1)):
            xs = inputs_of(layer, args, shape, more, 1 + batch)
            xs = [x.requires_grad_() if x.is_floating_point() else x for x in xs]
            module.zero_grad()
            y = module(*xs)
            y.backward(numbers(5, list(y.shape)))
        tensors[f"{name}.y"] = y.detach()
        for i, x in enumerate(xs):
            if x.is_floating_point():
                tensors[f"{name}.dx{i}"] = x.grad
        for key, p in module.named_parameters():
            tensors[f"{name}.d.{key}"] = p.grad
        for key, b in module.named_buffers():
            tensors[f"{name}.after.{key}"] = b
        names = {key: list(x.shape) for key, x in module.state_dict().items()}
        cases.append({"layer": layer, "args": args, "kwargs": kwargs, "shape": shape, "more": more, "state": names})
    save_file({key: x.clone().contiguous() for key, x in tensors.items()}, "layers.safetensors")
    with open("layers.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
