"""client.py PORT get PATH FILE [HEADER...]: asks, writes the answer to FILE, and prints its status.
client.py PORT raw TEXT: sends TEXT as it is, and prints the first line of the answer.
client.py PORT hold COUNT SECONDS: opens so many connections that say nothing, and prints how many
    have ended after so long.
client.py PORT drip SECONDS: sends a byte of a request now and then, and prints "ended" if the
    connection ends within that time.
client.py PORT flood SECONDS: opens connections and sends garbage as fast as it can, for so long.
HTTPS=CERTIFICATE in the environment: over TLS, with that as the authority."""

import http.client
import os
import socket
import ssl
import sys
import time

HOST = "127.0.0.1"


def get(port, path, file, *headers):
    authority = os.environ.get("HTTPS")
    if authority:
        context = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(HOST, port, timeout=20, context=context)
    else:
        connection = http.client.HTTPConnection(HOST, port, timeout=20)
    method = os.environ.get("METHOD", "GET")
    connection.request(method, path, headers=dict(header.split(": ", 1) for header in headers))
    answer = connection.getresponse()
    with open(file, "wb") as out:
        out.write(answer.read())
    print(answer.status)


def raw(port, text):
    with socket.create_connection((HOST, port), timeout=20) as connection:
        connection.sendall(text.encode().decode("unicode_escape").encode("latin-1"))
        try:
            print(connection.makefile("rb").readline().decode("latin-1").strip())
        except ConnectionError:
            print()


def has_ended(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def hold(port, count, seconds):
    held = [socket.create_connection((HOST, port), timeout=20) for _ in range(int(count))]
    time.sleep(float(seconds))
    print(sum(has_ended(connection) for connection in held))


def drip(port, seconds):
    end = time.monotonic() + float(seconds)
    with socket.create_connection((HOST, port), timeout=20) as connection:
        try:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            while time.monotonic() < end:
                connection.setblocking(True)
                connection.sendall(b"x")
                if has_ended(connection):
                    print("ended")
                    return
                time.sleep(0.2)
        except ConnectionError:
            print("ended")


def flood(port, seconds):
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        try:
            with socket.create_connection((HOST, port), timeout=1) as connection:
                connection.sendall(os.urandom(2000))
        except OSError:
            pass


what = {"get": get, "raw": raw, "hold": hold, "drip": drip, "flood": flood}[sys.argv[2]]
what(int(sys.argv[1]), *sys.argv[3:])
