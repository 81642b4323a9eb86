"""PyTorch on the CPU, operator by operator: the workloads that the peers' own scripts lack.

Needs `common.py` of the peers' folder on the path; `compare` puts it there.

    PYTHONPATH=DIR python torch_ops.py [workload ...]    runs them
    PYTHONPATH=DIR python torch_ops.py --list            names them
"""

import sys

from common import THREADS, fill, labels, main, measure

import torch
import torch.nn.functional as F

MEGA = 1 << 20


def setup(_):
    torch.set_num_threads(THREADS)


def tensor(array, requires_grad=False):
    return torch.tensor(array, requires_grad=requires_grad)


def abs_sum(tensors):
    return sum(t.double().abs().sum().item() for t in tensors)


def briefly(step):
    return measure(step, warm_s=0.2, budget_s=0.7)


def with_gradients(fn, inputs, g):
    """Forward and backward of `fn`, from the cotangent `g`."""

    def step():
        for x in inputs:
            x.grad = None
        fn(*inputs).backward(g)

    return {**briefly(step), "check": abs_sum([x.grad for x in inputs])}


def attention():
    rows = []
    for shape in ((4, 8, 256, 32), (1, 8, 2048, 64)):
        qkv = [tensor(fill(shape, seed), True) for seed in (1, 2, 3)]
        g = tensor(fill(shape, 4))
        for causal in (False, True):
            fn = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
            name = f"_{shape[2]}x{shape[3]}" + ("_causal" if causal else "")

            def forward():
                with torch.no_grad():
                    fn(*qkv)

            rows.append((name + "_fwd", briefly(forward)))
            rows.append((name, with_gradients(fn, qkv, g)))
    return rows


