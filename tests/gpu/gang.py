"""One rank of a job on several GPUs, for gang.sh: gang.py KIND SECONDS; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
in the environment. Prints steps a second, and how long four steps took in the middle and at the slowest: four steps in the
middle are without a pause in a slice, so they say what the library costs while a gang is open. The kind `single` is one process that
has all GPUs. With GANG_PAUSE_MS in the environment, all ranks sleep for so long after as much time at work: what pauses cost
a host without any slice."""

import os
import sys
import time

import torch
import torch.distributed as dist

KIND, SECONDS = sys.argv[1], float(sys.argv[2])
PAUSE = float(os.environ.get("GANG_PAUSE_MS", 0)) / 1e3
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def transformer():
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4).cuda()


def training(wrap):
    model = wrap(transformer())
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(16, 256, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def ddp():
    return training(lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()]))


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    return training(FullyShardedDataParallel)


def tensor_parallel():
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        for _ in range(10):
            b = a @ a * 0.01
            dist.all_reduce(b)

    return step


def graph():
    """The same, captured."""
    plain = tensor_parallel()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        plain()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        plain()
    return captured.replay


def pipeline():
    """Eight small batches from each rank to the next, as pipelines do."""
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step():
        for _ in range(8):
            if RANK > 0:
                dist.recv(x, RANK - 1)
            y = a @ x * 0.01
            if RANK < WORLD - 1:
                dist.send(y, RANK + 1)

    return step


def single():
    """One thread that serves all GPUs."""
    devices = range(torch.cuda.device_count())
    a = [torch.randn(2048, 2048, device=f"cuda:{i}", dtype=torch.bfloat16) for i in devices]

    def step():
        for _ in range(10):
            b = [x @ x * 0.01 for x in a]
            torch.cuda.nccl.all_reduce(b)

    return step


def late():
    """Rank 1's host pauses for 20 ms now and then, as for data."""
    plain, count = tensor_parallel(), [0]

    def step():
        count[0] += 1
        if RANK == 1 and count[0] % 20 == 0:
            time.sleep(0.02)
        plain()

    return step


KINDS = {
    "ddp": ddp,
    "fsdp": fsdp,
    "tp": tensor_parallel,
    "graph": graph,
    "pipeline": pipeline,
    "single": single,
    "late": late,
}


def synchronize_all():
    for device in range(torch.cuda.device_count()) if WORLD == 1 else [torch.cuda.current_device()]:
        torch.cuda.synchronize(device)


def goes_on(until, stop):
    """All ranks end at the same step."""
    if WORLD == 1:
        return time.time() < until
    stop.fill_(0.0 if time.time() < until else 1.0)
    dist.broadcast(stop, 0)
    return stop.item() == 0


def main():
    visible = torch.cuda.device_count()
    torch.cuda.set_device(RANK % visible)
    if WORLD > 1:
        dist.init_process_group("nccl", rank=RANK, world_size=WORLD)
    step = KINDS[KIND]()
    for _ in range(5):
        step()
    synchronize_all()
    if WORLD > 1:
        dist.barrier()
    stop = torch.zeros(1, device="cuda")
    began, count, took_each = time.time(), 0, []
    awake = began
    while goes_on(began + SECONDS, stop):
        from_time = time.time()
        for _ in range(4):
            step()
        synchronize_all()
        count += 4
        took_each.append(time.time() - from_time)
        if PAUSE and time.time() - awake >= PAUSE:
            time.sleep(PAUSE)
            awake = time.time()
    took = time.time() - began
    middle, worst = sorted(took_each)[len(took_each) // 2] * 1e3, max(took_each) * 1e3
    print(
        f"rank {RANK} {KIND}: rate {count / took:.2f} steps a second, median four {middle:.2f} ms, slowest four {worst:.0f} ms",
        flush=True,
    )
    # A captured graph that outlives NCCL's communicators makes their end hang.
    del step
    if WORLD > 1:
        dist.destroy_process_group()


main()
