"""A PyTorch program as people write them, in a slice of 8 GiB. Prints one line a check; exits 1 if one fails."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

GIB = 1 << 30
failures = 0


def check(what, holds, figure=""):
    global failures
    failures += not holds
    print(f"  {'ok  ' if holds else 'FAIL'} {what} {figure}", flush=True)


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return torch.full((512,), float(i % 7)), torch.tensor(float(i % 7))


def train():
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = last = None
    for _ in range(6):
        for x, y in DataLoader(Numbers(), batch_size=32, num_workers=2, pin_memory=True):
            loss = (model(x.cuda(non_blocking=True)).squeeze(1) - y.cuda()).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            last = loss.item()
            first = last if first is None else first
    return first, last


def main():
    free, total = torch.cuda.mem_get_info()
    check("mem_get_info shows the slice", total == 8 * GIB and free < total,
          f"{free / GIB:.2f} of {total / GIB:.2f} GiB")
    check("device properties show the slice",
          torch.cuda.get_device_properties(0).total_memory == 8 * GIB)

    a = torch.randn(2048, 2048, device="cuda")
    b = torch.randn(2048, 2048, device="cuda")
    error = (a @ b).double().sub(a.double() @ b.double()).abs().max().item()
    check("a matrix product is right", error < 0.5, f"(largest error {error:.3f})")

    first, last = train()
    check("training with DataLoader workers learns", last < first, f"({first:.2f} to {last:.2f})")

    try:
        torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
        check("9 GiB are refused", False)
    except torch.OutOfMemoryError:
        check("9 GiB are refused", True)

    held = []
    try:
        while True:
            held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    check("it fills the slice", len(held) * 64 > 7168, f"({len(held) * 64} MiB)")
    if len(sys.argv) > 1:  # somebody wants to look from outside
        print("full", flush=True)
        sys.stdin.readline()
    held.clear()
    torch.cuda.empty_cache()
    check("and goes on after OutOfMemoryError", torch.isfinite((a @ b).sum()).item())


main()
sys.exit(failures != 0)
