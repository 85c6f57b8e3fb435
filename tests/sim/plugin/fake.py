"""A kubelet for the tests of vgpu-device-plugin: over grpcio, which is not our own gRPC, and with a
small codec of its own, so that no mistake of ours can hide in a twin."""
import concurrent.futures
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc

PLUGIN = os.environ["PLUGIN"]
LIBRARY = os.environ["LIBRARY"]
API = "/v1beta1.DevicePlugin/"
OPTIONS = {1: [1], 2: [1]}  # pre_start_required, get_preferred_allocation_available
PATIENCE_S = int(os.environ.get("PATIENCE_S", 60))


# -- protobuf ---------------------------------------------------------------------------------------

def varint(value):
    out = bytearray()
    while True:
        out.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def field(number, value):
    """A field: of bytes or text with its length, or of a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def take_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """The fields of a message: a list of their values for each number."""
    found, at = {}, 0
    while at < len(data):
        key, at = take_varint(data, at)
        value, at = take_varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        else:
            assert key & 7 == 0, "a wire type that the kubelet's messages have not"
        assert at <= len(data), "a field that is longer than its message"
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message, number):
    return message[number][0].decode() if number in message else ""


def entries(message, number):
    pairs = [fields(entry) for entry in message.get(number, [])]
    return {text(pair, 1): text(pair, 2) for pair in pairs}


# -- what the plugin says ---------------------------------------------------------------------------

class Container:
    """A ContainerAllocateResponse."""

    def __init__(self, data):
        message = fields(data)
        mounts = [fields(mount) for mount in message.get(2, [])]
        self.envs = entries(message, 1)
        self.mounts = {text(m, 1): (text(m, 2), m.get(3, [0])[0]) for m in mounts}
        self.devices = [text(fields(device), 1) for device in message.get(3, [])]
        self.annotations = entries(message, 4)
        self.cdi = [text(fields(device), 1) for device in message.get(5, [])]

    def host(self, inside):
        return self.mounts[inside][0]

    def name(self):
        return self.host("/etc/vgpu/policy").split("/")[-2]

    def policy(self):
        """{file: {key: value}}"""
        found = {}
        for file in os.listdir(self.host("/etc/vgpu/policy")):
            with open(self.host("/etc/vgpu/policy") + "/" + file) as lines:
                pairs = [line.split("#")[0].split("=", 1) for line in lines]
            found[file] = {p[0].strip(): p[1].strip() for p in pairs if len(p) == 2}
        return found


class Endpoint:
    """A plugin's socket, as the kubelet dials it."""

    def __init__(self, path):
        self.channel = grpc.insecure_channel("unix:" + path)

    def call(self, method, request=b"", timeout=PATIENCE_S):
        return self.channel.unary_unary(API + method)(request, timeout=timeout)

    def watch(self):
        """ListAndWatch: a queue of {ID: (health, NUMA node or None)}, which ends with None."""
        lists, stream = queue.Queue(), self.channel.unary_stream(API + "ListAndWatch")(b"")

        def read():
            try:
                for answer in stream:
                    devices = {}
                    for device in map(fields, fields(answer).get(1, [])):
                        node = None
                        if 3 in device:
                            node = fields(fields(device[3][0])[1][0]).get(1, [0])[0]
                        devices[text(device, 1)] = (text(device, 2), node)
                    lists.put(devices)
            except grpc.RpcError:
                pass
            lists.put(None)

        concurrent.futures.ThreadPoolExecutor(1).submit(read)
        return lists

    def allocate(self, *containers):
        request = b"".join(field(1, b"".join(field(1, i) for i in ids)) for ids in containers)
        return [Container(c) for c in fields(self.call("Allocate", request)).get(1, [])]

    def prefer(self, available, must, size):
        request = field(1, b"".join([field(1, i) for i in available] + [field(2, i) for i in must] +
                                    [field(3, size)]))
        answer = fields(self.call("GetPreferredAllocation", request))
        return [i.decode() for i in fields(answer[1][0]).get(1, [])]

    def begin(self, *ids):
        """PreStartContainer: None, or the error by which the container does not start."""
        try:
            self.call("PreStartContainer", b"".join(field(1, i) for i in ids))
        except grpc.RpcError as error:
            return error
        return None

    def close(self):
        self.channel.close()


# -- the kubelet ------------------------------------------------------------------------------------

