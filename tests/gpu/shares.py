"""shares.py [--begin=S] SECONDS KIND...: steps per second of PyTorch's and JAX's usual work, in the words of bench/shares.

A line for each kind: its name; share, the steps of a second; windows, those of each second by itself, of which the step
that is cut in two by its end counts in part; cpu, in percent. Some steps are always queued, so that the GPU is never
idle for want of the next; their ends are waited for one by one. With --begin, the first kind is measured from that time
of day on, in seconds, once it is warm; of each of its windows the first part is left out, in which a quota may change.

Matrices are of zeros: those take so little power that the card's clock is the same whether it has much to do or little.
"""

import argparse
import bisect
import os
import time
from collections import deque

AHEAD = {"train": 2, "inference": 4, "inference-small": 4, "decode": 1}  # steps in flight, else 8; more kernels than the driver queues would be waited for
CHANGE_S = 0.25  # until a quota that changes at a window's begin holds, and what was queued before is done
WARM_S = 0.5  # clocks, and what is chosen or compiled at the first steps


def torch_matmul():
    import torch

    a = torch.zeros(4096, 4096, device="cuda", dtype=torch.bfloat16)
    b, out = torch.zeros_like(a), torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def transformer(torch):
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()


def torch_train():
    import torch

    model = transformer(torch)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.zeros(64, 256, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    return step


def torch_infer(batch):
    import torch

    model = transformer(torch).eval().half()
    x = torch.zeros(batch, 256, 512, device="cuda", dtype=torch.float16)

    def step():
        with torch.inference_mode():
            model(x)

    return step


def torch_graph():
    import torch

    a = torch.zeros(1024, 1024, device="cuda", dtype=torch.bfloat16)
    b, out = torch.zeros_like(a), torch.empty_like(a)
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            torch.matmul(a, b, out=out)
    return graph.replay


def torch_decode():
    """As a language model that makes one token after the other: short kernels, and a look at each result."""
    import torch

    layers = [torch.zeros(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(64)]
    first = torch.zeros(1, 4096, device="cuda", dtype=torch.bfloat16)

    def step():
        x = first
        for layer in layers:
            x = torch.nn.functional.silu(x @ layer)
        return x.argmax().item

    return step


def with_events(step):
    """A step that returns what waits for its end."""
    import torch

    def stepped():
        step()
        end = torch.cuda.Event(blocking=True)
        end.record()
        return end.synchronize

    return stepped


def jax_jit():
    import jax
    import jax.numpy as jnp

    w = jnp.zeros((4096, 4096), dtype=jnp.bfloat16)
    several = jax.jit(lambda x: jax.lax.fori_loop(0, 8, lambda _, y: jnp.tanh(y @ w), x))
    last = [w]

    def step():
        last[0] = several(last[0])
        return last[0].block_until_ready

    return step


KINDS = {
    "matmul": lambda: with_events(torch_matmul()),
    "train": lambda: with_events(torch_train()),
    "inference": lambda: with_events(torch_infer(256)),
    "inference-small": lambda: with_events(torch_infer(64)),  # takes all of a processor to feed the GPU
    "decode": torch_decode,
    "graph": lambda: with_events(torch_graph()),
    "jit": jax_jit,
}


def now():
    """In seconds, by a clock that runs as the GPU's does: nobody makes it faster or slower to put the time right."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def run(step, seconds, ahead):
    """The times at which steps were over, and the processor time that went by."""
    ends, waiting = [], deque()
    start, cpu = now(), time.process_time()
    while now() < start + seconds:
        waiting.append(step())
        if len(waiting) == ahead:
            waiting.popleft()()
            ends.append(now() - start)
    used = time.process_time() - cpu
    while waiting:  # of these, nobody looked when they were over
        waiting.popleft()()
    return ends, used / seconds


def steps_until(ends, time_s):
    """How many there were, and the part of the next that would be over if it went on evenly."""
    count = bisect.bisect_right(ends, time_s)
    if count == len(ends):
        return count
    before = ends[count - 1] if count else 0
    return count + (time_s - before) / (ends[count] - before)


def rates(ends, seconds, leave_out):
    return [
        (steps_until(ends, i + 1) - steps_until(ends, i + leave_out)) / (1 - leave_out) for i in range(int(seconds))
    ]


def main():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parser = argparse.ArgumentParser()
    parser.add_argument("--begin", type=float, default=0)
    parser.add_argument("seconds", type=float)
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    arguments = parser.parse_args()
    seconds = arguments.seconds
    for name in arguments.kinds:
        step = KINDS[name]()
        ahead = AHEAD.get(name, 8)
        run(step, WARM_S, ahead)
        time.sleep(max(0, arguments.begin - time.time()))
        ends, cpu = run(step, seconds, ahead)
        rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0
        windows = ",".join(f"{each:.2f}" for each in rates(ends, seconds, CHANGE_S if arguments.begin else 0))
        print(f"name={name} share={rate:.3f} windows={windows} cpu={cpu * 100:.1f}", flush=True)


main()
