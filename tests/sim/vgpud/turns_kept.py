"""turns_kept.py VGPUD CONFIG SOCKET REGION UUID: starts vgpud as systemd does, keeps the
descriptors that vgpud wants kept, kills vgpud, and starts it again with them: it has the same file
and the same socket, for which a program that asks meanwhile waits."""

import os
import signal
import socket
import subprocess
import sys
import tempfile

vgpud, config, *ask = sys.argv[1:]
path = ask[0]
directory = tempfile.mkdtemp()
notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notified.bind(os.path.join(directory, "notify"))
notified.settimeout(20)
os.environ["NOTIFY_SOCKET"] = os.path.join(directory, "notify")
kept = {}


def hear():
    """One notification; what it wants kept, or kept no more."""
    message, fds, _, _ = socket.recv_fds(notified, 4096, 4)
    lines = message.decode().split("\n")
    name = [line[7:] for line in lines if line.startswith("FDNAME=")]
    if "FDSTOREREMOVE=1" in lines:
        kept.pop(name[0], None)
    if "FDSTORE=1" in lines:
        assert len(fds) == 1
        kept[name[0]] = fds[0]
    return lines


def start():
    child = os.fork()
    if child == 0:
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(kept)), LISTEN_FDNAMES=":".join(kept))
        high = [os.dup2(os.dup(fd), 100 + i) for i, fd in enumerate(kept.values())]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
            os.set_inheritable(3 + i, True)
        os.closerange(3 + len(high), 200)
        os.execv(vgpud, [vgpud, "--config", config])
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def answer():
    program = os.path.join(os.path.dirname(__file__), "turns.py")
    return subprocess.Popen([sys.executable, program, "identity"] + ask, stdout=subprocess.PIPE)


child = start()
try:
    while "READY=1" not in hear():
        pass
    first = answer().communicate()[0]
    while "turns-" + ask[2] not in kept:
        hear()
    assert sorted(kept) == ["turns-" + ask[2], "turns-socket"], kept
    socket_before = os.stat(path).st_ino
    for _ in range(2):
        end(child)
        waiting = answer()  # connects, as somebody listens
        child = start()
        while "READY=1" not in hear():
            pass
        assert first and waiting.communicate()[0] == first
        assert os.stat(path).st_ino == socket_before
    # A socket that was removed is made again.
    end(child)
    os.unlink(path)
    child = start()
    while "READY=1" not in hear():
        pass
    assert answer().communicate()[0] == first
finally:
    end(child)
    subprocess.run(["rm", "-rf", directory], check=True)
