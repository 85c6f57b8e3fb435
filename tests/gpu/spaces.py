"""spaces.py NAME [MIB]: fills its slice with PyTorch, with so much at most, says how far it came, and fills it up with
each line of its input, for a second: one of two that are in pid namespaces of their own, and share the slice."""

import os
import sys
import time

import torch

STEP = 64 << 20
taken = []


def fill(most=1 << 60):
    while len(taken) * STEP < most:
        try:
            taken.append(torch.empty(STEP, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            return


a = torch.randn(512, 512, device="cuda")
torch.cuda.synchronize()
(a @ a).sum().item()
fill(int(sys.argv[2]) << 20 if len(sys.argv) > 2 else 1 << 60)
print(f"{sys.argv[1]} full {len(taken) * STEP >> 20} pid {os.getpid()}", flush=True)
for _ in sys.stdin:
    end = time.monotonic() + 1
    while time.monotonic() < end:
        fill()
    right = all(int(t[-1].fill_(i % 251)) == i % 251 for i, t in enumerate(taken))
    print(f"{sys.argv[1]} again {len(taken) * STEP >> 20} {'right' if right else 'WRONG'}", flush=True)
