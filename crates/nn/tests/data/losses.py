"""Losses as PyTorch has them, with every reduction: writes losses.safetensors.

    python losses.py
"""

import torch
from recording import Recording
from torch import nn


def main():
    torch.manual_seed(6)
    out = Recording("losses")
    x = lambda *shape: torch.randn(*shape)
    probability = lambda *shape: torch.rand(*shape) * 0.9 + 0.05
    signs = lambda *shape: torch.randint(0, 2, shape) * 2 - 1
    classes = lambda n, *shape: torch.randint(0, n, shape)
    pair = lambda *shape: {"x": x(*shape), "y": x(*shape)}
    rows = lambda *shape: torch.softmax(x(*shape), 1)
    weight = torch.rand(3) + 0.5
    of = lambda m, x, y: m(x, y)
    # What has few elements on each side of a kink is far from it: the numbers are random.
    table = [
        ("mse", nn.MSELoss, {}, of, pair(3, 4)),
        ("l1", nn.L1Loss, {}, of, pair(3, 4)),
        ("huber", nn.HuberLoss, {}, of, pair(3, 4)),
        ("huber_delta", nn.HuberLoss, {"delta": 0.3}, of, pair(3, 4)),
        ("smooth_l1", nn.SmoothL1Loss, {}, of, pair(3, 4)),
        ("smooth_l1_beta", nn.SmoothL1Loss, {"beta": 0.3}, of, pair(3, 4)),
        ("cross_entropy", nn.CrossEntropyLoss, {}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("cross_entropy_single", nn.CrossEntropyLoss, {}, of, {"x": x(3), "y": classes(3)}),
        ("cross_entropy_ignored", nn.CrossEntropyLoss, {"ignore_index": 1}, of, {"x": x(5, 3), "y": torch.tensor([0, 1, 2, 2, 1])}),
        ("cross_entropy_default_ignored", nn.CrossEntropyLoss, {}, of, {"x": x(4, 3), "y": torch.tensor([0, -100, 2, 1])}),
        ("cross_entropy_weight", nn.CrossEntropyLoss, {"weight": weight}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("cross_entropy_smoothed", nn.CrossEntropyLoss, {"label_smoothing": 0.2}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("cross_entropy_all", nn.CrossEntropyLoss, {"weight": weight, "ignore_index": 0, "label_smoothing": 0.2}, of, {"x": x(5, 3), "y": torch.tensor([0, 1, 2, 2, 0])}),
        ("cross_entropy_probabilities", nn.CrossEntropyLoss, {}, of, {"x": x(5, 3), "y": rows(5, 3)}),
        ("cross_entropy_probabilities_all", nn.CrossEntropyLoss, {"weight": weight, "label_smoothing": 0.2}, of, {"x": x(5, 3), "y": rows(5, 3)}),
        ("cross_entropy_image", nn.CrossEntropyLoss, {"weight": weight, "ignore_index": 2}, of, {"x": x(2, 3, 2, 2), "y": classes(3, 2, 2, 2)}),
        ("cross_entropy_image_probabilities", nn.CrossEntropyLoss, {}, of, {"x": x(2, 3, 4), "y": rows(2, 3, 4)}),
        ("nll", nn.NLLLoss, {}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("nll_all", nn.NLLLoss, {"weight": weight, "ignore_index": 1}, of, {"x": x(2, 3, 4), "y": classes(3, 2, 4)}),
        ("bce", nn.BCELoss, {}, of, {"x": probability(3, 4), "y": probability(3, 4)}),
        ("bce_weight", nn.BCELoss, {"weight": weight}, of, {"x": probability(4, 3), "y": probability(4, 3)}),
        ("bce_with_logits", nn.BCEWithLogitsLoss, {}, of, {"x": x(3, 4), "y": probability(3, 4)}),
        ("bce_with_logits_all", nn.BCEWithLogitsLoss, {"weight": weight, "pos_weight": weight * 2}, of, {"x": x(4, 3), "y": probability(4, 3)}),
        ("kl_div", nn.KLDivLoss, {}, of, {"x": x(3, 4), "y": rows(3, 4)}),
        ("kl_div_log", nn.KLDivLoss, {"log_target": True}, of, {"x": x(3, 4), "y": x(3, 4)}),
        ("poisson_nll", nn.PoissonNLLLoss, {}, of, {"x": x(3, 4), "y": probability(3, 4) * 4}),
        ("poisson_nll_all", nn.PoissonNLLLoss, {"log_input": False, "full": True, "eps": 1e-3}, of, {"x": probability(3, 4), "y": probability(3, 4) * 4}),
        ("hinge_embedding", nn.HingeEmbeddingLoss, {}, of, {"x": x(3, 4), "y": signs(3, 4)}),
        ("hinge_embedding_margin", nn.HingeEmbeddingLoss, {"margin": 0.3}, of, {"x": x(3, 4), "y": signs(3, 4)}),
        ("soft_margin", nn.SoftMarginLoss, {}, of, {"x": x(3, 4), "y": signs(3, 4)}),
        ("multi_margin", nn.MultiMarginLoss, {}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("multi_margin_all", nn.MultiMarginLoss, {"p": 2, "margin": 0.5, "weight": weight}, of, {"x": x(5, 3), "y": classes(3, 5)}),
        ("multilabel_margin", nn.MultiLabelMarginLoss, {}, of, {"x": x(2, 4), "y": torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])}),
        ("multilabel_soft_margin", nn.MultiLabelSoftMarginLoss, {"weight": weight}, of, {"x": x(4, 3), "y": classes(2, 4, 3)}),
        ("gaussian_nll", nn.GaussianNLLLoss, {}, lambda m, x, y, v: m(x, y, v), {**pair(3, 4), "v": probability(3, 4)}),
        ("gaussian_nll_all", nn.GaussianNLLLoss, {"full": True, "eps": 0.3}, lambda m, x, y, v: m(x, y, v), {**pair(3, 4), "v": probability(3, 4)}),
        ("margin_ranking", nn.MarginRankingLoss, {"margin": 0.2}, lambda m, a, b, y: m(a, b, y), {"a": x(6), "b": x(6), "y": signs(6)}),
        ("cosine_embedding", nn.CosineEmbeddingLoss, {"margin": 0.1}, lambda m, a, b, y: m(a, b, y), {"a": x(6, 3), "b": x(6, 3), "y": signs(6)}),
        ("triplet_margin", nn.TripletMarginLoss, {}, lambda m, a, n, f: m(a, n, f), {"a": x(5, 3), "n": x(5, 3), "f": x(5, 3)}),
        ("triplet_margin_all", nn.TripletMarginLoss, {"margin": 0.5, "p": 3, "eps": 1e-4, "swap": True}, lambda m, a, n, f: m(a, n, f), {"a": x(5, 3), "n": x(5, 3), "f": x(5, 3)}),
        ("ctc", nn.CTCLoss, {}, ctc, {"x": x(6, 3, 4), "y": torch.tensor([[1, 2, 2], [3, 1, 0], [2, 0, 0]])}),
        ("ctc_all", nn.CTCLoss, {"blank": 3, "zero_infinity": True}, ctc, {"x": x(6, 3, 4), "y": torch.tensor([[0, 2, 2], [2, 1, 0], [2, 0, 0]])}),
    ]
    for name, make, options, forward, inputs in table:
        reductions = ["mean", "sum", "none"]
        if make is nn.KLDivLoss:
            reductions.append("batchmean")
        for reduction in reductions:
            fresh = {key: value.detach().clone() for key, value in inputs.items()}
            out.case(f"{name}.{reduction}", make(reduction=reduction, **options), forward, fresh)
    out.tensors["weight"] = weight
    out.save()


def ctc(m, x, y):
    return m(x.log_softmax(2), y, torch.tensor([6, 5, 4]), torch.tensor([3, 2, 1]))


main()
