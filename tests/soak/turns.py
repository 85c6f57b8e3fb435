"""turns.py BUILD MINUTES [SEED]: slices that come, go, die and are changed, on the simulated driver,
while vgpud is killed, stopped and started again. Fails if a program is stuck, or has less than 0.9
of its share in any 10 s in which it was there and its limit stayed. Time in which a program's
thread was ready and had no processor is not counted."""

import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

build, minutes = os.path.abspath(sys.argv[1]), float(sys.argv[2])
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
chance = random.Random(seed)
root = tempfile.mkdtemp()
SLICES, MOST, WINDOW, STUCK, LEAST = 5, 90, 10, 10, 0.9
KERNELS_US = (200, 1000, 5000, 20000)
started, socket_path = [], root + "/vgpud.sock"
os.environ.update(
    VGPU_STATE=root + "/state",
    VGPU_SIM_STATE=root + "/sim",
    VGPU_SIM_GPUS="1x80G",
    VGPU_SOCKET=socket_path,
    VGPU_LIBRARY=build + "/libvgpu.so",
    LD_LIBRARY_PATH=build + "/sim",
)
os.environ.pop("VGPU_TURNS", None)


class Slice:
    count = 0

    def __init__(self, cores):
        Slice.count += 1
        self.name, self.cores = "s%d" % Slice.count, cores
        self.kernel_us = chance.choice(KERNELS_US)
        self.file = "%s/%s" % (root, self.name)
        self.samples = []  # (time, given, delayed) since its limit changed last
        self.launches, self.seen = 0, time.monotonic()
        self.log = open(self.file + ".err", "wb")
        self.process = subprocess.Popen(
            [build + "/vgpu", "run", "--name", self.name, "--gpus", "0", "--memory", "1G", "--cores", str(cores)]
            + ["--", build + "/tests/soak/soak_slice", self.file, str(self.kernel_us)],
            stdout=self.log,
            stderr=self.log,
        )
        started.append(self.process)

    def end(self, number):
        """Of the program; vgpu run ends with it."""
        try:
            with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as file:
                children = [int(pid) for pid in file.read().split()]
            for pid in children or [self.process.pid]:
                os.kill(pid, number)
        except OSError:
            pass  # it has ended
        self.process.wait(30)

    def change(self, cores):
        subprocess.run([build + "/vgpu", "set", self.name, "--cores", str(cores)], check=True, timeout=30, stdout=subprocess.DEVNULL)
        self.cores, self.samples = cores, []

    def sample(self):
        """The worst part of its share in the last 10 s, and how much of that time it had a processor."""
        now = time.monotonic()
        try:
            with open(self.file, "rb") as file:
                given, delayed, launches = struct.unpack("<QQQ", file.read(24))
        except (OSError, struct.error):
            given = delayed = launches = 0
        if launches != self.launches:
            self.launches, self.seen = launches, now
        if launches:
            self.samples.append((now, given, delayed))
        self.samples = self.samples[-(WINDOW + 2) :]
        # The first second is that of a slice that begins, or follows its new limit.
        if len(self.samples) < WINDOW + 2:
            return None
        (began, before, had), (ended, after, have) = self.samples[1], self.samples[-1]
        elapsed, missed = ended - began, (have - had) / 1e9
        share = (after - before) / 1e9 * 100 / self.cores
        return share / elapsed, share / max(elapsed - missed, elapsed / 2), missed / elapsed


def start_vgpud():
    with open(root + "/vgpud.log", "ab") as log:
        process = subprocess.Popen([build + "/vgpud", "--config", root + "/vgpud.conf"], stdout=log, stderr=log)
    started.append(process)
    return process


def room(slices, but=None):
    return MOST - sum(s.cores for s in slices if s is not but)


def act(slices):
    """One thing that happens; its name."""
    what = chance.choice(("come", "come", "go", "die", "set", "set", "kill", "stop"))
    global vgpud, goes_on_at
    if what == "come" and len(slices) < SLICES and room(slices) >= 10:
        slices.append(Slice(chance.randrange(10, min(room(slices), 50) + 1)))
    elif what in ("go", "die") and len(slices) > 2:
        gone = slices.pop(chance.randrange(len(slices)))
        gone.end(signal.SIGKILL if what == "die" else signal.SIGTERM)
    elif what == "set" and slices:
        changed = chance.choice(slices)
        changed.change(chance.randrange(10, min(room(slices, changed), 60) + 1))
    elif what == "kill":
        vgpud.kill()
        vgpud.wait()
        time.sleep(chance.choice((0, 0.5)))
        vgpud = start_vgpud()
        goes_on_at = 0
    elif what == "stop" and not goes_on_at:
        vgpud.send_signal(signal.SIGSTOP)
        goes_on_at = time.monotonic() + chance.uniform(1, 8)
    else:
        return None
    return what


print("seed", seed, flush=True)
with open(root + "/vgpud.conf", "w") as file:
    file.write('metrics = { listen = "" }\nturns = { socket = "%s" }\n' % socket_path)
vgpud, goes_on_at = start_vgpud(), 0
slices, counts, windows, fair, wrong = [], {}, [], [], []
try:
    end = time.monotonic() + minutes * 60
    acts_at = 0
    while time.monotonic() < end:
        if time.monotonic() >= acts_at:
            what = act(slices)
            if what:
                counts[what] = counts.get(what, 0) + 1
                acts_at = time.monotonic() + chance.choice((0.5, 2, 8, 14))
        if goes_on_at and time.monotonic() >= goes_on_at:
            vgpud.send_signal(signal.SIGCONT)
            goes_on_at = 0
        time.sleep(1)
        for one in slices:
            if one.process.poll() is not None:
                raise SystemExit("%s ended: %s" % (one.name, open(one.file + ".err").read()))
            found = one.sample()
            if time.monotonic() - one.seen > STUCK:
                wrong.append("%s is stuck" % one.name)
                one.seen = time.monotonic()
            if not found:
                continue
            windows.append(found[0])
            fair.append(found[1])
            if found[1] < LEAST:
                wrong.append(
                    "%s, %d %% by kernels of %d us beside %s: %.3f of its share, %.3f of the time that it had a processor (%.0f %% it had none)"
                    % (one.name, one.cores, one.kernel_us, [(s.cores, s.kernel_us) for s in slices if s is not one], *found[:2], 100 * found[2])
                )
                print("  " + wrong[-1], flush=True)
    print("what happened:", " ".join("%s %d" % item for item in sorted(counts.items())))
    if windows:
        fair.sort()
        print("%d windows: the least %.3f of its share; of the time with a processor %.3f, %.3f in 1 of 100, %.3f in the middle"
              % (len(windows), min(windows), fair[0], fair[len(fair) // 100], fair[len(fair) // 2]))
    with open(root + "/vgpud.log") as file:
        said = [line for line in file if not re.search(r"serves|/metrics", line)]
    print("vgpud said %d lines" % len(said), "".join(sorted(set(said))[:5]), sep="\n")
finally:
    for one in slices:
        one.end(signal.SIGKILL)
    for process in started:
        if process.poll() is None:
            process.kill()
    shutil.rmtree(root, ignore_errors=True)
print("FAILED: %d" % len(wrong) if wrong else "passed")
sys.exit(bool(wrong))
