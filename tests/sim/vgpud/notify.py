"""notify.py VGPUD CONFIG: starts vgpud as systemd does, with a socket for its notifications and one
that listens, and prints what it notified of, a line each, until it has ended."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

vgpud, config = sys.argv[1:]
directory = tempfile.mkdtemp()
notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notified.bind(os.path.join(directory, "notify"))
notified.settimeout(20)
listener = socket.create_server(("127.0.0.1", 0))


def hand_over():
    os.dup2(os.dup(listener.fileno()), 3)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.execv(vgpud, [vgpud, "--config", config])


def wait_for(words):
    while True:
        found = notified.recv(4096).decode().split("\n")
        print(" ".join(line.split("=")[0] if "USEC" in line else line for line in found), flush=True)
        if words in found:
            return


os.environ.update(NOTIFY_SOCKET=os.path.join(directory, "notify"), LISTEN_FDS="1", WATCHDOG_USEC="30000000")
child = os.fork()
if child == 0:
    hand_over()
try:
    wait_for("READY=1")
    wait_for("WATCHDOG=1")
    began = time.monotonic()
    wait_for("WATCHDOG=1")
    assert time.monotonic() - began < 10
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % listener.getsockname()[1], timeout=10) as answer:
        assert answer.status == 200
    os.kill(child, signal.SIGHUP)
    wait_for("READY=1")
    os.kill(child, signal.SIGTERM)
    wait_for("STOPPING=1")
    assert os.waitpid(child, 0)[1] == 0
except BaseException:
    os.kill(child, signal.SIGKILL)
    raise
finally:
    subprocess.run(["rm", "-rf", directory], check=True)