def order():
    """Sorting and selecting in one line of 2^20."""
    x = tensor(fill((MEGA,), 1))
    return [("_sort", briefly(lambda: torch.sort(x, stable=True))),
            ("_argsort", briefly(lambda: torch.argsort(x))),
            ("_topk", {**briefly(lambda: torch.topk(x, 10)), "check": torch.topk(x, 10)[0].sum().item()}),
            ("_topk_1000", briefly(lambda: torch.topk(x, 1000))),
            ("_kthvalue", {**briefly(lambda: torch.kthvalue(x, MEGA // 3)),
                           "check": torch.kthvalue(x, MEGA // 3)[0].item()}),
            ("_median", {**briefly(lambda: torch.median(x, 0)), "check": torch.median(x, 0)[0].item()})]


def scatter():
    """Adding 2^20 values into 10,000; rows of a table and their gradient."""
    base, x = torch.zeros(10_000), tensor(fill((MEGA,), 1))
    index = tensor(labels((MEGA,), 2, 10_000))
    table, picked = tensor(fill((10_000, 64), 3), True), tensor(labels((8192,), 4, 10_000))
    g = tensor(fill((8192, 64), 5))
    add = lambda: torch.scatter_add(base, 0, index, x)  # noqa: E731
    rows = lambda: torch.index_add(table.detach(), 0, picked, g)  # noqa: E731
    return [("_add", {**briefly(add), "check": abs_sum([add()])}),
            ("_index_add", {**briefly(rows), "check": abs_sum([rows()])}),
            ("_embedding", with_gradients(lambda t: F.embedding(picked, t), [table], g))]


def cumulate():
    """Running sums of 2^22: in one line, and in 4096 lines of 1024, along and across."""
    x, y = tensor(fill((4 * MEGA,), 1)), tensor(fill((4096, 1024), 1))
    return [("_sum", {**briefly(lambda: torch.cumsum(x, 0)), "check": torch.cumsum(x.double(), 0)[-1].item()}),
            ("_sum_rows", briefly(lambda: torch.cumsum(y, 1))),
            ("_sum_columns", briefly(lambda: torch.cumsum(y, 0)))]


def updates():
    """Steps of SGD with momentum and of Adam on 2^22 parameters."""
    rows = []
    for name, make in (("_sgd", lambda p: torch.optim.SGD([p], lr=1e-3, momentum=0.9)),
                       ("_adam", lambda p: torch.optim.Adam([p], lr=1e-3))):
        x = torch.nn.Parameter(tensor(fill((4 * MEGA,), 1)))
        x.grad = tensor(fill((4 * MEGA,), 2))
        rows.append((name, briefly(make(x).step)))
    return rows


def products():
    """Small and batched matrix products, and products in low precision."""
    rows = []
    for b, n in ((64, 32), (512, 8), (64, 64), (16, 128)):
        x, y = tensor(fill((b, n, n), 1)), tensor(fill((b, n, n), 2))
        rows.append((f"_{b}x{n}", {**briefly(lambda: x @ y), "check": abs_sum([x @ y])}))
        rows.append((f"_{b}x{n}_t", {**briefly(lambda: x @ y.mT), "check": abs_sum([x @ y.mT])}))
    for n in (8, 32, 64):
        x, y = tensor(fill((n, n), 1)), tensor(fill((n, n), 2))
        rows.append((f"_{n}", briefly(lambda: x @ y)))
    for dtype in (torch.bfloat16, torch.float16):
        x, y = (tensor(fill((512, 512), s)).to(dtype) for s in (1, 2))
        rows.append((f"_512_{str(dtype)[6:]}", briefly(lambda: x @ y)))
    for n in (256, 512, 1024, 2048):
        x, y = (tensor(fill((n, n), s)).double() for s in (1, 2))
        rows.append((f"_float64_{n}", briefly(lambda: x @ y)))
    gpt = [(1024, 768, 256), (1024, 1024, 256), (1024, 256, 1024), (256, 1024, 1024)]
    for m, n, k in [(n, n, n) for n in (64, 256, 1024, 2048)] + gpt:
        x, turned_x, y, turned_y = (tensor(fill(shape, s)).to(torch.bfloat16)
                                    for shape, s in (((m, k), 1), ((k, m), 1), ((k, n), 2), ((n, k), 2)))
        name = f"_bfloat16_{m}x{n}x{k}"
        rows.append((name, briefly(lambda: x @ y)))
        rows.append((f"{name}_nt", briefly(lambda: x @ turned_y.t())))
        rows.append((f"{name}_tn", briefly(lambda: turned_x.t() @ y)))
        rows.append((f"{name}_compiled", briefly(lambda: x @ y)))
    return rows


def convolutions():
    layers = (
        ("_3x3_56", (4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
        ("_3x3_14", (4, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
        ("_3x3_stride2", (4, 128, 28, 28), (256, 128, 3, 3), 2, 1, 1),
        ("_1x1_28", (4, 256, 28, 28), (128, 256, 1, 1), 1, 0, 1),
        ("_7x7_stride2", (2, 3, 112, 112), (64, 3, 7, 7), 2, 3, 1),
        ("_depthwise", (4, 96, 56, 56), (96, 1, 3, 3), 1, 1, 96),
    )
    rows = []
    for name, image, kernel, stride, padding, groups in layers:
        x, w = tensor(fill(image, 1), True), tensor(fill(kernel, 2), True)
        fn = lambda x, w: F.conv2d(x, w, None, stride, padding, 1, groups)  # noqa: E731
        g = tensor(fill(tuple(fn(x, w).shape), 3))

        def forward():
            with torch.no_grad():
                fn(x, w)

        rows.append((name + "_fwd", briefly(forward)))
        rows.append((name, with_gradients(fn, [x, w], g)))
    return rows


def pooling():
    x = tensor(fill((16, 64, 56, 56), 1), True)
    rows = []
    for name, fn in (
        ("_max", lambda x: F.max_pool2d(x, 3, 2, 1)),
        ("_max_2x2", lambda x: F.max_pool2d(x, 2)),
        ("_avg", lambda x: F.avg_pool2d(x, 3, 2, 1)),
        ("_adaptive_avg", lambda x: F.adaptive_avg_pool2d(x, 7)),
    ):
        rows.append((name, with_gradients(fn, [x], tensor(fill(tuple(fn(x).shape), 2)))))
    return rows
def linalg():
    """Factorisations of one matrix, and of a stack of small ones."""
    L = torch.linalg
    a, one = tensor(fill((512, 512), 1)), torch.eye(512)
    positive, general = a @ a.T / 512 + one, a + one * 20
    b, v = tensor(fill((512, 512), 2)), tensor(fill((512,), 3))
    small = tensor(fill((256, 256), 4))
    even = small + small.T
    stacked = tensor(fill((256, 16, 16), 5)) + torch.eye(16) * 5
    leaf = positive.clone().requires_grad_()
    pair = [general.clone().requires_grad_(), b.clone().requires_grad_()]

    def cholesky_backward():
        leaf.grad = None
        L.cholesky(leaf).backward(b)
        return leaf.grad

    def solve_backward():
        pair[0].grad = pair[1].grad = None
        L.solve(*pair).backward(b)
        return pair[1].grad

    checked = lambda f, check: {**briefly(f), "check": abs_sum([check()])}  # noqa: E731
    same = lambda f: checked(f, f)  # noqa: E731
    return [("_cholesky_512", same(lambda: L.cholesky(positive))),
            ("_cholesky_512_fwdbwd", same(cholesky_backward)),
            ("_solve_512", same(lambda: L.solve(general, b))),
            ("_solve_512_fwdbwd", same(solve_backward)),
            ("_solve_512_vector", same(lambda: L.solve(general, v))),
            ("_inv_512", same(lambda: L.inv(general))),
            ("_solve_256x16", same(lambda: L.inv(stacked))),
            ("_svd_256", checked(lambda: L.svd(small), lambda: L.svdvals(small))),
            ("_svdvals_256", same(lambda: L.svdvals(small))),
            ("_eigh_256", checked(lambda: L.eigh(even), lambda: L.eigvalsh(even))),
            ("_qr_512", checked(lambda: L.qr(general), lambda: L.qr(general)[1]))]


def fft():
    """Fourier transforms of 2^20 values in one line, and of an image."""
    x = tensor(fill((MEGA,), 1))
    z = torch.complex(x, tensor(fill((MEGA,), 2)))
    image, half = tensor(fill((1024, 1024), 3)), torch.fft.rfft(x)
    pairs = lambda y: abs_sum([torch.view_as_real(y) if y.is_complex() else y])  # noqa: E731
    same = lambda f: {**briefly(f), "check": pairs(f())}  # noqa: E731
    return [("_1m", same(lambda: torch.fft.fft(z))),
            ("_1m_of_real", same(lambda: torch.fft.fft(x))),
            ("_1m_real", same(lambda: torch.fft.rfft(x))),
            ("_1m_inverse_real", same(lambda: torch.fft.irfft(half))),
            ("_1024x1024_real", same(lambda: torch.fft.rfft2(image)))]


def peak_mib(step):
    """Most bytes of tensors above what is there now, by what the allocator reports to the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    now = most = 0
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return round(most / 2**20, 1)


def memory_chain():
    """A chain of 64 blocks x + tanh(x·w), 512 × 256, as it is, in 8 checkpointed segments, and with saved values copied away."""
    from torch.utils.checkpoint import checkpoint_sequential

    weights = [tensor(fill((256, 256), seed) / 16, True) for seed in range(1, 65)]
    x = tensor(fill((512, 256), 99), True)
    blocks = [lambda h, w=w: h + torch.tanh(h @ w) for w in weights]

    def plain():
        h = x
        for block in blocks:
            h = block(h)
        return h

    def run(forward, context=None):
        def step():
            x.grad = None
            for w in weights:
                w.grad = None
            if context is None:
                loss = forward().square().mean()
            else:
                with context():
                    loss = forward().square().mean()
            loss.backward()

        peak = peak_mib(step)
        return {**measure(step), "tensors_mib": peak, "check": abs_sum([x.grad] + [w.grad for w in weights])}

    return [("_checkpoint", run(lambda: checkpoint_sequential(blocks, 8, x, use_reentrant=False))),
            ("_offload", run(plain, torch.autograd.graph.save_on_cpu)),
            ("_plain", run(plain))]


def inference():
    """Answers to one example, of the models of `torch_bench.py`."""
    from torch_bench import Cnn, Mlp

    def answer(model, x):
        model.eval()

        def call():
            with torch.inference_mode():
                return model(x)

        return {**measure(call), "check": abs_sum([call()])}

    return [("_mlp", answer(Mlp(), tensor(fill((1, 784), 1)))),
            ("_cnn", answer(Cnn(), tensor(fill((1, 3, 32, 32), 1))))]


WORKLOADS = {
    "inference": inference,
    "memory_chain": memory_chain,
    "attention": attention,
    "convolutions": convolutions,
    "pooling": pooling,
    "order": order,
    "scatter": scatter,
    "cumulate": cumulate,
    "updates": updates,
    "products": products,
    "linalg": linalg,
    "fft": fft,
}

if __name__ == "__main__":
    if "--list" in sys.argv:
        print("\n".join(WORKLOADS))
    else:
        main("torch-eager", torch.__version__, WORKLOADS, setup)
