"""One rank of a job on several GPUs, for gang.sh: gang.py KIND SECONDS; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
in the environment. Prints steps a second, and how long four steps took in the middle and at the slowest: four steps in the
middle are without a pause in a slice, so they say what the library costs while a gang is open. The kind `single` is one process that
has all GPUs.

With GANG_SWEEP in the environment, one run goes through the phases that it names, each of SECONDS: a quota as `vgpu set
--cores` takes it, `none`, or `pause:MS`: no quota, and all ranks sleep for MS after as much time at work, which is what
pauses cost a host without any throttling. GANG_VGPU is the vgpu command and GANG_SLICE the slice. Each phase prints its
steps a second, and for each device which part of the time it was charged and throttled, in percent."""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

KIND, SECONDS = sys.argv[1], float(sys.argv[2])
PHASES = os.environ.get("GANG_SWEEP", "").split()
SETTLE = 0.8  # seconds of each phase that do not count: the bucket still has credit or debt of the phase before
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


def agreed(value):
    """Rank 0's value, in all ranks."""
    if WORLD == 1:
        return value
    word = torch.tensor([float(value)], device="cuda")
    dist.broadcast(word, 0)
    return int(word.item())


def four_steps(step):
    for _ in range(4):
        step()
    synchronize_all()


def run(step):
    began, count, took_each = time.time(), 0, []
    while agreed(time.time() < began + SECONDS):
        from_time = time.time()
        four_steps(step)
        count += 4
        took_each.append(time.time() - from_time)
    took = time.time() - began
    middle, worst = sorted(took_each)[len(took_each) // 2] * 1e3, max(took_each) * 1e3
    print(
        f"rank {RANK} {KIND}: rate {count / took:.2f} steps a second, median four {middle:.2f} ms, slowest four {worst:.0f} ms",
        flush=True,
    )


def set_cores(words):
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([os.environ["GANG_VGPU"], "set", os.environ["GANG_SLICE"], "--cores", words], env=clean, check=True)


def books():
    """Time, and (charged, throttled) of each device of the slice, in ns."""
    region = f"{os.environ['VGPU_STATE']}/{os.environ['GANG_SLICE']}/region"
    text = subprocess.run([os.environ["GANG_LEDGER"], region], check=True, capture_output=True, text=True).stdout
    words = [line.split() for line in text.splitlines()]
    return time.time(), [(int(line[2]), int(line[3])) for line in words if line[0] == "device"]


class Phase:
    """What rank 0 counts in the phase's time after SETTLE."""

    def __init__(self):
        self.count = 0
        self.at, self.then = books()

    def end(self, word):
        now, books_now = books()
        took = now - self.at
        parts = [[100 * (b - a) / took / 1e9 for a, b in zip(*pair)] for pair in zip(self.then, books_now)]
        if os.environ.get("VGPU_TRACE"):
            with open(f"{os.environ['GANG_TRACES']}/{KIND}.{word}", "w") as trace:
                subprocess.run([os.environ["GANG_VGPU"], "trace", os.environ["GANG_SLICE"]], stdout=trace, check=False)
        charged, throttled = (" ".join(f"{part[i]:.1f}" for part in parts) for i in (0, 1))
        print(f"{KIND:9} {word:9} {self.count / took:8.2f} steps a second; charged {charged}; throttled {throttled}", flush=True)


def sweep(step):
    index, word, phase, began, awake = -1, None, None, 0.0, 0.0
    while True:
        now = time.time()
        if RANK == 0 and phase and now >= began + SECONDS:
            phase.end(word)
            phase = None
        next_index = agreed(index + (index < 0 or (phase is None and now >= began + SECONDS)))
        if next_index != index:
            index = next_index
            if index == len(PHASES):
                break
            word = PHASES[index]
            if RANK == 0:
                set_cores("none" if word.startswith("pause") else word)
            agreed(0)
            began, phase = time.time(), None
            awake = began
        if RANK == 0 and not phase and time.time() >= began + SETTLE:
            phase = Phase()
        four_steps(step)
        if phase:
            phase.count += 4
        if word.startswith("pause:") and time.time() - awake >= float(word[6:]) / 1e3:
            time.sleep(float(word[6:]) / 1e3)
            awake = time.time()


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
    (sweep if PHASES else run)(step)
    # A captured graph that outlives NCCL's communicators makes their end hang.
    del step
    if WORLD > 1:
        dist.destroy_process_group()


main()
