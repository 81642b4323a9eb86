"""All-reduce of f32 by PyTorch's gloo, as `pullback bench workers` measures it:

    python crates/bench/peers/gloo.py 2            # two processes of this machine
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 25 << 20, 1 << 26, 1 << 28]


def worker(rank, size):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    for size_in_bytes in SIZES:
        x = torch.zeros(size_in_bytes // 4)
        times = []
        for i in range(max(5, min(300, (256 << 20) // size_in_bytes)) + 2):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(x)
            if i >= 2:
                times.append(time.perf_counter() - start)
        if rank == 0:
            median, least = statistics.median(times), min(times)
            speed = size_in_bytes / median / 1e9
            print(f"{size_in_bytes:>10} bytes  {median * 1e3:9.3f} ms (least {least * 1e3:.3f})  {speed:.2f} GB/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(worker, (workers,), nprocs=workers)
