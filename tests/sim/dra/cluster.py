"""A kubelet and an API server for the tests of vgpu-dra, as the documents of Kubernetes' v1 APIs describe
them. No real one was at hand. The codec is that of the device plugin's tests."""
import concurrent.futures
import copy
import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "plugin"))
import fake  # noqa: E402
from fake import PATIENCE_S, field, fields, text, until  # noqa: E402

DRIVER, NODE = "gpu.vgpu.dev", "node-1"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s"
SLICE = f"{SLICES}/{NODE}-{DRIVER}"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def quantity(value):
    number, suffix = re.fullmatch(r"(\d+)(|Ki|Mi|Gi|Ti)", value).groups()
    return int(number) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[suffix]


# -- the API server ---------------------------------------------------------------------------------

def check_slice(obj):
    """What the documents of v1 demand of a ResourceSlice."""
    spec = obj["spec"]
    assert (obj["apiVersion"], obj["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert spec["driver"] == DRIVER and spec["nodeName"] == NODE
    assert set(spec) == {"driver", "nodeName", "pool", "devices"}, spec
    assert spec["pool"]["name"] == NODE and spec["pool"]["resourceSliceCount"] == 1
    assert spec["pool"]["generation"] >= 1
    names = [device["name"] for device in spec["devices"]]
    assert len(set(names)) == len(names) <= 128
    for device in spec["devices"]:
        assert LABEL.fullmatch(device["name"]), device
        assert set(device) == {"name", "attributes", "capacity", "allowMultipleAllocations"}, device
        for attribute in device["attributes"].values():
            (kind, value), = attribute.items()
            assert {"string": str, "int": int}[kind] is type(value) and len(str(value)) <= 64
        for capacity in device["capacity"].values():
            policy = capacity["requestPolicy"]
            least, step = (quantity(policy["validRange"][n]) for n in ("min", "step"))
            default, value = quantity(policy["default"]), quantity(capacity["value"])
            assert least <= default <= value and least + step <= value
            assert (default - least) % step == 0


class HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that has gone before it was answered is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class ApiServer:
    """Keeps objects by their paths; counts writes. It knows one token, and gives what vgpu-dra's
    ClusterRole allows. asked: the paths of all requests. goes_on: nothing is answered while it is not set.
    consumable: the feature gate DRAConsumableCapacity. broken: a status and a body that answer everything."""

    def __init__(self, root):
        self.root, self.objects, self.token = root, {}, "first"
        self.consumable, self.broken, self.version, self.writes = True, None, 0, 0
        self.ca, self.asked, self.goes_on = root + "/ca.crt", [], threading.Event()
        self.goes_on.set()
        self.server = None
        self.port = 0
        self.objects["/api/v1/nodes/" + NODE] = {"metadata": {"name": NODE, "uid": "node-uid"}}

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, obj):
                body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def ask(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.answer(*outer.ask(self.command, self.path, body,
                                       self.headers.get("Authorization")))

            do_GET = do_POST = do_PUT = do_DELETE = ask

        self.server = HttpServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        self.secure()
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def secure(self):
        key = self.root + "/key"
        if not os.path.exists(self.ca):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", self.ca,
                            "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def status(code, message, **more):
        return code, dict({"kind": "Status", "code": code, "message": message}, **more)

    def missing(self, path):
        kind, name = path.split("/")[-2:]
        return self.status(404, f'{kind} "{name}" not found', reason="NotFound",
                           details={"name": name, "kind": kind})

    def ask(self, method, path, body, authorization):
        self.asked.append(path)
        self.goes_on.wait()
        if self.broken:
            return self.broken
        if authorization != "Bearer " + self.token:
            return self.status(401, "Unauthorized")
        allowed = {"/api/v1/nodes/": ["GET"], SLICES: ["GET", "POST", "PUT"],
                   "/apis/resource.k8s.io/v1/namespaces/": ["GET"]}
        if not any(path.startswith(p) and method in methods for p, methods in allowed.items()):
            return self.status(403, "Forbidden")
        if method == "GET":
            return (200, self.objects[path]) if path in self.objects else self.missing(path)
        return self.write(method, path, json.loads(body))

    def write(self, method, path, obj):
        try:
            check_slice(obj)
        except (AssertionError, KeyError) as error:
            return self.status(422, f"invalid: {error!r}")
        metadata = obj["metadata"]
        if method == "POST":
            path, old = f"{path}/{metadata['name']}", None
            if path in self.objects:
                return self.status(409, "exists")
        else:
            old = self.objects.get(path)
            if not old:
                return self.missing(path)
            if metadata.get("resourceVersion") != old["metadata"]["resourceVersion"]:
                return self.status(409, "conflict")
        self.put(path, obj)
        return 201 if method == "POST" else 200, self.objects[path]

    def put(self, path, obj):
        obj = copy.deepcopy(obj)
        self.version += 1
        self.writes += 1
        obj["metadata"].update(resourceVersion=str(self.version), managedFields=[{"f:spec": {}}])
        if not self.consumable:
            for device in obj["spec"]["devices"]:
                del device["allowMultipleAllocations"]
                for capacity in device["capacity"].values():
                    del capacity["requestPolicy"]
        self.objects[path] = obj

    def allocate(self, name, *results, namespace="team", uid=None):
        """A claim with these results of the scheduler."""
        uid = uid or str(uuid.uuid4())
        self.objects[CLAIMS % (namespace, name)] = {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {"devices": {"config": [{"opaque": {"driver": DRIVER, "parameters": {
                "memory": "unlimited"}}}]}},
            "status": {"allocation": {"devices": {"results": list(results)}}}}
        return namespace, uid, name


def share(device, memory=None, cores=None, request="gpu", **more):
    """A DeviceRequestAllocationResult."""
    result = {"request": request, "driver": DRIVER, "pool": NODE, "device": device}
    if memory:
        result.update(shareID=str(uuid.uuid4()), consumedCapacity={"memory": memory, "cores": cores})
    result.update(more)
    return result


# -- the kubelet ------------------------------------------------------------------------------------

class Kubelet:
    """users: (namespace, pod, container, CDI devices) of the containers that its socket for pod resources, which
    serve_pods makes, lists; looks: how often it was asked."""

    def __init__(self, root):
        self.dir = root + "/kubelet"
        self.registry = self.dir + "/plugins_registry"
        self.channel, self.server, self.users, self.looks = None, None, [], 0
        os.makedirs(self.registry)

    def serve_pods(self):
        os.makedirs(self.dir + "/pod-resources", exist_ok=True)
        self.server = fake.grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers((fake.grpc.method_handlers_generic_handler(
            "v1.PodResourcesLister", {"List": fake.grpc.unary_unary_rpc_method_handler(self.list)}),))
        self.server.add_insecure_port(f"unix:{self.dir}/pod-resources/kubelet.sock")
        self.server.start()

    def list(self, request, context):
        """A ListPodResourcesResponse with a pod for each container."""
        self.looks += 1
        answer = b""
        for namespace, pod, container, devices in self.users:
            resources = b"".join(field(4, field(1, field(1, device)) + field(2, DRIVER)) for device in devices)
            claim = field(2, "a-claim") + field(3, namespace) + resources
            answer += field(1, field(1, pod) + field(2, namespace) + field(3, field(1, container) + field(5, claim)))
        return answer

    def call(self, method, request=b""):
        return self.channel.unary_unary(method)(request, timeout=PATIENCE_S)

    def register(self, error=""):
        """As the kubelet does with each socket that it finds."""
        until(lambda: os.listdir(self.registry), "a socket in the registry")
        name, = os.listdir(self.registry)
        channel = fake.grpc.insecure_channel(f"unix:{self.registry}/{name}")
        call = lambda method, request: channel.unary_unary(  # noqa: E731, and a driver that was killed leaves its socket
            "/pluginregistration.Registration/" + method)(request, timeout=PATIENCE_S, wait_for_ready=True)
        info = fields(call("GetInfo", b""))
        assert text(info, 1) == "DRAPlugin" and text(info, 2) == DRIVER, info
        assert info[4] == [b"v1.DRAPlugin"]
        assert os.stat(text(info, 3)).st_mode & 0o777 == 0o600
        self.close()
        self.channel = fake.grpc.insecure_channel("unix:" + text(info, 3))
        call("NotifyRegistrationStatus", field(2, error) if error else field(1, 1))
        channel.close()

    def ask(self, method, claims):
        request = b"".join(field(1, field(1, n) + field(2, u) + field(3, name))
                           for n, u, name in claims)
        answer = fields(self.call("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/" + method, request))
        entries = [fields(entry) for entry in answer.get(1, [])]
        assert sorted(text(e, 1) for e in entries) == sorted(u for _, u, _ in claims)
        return {text(e, 1): fields(e[2][0]) for e in entries}

    def prepare(self, *claims):
        """{uid: an error, or a list of (requests, pool, device, CDI devices)}"""
        found = {}
        for uid, answer in self.ask("NodePrepareResources", claims).items():
            devices = [fields(device) for device in answer.get(1, [])]
            found[uid] = text(answer, 2) or [
                ([r.decode() for r in d[1]], text(d, 2), text(d, 3), [c.decode() for c in d.get(4, [])])
                for d in devices]
        return found

    def unprepare(self, *claims):
        return {uid: text(answer, 1) for uid, answer in
                self.ask("NodeUnprepareResources", claims).items()}

    def close(self):
        if self.channel:
            self.channel.close()
        self.channel = None

    def stop_pods(self):
        if self.server:
            self.server.stop(0).wait()
        self.server = None


# -- a test's world ---------------------------------------------------------------------------------

class World:
    def __init__(self, gpus="2x80G"):
        self.root = tempfile.mkdtemp(prefix="vgpu-dra-")
        self.log, self.token = self.root + "/log", self.root + "/token"
        self.api, self.kubelet = ApiServer(self.root), Kubelet(self.root)
        self.env = dict(os.environ, VGPU_SIM_GPUS=gpus, VGPU_SIM_STATE=self.root + "/sim",
                        VGPU_SOCKET=self.root + "/vgpud/vgpud.sock", NODE_NAME=NODE, KUBERNETES_SERVICE_HOST="127.0.0.1")
        for place in ("STATE", "CONTAINERS", "HAMI"):  # of other slices
            self.env["VGPU_" + place] = self.root + "/others"
        self.env["VGPU_KUBERNETES"] = self.root
        self.cdi, self.library = self.root + "/cdi", fake.LIBRARY
        self.driver, self.others = None, []
        self.give_token("first")
        self.api.start()

    def give_token(self, token):
        with open(self.token, "w") as file:
            file.write(token + "\n")

    def start(self, *options, register=True, within=(), **env):
        """Until the driver is registered. within: a command that runs it. ca: another file of certificates than
        the server's."""
        ca = env.pop("ca", self.api.ca)
        self.env["KUBERNETES_SERVICE_PORT"] = str(self.api.port)
        self.driver = subprocess.Popen(
            [*within, fake.PLUGIN, "--token", self.token, "--ca", ca, "--kubelet", self.kubelet.dir,
             "--state", self.root + "/dra", "--regions", self.root + "/dra/regions", "--cdi",
             self.cdi, "--library", self.library, *options],
            env=dict(self.env, **env), stderr=open(self.log, "a"))
        if register:
            self.kubelet.register()
        return self

    def ready(self, *options, **how):
        self.start(*options, **how)
        until(lambda: SLICE in self.api.objects, "a ResourceSlice")
        return self.devices()

    def devices(self):
        return [d["name"] for d in self.api.objects[SLICE]["spec"]["devices"]]

    def stop(self, how=signal.SIGTERM):
        self.driver.send_signal(how)
        assert self.driver.wait(PATIENCE_S) == (0 if how == signal.SIGTERM else -how)

    def said(self):
        with open(self.log) as log:
            return log.read()

    def spec(self, uid):
        """The container edits of a claim's CDI device."""
        with open(f"{self.cdi}/vgpu-claim-{uid}.json") as file:
            spec = json.load(file)
        device, = spec["devices"]
        assert (spec["kind"], device["name"]) == ("vgpu.local/slice", "claim-" + uid)
        return device["containerEdits"]

    def host(self, uid, inside):
        return {m["containerPath"]: m["hostPath"] for m in self.spec(uid)["mounts"]}[inside]

    def policy(self, uid):
        """{file: {key: value}}"""
        found, path = {}, self.host(uid, "/etc/vgpu/policy")
        for name in os.listdir(path):
            with open(path + "/" + name) as lines:
                pairs = [line.split("#")[0].split("=", 1) for line in lines]
            found[name] = {p[0].strip(): p[1].strip() for p in pairs if len(p) == 2}
        return found

    def spawn(self, command, **options):
        """Another program of this node, which is killed at the end of the test."""
        program = subprocess.Popen(command, **dict({"env": self.env}, **options))
        self.others.append(program)
        return program

    def run_in(self, uid):
        """A program that launches in the claim's slice, by a policy whose region is where it lies on the
        host. As soon as it has launched."""
        policy, seen = f"{self.root}/policy-{uid}", f"{self.root}/seen-{uid}"
        shutil.copytree(self.host(uid, "/etc/vgpu/policy"), policy)
        with open(policy + "/slice") as file:
            lines = file.read().replace("/run/vgpu/", self.host(uid, "/run/vgpu") + "/")
        with open(policy + "/slice", "w") as file:
            file.write(lines)
        program = self.spawn(["env", "LD_PRELOAD=" + fake.LIBRARY, os.environ["STEERED"], seen],
                             env=dict(self.env, VGPU_POLICY=policy))
        until(lambda: os.path.exists(seen), "a launch")
        return program

    def vgpu(self, *arguments):
        """The status, stdout and stderr of the command."""
        done = subprocess.run([os.environ["VGPU"], *arguments], env=self.env, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def start_vgpud(self):
        """A function that gives its metrics."""
        with open(self.root + "/vgpud.conf", "w") as config:
            config.write('metrics = { listen = "127.0.0.1:0" }\n')
        self.spawn([os.environ["VGPUD"], "--config", self.root + "/vgpud.conf"],
                   env=dict(self.env, VGPUD_TEST="1"), stderr=open(self.log, "a"))
        until(lambda: "/metrics" in self.said(), "vgpud's metrics")
        url = re.search(r"http://\S+/metrics", self.said()).group()
        return lambda: urllib.request.urlopen(url).read().decode()

    def left(self):
        """All files and directories of claims."""
        return [entry for place in ("cdi", "dra/regions", "dra/policies", "dra/claims")
                for entry in (os.listdir(f"{self.root}/{place}")
                              if os.path.isdir(f"{self.root}/{place}") else [])]

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        for program in self.others + [self.driver]:
            if program and program.poll() is None:
                program.kill()
                program.wait()
        self.kubelet.close()
        self.kubelet.stop_pods()
        if kind and os.path.exists(self.log):
            print(self.said())
        shutil.rmtree(self.root, ignore_errors=True)


def run(tests):
    if not shutil.which("openssl"):
        print("skipped: there is no openssl to make the API server's certificate with")
        os._exit(77)
    fake.run(tests)
