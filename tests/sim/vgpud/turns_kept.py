"""turns_kept.py VGPUD CONFIG SOCKET REGION UUID: starts vgpud as systemd does, keeps the
descriptors that vgpud wants kept, kills vgpud, and starts it again with them: it has the same file
and the same socket, for which a program that asks meanwhile waits. Like systemd, the test keeps several
descriptors of one name. Descriptors that vgpud cannot use do not keep it from starting."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile

vgpud, config, *ask = sys.argv[1:]
path = ask[0]
file_name = "turns-" + ask[2]
directory = tempfile.mkdtemp()
notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notified.bind(os.path.join(directory, "notify"))
notified.settimeout(20)
os.environ["NOTIFY_SOCKET"] = os.path.join(directory, "notify")
kept = []  # (name, descriptor)


def names():
    return [name for name, _ in kept]


def hear():
    """One notification; what it wants kept, or kept no more."""
    message, fds, _, _ = socket.recv_fds(notified, 4096, 4)
    lines = message.decode().split("\n")
    name = [line[7:] for line in lines if line.startswith("FDNAME=")]
    if "FDSTOREREMOVE=1" in lines:
        kept[:] = [one for one in kept if one[0] != name[0]]
    if "FDSTORE=1" in lines:
        assert len(fds) == 1
        kept.append((name[0], fds[0]))
    return lines


def start():
    child = os.fork()
    if child == 0:
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(kept)), LISTEN_FDNAMES=":".join(names()))
        high = [os.dup2(os.dup(fd), 100 + i) for i, (_, fd) in enumerate(kept)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)
            os.set_inheritable(3 + i, True)
        os.closerange(3 + len(high), 200)
        os.execv(vgpud, [vgpud, "--config", config])
    return child


def start_until_ready():
    child = start()
    while "READY=1" not in hear():
        pass
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def answer():
    program = os.path.join(os.path.dirname(__file__), "turns.py")
    return subprocess.Popen([sys.executable, program, "identity"] + ask, stdout=subprocess.PIPE)


child = start_until_ready()
try:
    first = answer().communicate()[0]
    while file_name not in names():
        hear()
    assert sorted(names()) == [file_name, "turns-socket"], kept
    socket_before = os.stat(path).st_ino
    for _ in range(2):
        end(child)
        waiting = answer()  # connects, as somebody listens
        child = start_until_ready()
        assert first and waiting.communicate()[0] == first
        assert os.stat(path).st_ino == socket_before
    # A socket that was removed is made again, and kept instead of the other.
    end(child)
    os.unlink(path)
    child = start_until_ready()
    assert answer().communicate()[0] == first
    assert sorted(names()) == [file_name, "turns-socket"], kept
    # A second socket, a file that is not sealed, and one of a GPU without a name.
    end(child)
    spare = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spare.bind(os.path.join(directory, "spare"))
    spare.listen()
    kept.append(("turns-socket", spare.fileno()))
    kept.append(("turns-GPU-other", os.memfd_create("other")))
    kept.append(("turns-", os.memfd_create("unnamed")))
    child = start_until_ready()
    assert answer().communicate()[0] == first
    # A file of another version is replaced.
    end(child)
    os.pwrite(dict(kept)[file_name], struct.pack("=I", 77), 8)
    child = start_until_ready()
    assert answer().communicate()[0] not in (b"", first)
finally:
    end(child)
    subprocess.run(["rm", "-rf", directory], check=True)
