#!/usr/bin/python3
"""cri.py SOCKET GPU: a pod and its containers by CRI v1, as a kubelet makes them, with CDI devices. GPU is the directory of
the simulated one. Claims are those of vgpu-dra, with the API server of tests/sim/dra. cri.sh starts it."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sim/dra"))
import cluster  # noqa: E402
from cluster import fake, share  # noqa: E402
from fake import field, fields, grpc, text  # noqa: E402

SOCKET, GPU = sys.argv[1:]
IMAGE = "localhost/vgpu-test:1"
VARIABLES = {"VGPU_SIM_STATE": "/gpu/state", "VGPU_SIM_GPUS": "2x80G"}
NVIDIA, ALICE, BOB = "nvidia.com/gpu=0", "vgpu.local/slice=alice", "vgpu.local/slice=bob"
CONTAINER, NODE = 1, 2  # whose a namespace is; NODE is the host

channel = grpc.insecure_channel("unix:" + SOCKET)


def call(method, request):
    answer = channel.unary_unary("/runtime.v1.RuntimeService/" + method)(request, timeout=fake.PATIENCE_S)
    return fields(answer)


# As a kubelet asks: a pid namespace for each container. The network is the host's, so that none is made.
NAMESPACES = field(1, NODE) + field(2, CONTAINER)
POD = field(1, field(1, "pod") + field(2, "uid") + field(3, "default")) + field(8, field(2, field(1, NAMESPACES)))


class Container:
    """One with these CDI devices, that sleeps."""

    def __init__(self, pod, name, *devices, command="sleep 1000", user=None, read_only=False):
        security = field(3, NAMESPACES)
        if user:
            security += field(5, field(1, user))
        if read_only:
            security += field(7, 1)
        config = field(1, field(1, name)) + field(2, field(1, IMAGE)) + field(3, "sh") + field(4, "-c")
        config += field(4, command)
        config += b"".join(field(6, field(1, key) + field(2, value)) for key, value in VARIABLES.items())
        config += field(7, field(1, "/gpu") + field(2, GPU)) + field(15, field(2, security))
        config += b"".join(field(17, field(1, device)) for device in devices)
        self.id = text(call("CreateContainer", field(1, pod) + field(2, config) + field(3, POD)), 1)
        call("StartContainer", field(1, self.id))

    def run(self, command):
        """What a command of the shell prints."""
        asked = field(1, self.id) + b"".join(field(2, word) for word in ("sh", "-c", command + " 2>&1"))
        return text(call("ExecSync", asked + field(3, fake.PATIENCE_S)), 1)

    def sees(self, mib, command="hog </dev/null"):
        said = self.run(command)
        assert f"the program sees a GPU of {mib} MiB" in said, said
        assert "one byte more: CUDA_ERROR_OUT_OF_MEMORY" in said, said


def run_pod():
    return text(call("RunPodSandbox", field(1, POD)), 1)


def remove_pod(pod):
    call("StopPodSandbox", field(1, pod))
    call("RemovePodSandbox", field(1, pod))


def is_not_made(pod, device):
    try:
        Container(pod, "wrong", NVIDIA, device)
    except grpc.RpcError as error:
        assert "unresolvable CDI devices " + device in error.details(), error
    else:
        raise AssertionError("a container without its slice has started")


def slices():
    pod = run_pod()
    whole = Container(pod, "none", NVIDIA).run("hog </dev/null")
    assert "a GPU of 81920 MiB" in whole, whole  # what holds below is the slice
    alice = Container(pod, "alice", NVIDIA, ALICE)
    alice.sees(2048)
    alice.sees(2048, "env -i PATH=/usr/bin VGPU_SIM_STATE=/gpu/state hog </dev/null")
    assert "libvgpu" in alice.run("cat /proc/1/maps"), "the container's first program is not in the slice"
    Container(pod, "user", NVIDIA, ALICE, user=1000).sees(2048)
    Container(pod, "order", ALICE, NVIDIA, read_only=True).sees(2048)
    bob = Container(pod, "bob", NVIDIA, BOB, command="sleep 1000 | hog >/gpu/bob")
    fake.until(lambda: "one byte more" in bob.run("cat /gpu/bob"), "a container that has filled its slice")
    alice.sees(2048)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in bob.run("hog </dev/null"), "a full slice has room"
    is_not_made(pod, "vgpu.local/slice=nobody")
    remove_pod(pod)


def claims():
    """As the kubelet names their devices, by what vgpu-dra has answered."""
    with cluster.World() as world:
        world.cdi = "/run/cdi"
        world.env.update(VGPU_SIM_STATE=os.environ["VGPU_SIM_STATE"])
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "3Gi", "30"))
        (_, _, _, names), = world.kubelet.prepare(claim)[claim[1]]
        pod = run_pod()
        Container(pod, "claim", NVIDIA, *names).sees(3072)
        full = Container(pod, "full", NVIDIA, *names, command="sleep 1000 | hog >/gpu/claim")
        fake.until(lambda: "one byte more" in full.run("cat /gpu/claim"), "a claim that is full")
        assert "CUDA_ERROR_OUT_OF_MEMORY" in Container(pod, "second", NVIDIA, *names).run("hog </dev/null")
        remove_pod(pod)
        assert world.kubelet.unprepare(claim) == {claim[1]: ""}
        pod = run_pod()
        is_not_made(pod, *names)
        remove_pod(pod)


cluster.run([slices, claims] if os.environ["PLUGIN"] else [slices])
