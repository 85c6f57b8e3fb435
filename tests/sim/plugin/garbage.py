"""Whoever can connect sends anything: the plugin goes on, and the kubelet is not kept out."""
import os
import random
import socket

import fake
from fake import SLICE, World

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """A header without indexing, as HPACK has it."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def headers(path, authority):
    return b"".join(literal(*pair) for pair in [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority),
        ("content-type", "application/grpc"), ("te", "trailers")])


def request(path, authority, message):
    return (PREFACE + SETTINGS + frame(1, 4, 1, headers(path, authority)) +
            frame(0, 1, 1, message))


def frames(data):
    """(kind, flags, stream, payload) of those that are whole."""
    found, at = [], 0
    while at + 9 <= len(data):
        end = at + 9 + int.from_bytes(data[at:at + 3], "big")
        if end > len(data):
            break
        found.append((data[at + 3], data[at + 4], int.from_bytes(data[at + 5:at + 9], "big"),
                      data[at + 9:end]))
        at = end
    return found


def read_all(connection, until_answered=False):
    """What comes until the plugin ends the connection, or until the call is answered."""
    data = b""
    while True:
        try:
            more = connection.recv(65536)
        except ConnectionError:
            break
        data += more
        answered = any(stream == 1 and flags & 1 for _, flags, stream, _ in frames(data))
        if not more or (until_answered and answered):
            break
    return data


def start(world):
    world.configure(SLICE)
    world.kubelet.start()
    world.start()
    path = world.kubelet.wait()["vgpu.dev/slice-8g-30c"]
    endpoint = fake.Endpoint(path)
    lists = endpoint.watch()
    return path, endpoint, sorted(lists.get(timeout=fake.PATIENCE_S)), lists


def open_files(world):
    return len(os.listdir(f"/proc/{world.plugin.pid}/fd"))


def goes_on(world, endpoint, devices, lists):
    assert world.plugin.poll() is None, "the plugin ended"
    assert len(endpoint.allocate([devices[0]])) == 1
    assert lists.empty(), "the kubelet's stream ended"


def authorities():
    """What kubelets of several versions write, none of which is a host."""
    with World() as world:
        path, *_ = start(world)
        for authority in [path, "localhost", path.replace("/", "%2F"), "", "\x7f"]:
            connection = fake.dial(path)
            connection.sendall(request(fake.API + "GetDevicePluginOptions", authority, bytes(5)))
            bodies = [f[3] for f in frames(read_all(connection, True)) if f[0] == 0]
            assert b"".join(bodies) == b"\0\0\0\0\4\x08\x01\x10\x01", f"{authority}: {bodies}"
            connection.close()


def garbage():
    with World() as world:
        path, endpoint, devices, lists = start(world)
        chance = random.Random(20)
        before = open_files(world)
        whole = request(fake.API + "Allocate", "localhost", bytes(5))
        for turn in range(400):
            data = bytearray(whole)
            if turn % 4 == 0:
                data = bytearray(chance.randbytes(200))
            elif turn % 4 == 1:
                data = PREFACE + SETTINGS + chance.randbytes(200)
            else:
                for _ in range(chance.randint(1, 8)):
                    data[chance.randrange(len(PREFACE), len(data))] = chance.randrange(256)
            connection = fake.dial(path)
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
            except ConnectionError:
                pass
            connection.close()
        fake.until(lambda: open_files(world) <= before, "closed connections")
        goes_on(world, endpoint, devices, lists)


def messages():
    """Whole frames, whose messages are none."""
    with World() as world:
        path, endpoint, devices, lists = start(world)
        chance = random.Random(21)
        for method in ["GetPreferredAllocation", "Allocate", "PreStartContainer"]:
            for turn in range(200):
                body = chance.randbytes(chance.randrange(60))
                try:
                    endpoint.call(method, body)
                except fake.grpc.RpcError as error:
                    assert error.code() == fake.grpc.StatusCode.INVALID_ARGUMENT, error
        # A length that is wrong, compression, no message, and one that is too long.
        for body in [b"\0\0\0\0\5x", b"\1\0\0\0\1x", b"", b"\0"]:
            connection = fake.dial(path)
            connection.sendall(request(fake.API + "Allocate", "localhost", body))
            kinds = [f[0] for f in frames(read_all(connection, True)) if f[2] == 1]
            assert kinds == [1], f"{body}: {kinds}"  # no DATA
            connection.close()
        try:
            endpoint.call("Allocate", bytes(2 * 1024 * 1024))
        except fake.grpc.RpcError as error:
            assert error.code() == fake.grpc.StatusCode.RESOURCE_EXHAUSTED, error
        else:
            raise AssertionError("2 MiB are taken")
        goes_on(world, endpoint, devices, lists)
        assert world.directories() and len(world.directories()) == 1


def many_connections():
    with World() as world:
        path, endpoint, devices, lists = start(world)
        held = []
        for _ in range(300):
            held.append(fake.dial(path))
            if len(held) % 2:
                held[-1].sendall(PREFACE + SETTINGS)
        fake.until(lambda: open_files(world) < 60, "connections that are ended")
        goes_on(world, endpoint, devices, lists)
        # Another kubelet gets in, and so do calls one after the other.
        for _ in range(100):
            other = fake.Endpoint(path)
            other.call("GetDevicePluginOptions")
            other.close()
        for connection in held:
            connection.close()
        goes_on(world, endpoint, devices, lists)


def a_client_that_does_not_read():
    with World() as world:
        path, endpoint, devices, lists = start(world)
        connection = fake.dial(path)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(PREFACE + SETTINGS)
        connection.settimeout(0.2)
        try:
            for _ in range(20000):
                connection.sendall(frame(6, 0, 0, bytes(8)))  # PING, which is answered
        except (TimeoutError, ConnectionError):
            pass
        goes_on(world, endpoint, devices, lists)
        connection.close()


fake.run([authorities, garbage, messages, many_connections, a_client_that_does_not_read])
