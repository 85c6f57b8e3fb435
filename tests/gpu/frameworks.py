"""frameworks.py NAME: fills its slice as programs of that framework do, works a little, prints "NAME full" and waits
for a line: then somebody looks from outside. Then it gives everything back, prints "NAME rest", waits again, and ends.
Names: torch-expandable, torch-async, torch-graphs, jax, cupy, cupy-async, triton. Exits with 77 where it is not
installed."""

import gc
import importlib.util
import os
import sys

MIB = 1 << 20
name = sys.argv[1]


def reach(state):
    print(name, state, flush=True)
    sys.stdin.readline()


def fill(take, smallest):
    """Takes ever smaller pieces until none is to be had."""
    held, size = [], 256 * MIB
    while size >= smallest:
        try:
            held.append(take(size))
        except Exception as error:  # each framework has its own
            text = f"{type(error).__name__} {error}".lower()
            if "memory" not in text:
                raise
            size //= 2
    return held


def need(module):
    if importlib.util.find_spec(module) is None:
        sys.exit(77)


def torch_program():
    backend = {"torch-expandable": "expandable_segments:True", "torch-async": "backend:cudaMallocAsync"}.get(name)
    if backend:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = backend
    import torch

    a = torch.randn(1024, 1024, device="cuda")
    assert torch.isfinite((a @ a).sum())
    graph = None
    if name == "torch-graphs":
        x = torch.randn(4096, 4096, device="cuda")
        (x @ x).relu()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x @ x).relu() + x
        graph.replay()
        torch.cuda.synchronize()
        assert torch.isfinite(y.sum())
    held = fill(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"), 2 * MIB)
    if graph:
        graph.replay()
    torch.cuda.synchronize()
    reach("full")
    del held
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    reach("rest")


def jax_program():
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.85")
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    step = jax.jit(lambda m: jnp.tanh(m @ m) + m)
    for _ in range(3):
        a = step(a)
    a.block_until_ready()
    # It waits for 10 s before each refusal.
    held = fill(lambda size: jnp.zeros(size, dtype=jnp.uint8).block_until_ready(), 256 * MIB)
    reach("full")
    del held
    reach("rest")


def cupy_program():
    import cupy

    if name == "cupy-async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    a = cupy.random.rand(1024, 1024)
    assert float((a @ a).sum()) > 0
    held = fill(lambda size: cupy.empty(size, dtype=cupy.uint8), 2 * MIB)
    cupy.cuda.Device().synchronize()
    reach("full")
    del held
    gc.collect()
    if name == "cupy":
        cupy.get_default_memory_pool().free_all_blocks()
    cupy.cuda.Device().synchronize()
    reach("rest")


def triton_program():
    need("triton")
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    n = 1 << 20
    x, y, z = (torch.randn(n, device="cuda") for _ in range(3))
    add[(n // 1024,)](x, y, z, n, BLOCK=1024)
    assert torch.allclose(z, x + y)
    held = fill(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"), 2 * MIB)
    torch.cuda.synchronize()
    reach("full")
    del held
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    reach("rest")


need(name.split("-")[0])
{"torch": torch_program, "jax": jax_program, "cupy": cupy_program, "triton": triton_program}[name.split("-")[0]]()
