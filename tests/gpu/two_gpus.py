"""Parts of two.sh: totals, fill, peer, allreduce, which assert and print a line; and shares, which prints figures."""

import os
import sys
import threading
import time
from collections import deque

import torch

GIB = 1 << 30
LIMITS = {0: 4 * GIB, 1: 6 * GIB}  # by the machine's number


def totals():
    order = os.environ["CUDA_VISIBLE_DEVICES"]
    seen = [torch.cuda.mem_get_info(i)[1] / GIB for i in range(torch.cuda.device_count())]
    print(f"CUDA_VISIBLE_DEVICES={order}: totals {seen} GiB", flush=True)


def held(device):
    pieces = []
    try:
        while True:
            pieces.append(torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{device}"))
    except torch.OutOfMemoryError:
        return len(pieces) * 64


def fill():
    for device, limit in LIMITS.items():
        got = held(device)
        assert limit * 0.8 < got << 20 < limit, (device, got)
        print(f"GPU {device}: {got} MiB of {limit >> 20} before it is refused", flush=True)


def peer():
    a = torch.arange(1 << 24, device="cuda:0", dtype=torch.float32)
    b = a.to("cuda:1")
    assert torch.equal(b.cpu(), a.cpu())
    print(f"peer copy is right; peer access: {torch.cuda.can_device_access_peer(0, 1)}", flush=True)


def reduce_in(rank, port):
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("nccl", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    x = torch.full((1 << 22,), float(rank + 1), device=f"cuda:{rank}")
    dist.all_reduce(x)
    assert x[0].item() == 3.0 and x[-1].item() == 3.0
    free, total = torch.cuda.mem_get_info()
    print(f"rank {rank}: the sum is right; {free / GIB:.2f} of {total / GIB:.0f} GiB free", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def allreduce():
    torch.multiprocessing.spawn(reduce_in, args=(29511,), nprocs=2)
    print("all-reduce of two processes under quotas: right", flush=True)


def now():
    """In seconds, by a clock that nobody makes faster or slower."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def rate_of(device, begin, seconds, rates):
    """Kernels of a fixed number of cycles, about a millisecond: how many a second."""
    torch.cuda.set_device(device)
    waiting, count = deque(), 0
    while now() < begin + seconds:
        torch.cuda._sleep(1_500_000)
        end = torch.cuda.Event(blocking=True)
        end.record()
        waiting.append(end)
        if len(waiting) == 8:
            waiting.popleft().synchronize()
            count += now() > begin
    rates[device] = count / seconds


def shares():
    """Both GPUs at once, by one process."""
    rates, begin = {}, now() + 2  # contexts, and clocks
    threads = [threading.Thread(target=rate_of, args=(device, begin, 5, rates)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"rates {rates[0]:.1f} {rates[1]:.1f}", flush=True)


if __name__ == "__main__":
    {"totals": totals, "fill": fill, "peer": peer, "allreduce": allreduce, "shares": shares}[sys.argv[1]]()
