"""ONNX Runtime on the CPU: answers to one example, from the models of the PyTorch peer.

Needs the peers' folder on the path; `compare` puts it there.

    PYTHONPATH=DIR python onnx_ops.py [workload ...]    runs them
    PYTHONPATH=DIR python onnx_ops.py --list            names them
"""

import io
import sys

from common import THREADS, fill, main, measure

import numpy as np
import onnxruntime
import torch
from torch_bench import Cnn, Mlp


def answer(model, x):
    """A call of the exported model, with the input bound as a user passes it."""
    file = io.BytesIO()
    torch.onnx.export(model.eval(), (torch.tensor(x),), file, input_names=["x"], output_names=["y"], dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    call = lambda: session.run(["y"], {"x": x})[0]  # noqa: E731
    return {**measure(call), "check": float(np.abs(call().astype("f8")).sum())}


def inference():
    return [("_mlp", answer(Mlp(), fill((1, 784), 1))), ("_cnn", answer(Cnn(), fill((1, 3, 32, 32), 1)))]


WORKLOADS = {"inference": inference}

if __name__ == "__main__":
    if "--list" in sys.argv:
        print("\n".join(WORKLOADS))
    else:
        main("onnxruntime", onnxruntime.__version__, WORKLOADS)