class Kubelet:
    """Registration, and where `pods` is set its socket for pod resources. The directory is emptied
    as it starts."""

    def __init__(self, root, asks_first=False):
        self.dir, self.pods, self.asks_first = root + "/plugins", [], asks_first
        self.pods_socket = root + "/pods.sock"
        self.named, self.asked, self.sends = {}, threading.Semaphore(0), threading.Event()
        self.sends.set()
        self.registered = queue.Queue()

    def start(self):
        os.makedirs(self.dir, exist_ok=True)
        for name in os.listdir(self.dir):
            os.unlink(self.dir + "/" + name)
        if os.path.exists(self.pods_socket):
            os.unlink(self.pods_socket)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("v1beta1.Registration", {
                "Register": grpc.unary_unary_rpc_method_handler(self.register)}),
            grpc.method_handlers_generic_handler("v1.PodResourcesLister", {
                "List": grpc.unary_unary_rpc_method_handler(self.list)}),
        ))
        self.server.add_insecure_port("unix:" + self.dir + "/kubelet.sock")
        self.server.add_insecure_port("unix:" + self.pods_socket)
        self.server.start()
        return self

    def stop(self):
        self.server.stop(0).wait()

    def register(self, request, context):
        message = fields(request)
        assert text(message, 1) == "v1beta1", "another version"
        assert fields(message[4][0]) == OPTIONS, "other options"
        path = self.dir + "/" + text(message, 2)
        if self.asks_first:
            endpoint = Endpoint(path)
            assert fields(endpoint.call("GetDevicePluginOptions")) == OPTIONS
            endpoint.close()
        self.registered.put((text(message, 3), path))
        return b""

    def list(self, request, context):
        """pods: a list of lists of IDs, a pod each, which `named` may name by (namespace, pod, container) for its
        first ID. While `sends` is clear, the answer is made and not sent."""
        answer = b""
        for pod in self.pods:
            space, name, container = self.named.get(pod[0], ("default", "pod", "main"))
            answer += field(1, field(1, name) + field(2, space) + field(3, field(1, container) + field(
                2, field(1, "vgpu.dev/x") + b"".join(field(2, i) for i in pod))))
        self.asked.release()
        self.sends.wait(PATIENCE_S)
        return answer

    def wait(self, count=1):
        """{resource: path} of the next registrations."""
        return dict(self.registered.get(timeout=PATIENCE_S) for _ in range(count))


# -- a test's world ---------------------------------------------------------------------------------

class World:
    def __init__(self, gpus="2x80G", **kubelet):
        self.root = tempfile.mkdtemp(prefix="vgpu-plugin-")
        self.state, self.regions = self.root + "/state", self.root + "/regions"
        self.kubelet = Kubelet(self.root, **kubelet)
        self.config = self.root + "/config.yaml"
        self.log = self.root + "/log"
        self.env = dict(os.environ, VGPU_SIM_GPUS=gpus, VGPU_SIM_STATE=self.root + "/sim")
        self.plugin = None
        os.makedirs(self.kubelet.dir)

    def configure(self, slices, plugin=""):
        with open(self.config, "w") as file:
            file.write(f"version: v1\nflags:\n  plugin:\n    library: {LIBRARY}\n{plugin}"
                       f"sharing:\n  slices:\n{slices}")

    def start(self, *options, within=(), **env):
        self.plugin = subprocess.Popen(
            [*within, PLUGIN, "--config", self.config, "--kubelet", self.kubelet.dir, "--state", self.state,
             "--regions", self.regions, "--pods", self.kubelet.pods_socket, *options],
            env=dict(self.env, **env), stderr=open(self.log, "a"))
        return self.plugin

    def stop(self):
        self.plugin.send_signal(signal.SIGTERM)
        assert self.plugin.wait(PATIENCE_S) == 0, "the status after SIGTERM"

    def said(self):
        with open(self.log) as log:
            return log.read()

    def pod(self, name):
        """What is written down of whose that container is; None: nothing."""
        try:
            with open(f"{self.state}/{name}/pod") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def directories(self):
        return sorted(n for n in os.listdir(self.state) if len(n) == 32)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if self.plugin and self.plugin.poll() is None:
            self.plugin.kill()
        if kind and os.path.exists(self.log):
            print(self.said())
        shutil.rmtree(self.root, ignore_errors=True)


def until(holds, what):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "never: " + what
        time.sleep(0.02)


def mounted(host, here):
    """Makes both directories. What runs a command that sees the one as the other; None where mounts are not permitted."""
    os.mkdir(host)
    os.mkdir(here)
    return in_place_of(host, here)


def in_place_of(host, directory):
    """What runs a command that sees `host` as that directory of the machine; None where mounts are not permitted."""
    command = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', host, directory]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        print("mounts are not permitted here")
        return None
    return command


def dial(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.settimeout(PATIENCE_S)
    return connection


def run(tests):
    """Runs the functions. grpcio's threads would keep the interpreter, so it ends at once."""
    try:
        for test in tests:
            print(test.__name__, flush=True)
            test()
    except BaseException:  # also of an assertion
        import traceback
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


SLICE = "  - {name: vgpu.dev/slice-8g-30c, memory: 8Gi, cores: 30, replicas: 4}\n"
