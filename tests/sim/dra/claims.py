"""NodePrepareResources and NodeUnprepareResources, as a kubelet calls them."""
import os
import random
import signal
import stat

import cluster
from cluster import NODE, World, field, share


def prepares():
    with World() as world:
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "8Gi", "30", request="gpu/any"))
        uid = claim[1]
        answer = world.kubelet.prepare(claim)
        assert answer == {uid: [(["gpu"], NODE, device, ["vgpu.local/slice=claim-" + uid])]}, answer
        gpu, = [name for name in world.policy(uid) if name != "slice"]
        assert gpu.lower() == device
        assert world.policy(uid) == {
            gpu: {"memory": "8G", "cores": "30"},
            "slice": {"region": "/run/vgpu/region", "name": "claim-" + uid}}, world.policy(uid)
        assert world.spec(uid)["env"] == ["NVIDIA_VISIBLE_DEVICES=" + gpu]
        writable = [m["containerPath"] for m in world.spec(uid)["mounts"] if "rw" in m["options"]]
        assert writable == ["/run/vgpu"], writable
        with open(world.host(uid, "/usr/local/lib/libvgpu.so"), "rb") as ours, \
                open(cluster.fake.LIBRARY, "rb") as library:
            assert ours.read() == library.read()
        with open(world.host(uid, "/etc/ld.so.preload")) as preload:
            assert preload.read() == "/usr/local/lib/libvgpu.so\n"
        socket = world.host(uid, "/run/vgpud")  # without a vgpud
        assert socket == world.root + "/vgpud" and stat.S_IMODE(os.stat(socket).st_mode) == 0o755
        shared = world.host(uid, "/run/vgpu")
        assert stat.S_IMODE(os.stat(shared).st_mode) == 0o1777
        # Again, as for another pod of a shared claim: the slice stays as it is.
        open(shared + "/region", "w").close()
        assert world.kubelet.prepare(claim) == answer and os.path.exists(shared + "/region")
        os.makedirs(shared + "/a" * 100)  # the tenant's
        os.symlink(world.root, shared + "/a/link")
        assert world.kubelet.unprepare(claim) == {uid: ""} and world.left() == []
        assert os.path.exists(world.token), "a link was followed"
        assert world.kubelet.unprepare(claim) == {uid: ""}, "an unknown claim"


def sums_and_whole_gpus():
    with World() as world:
        first, second = world.ready()
        both = world.api.allocate("both", share(first, "8Gi", "30"), share(second, "1536Mi", "80", "more"),
                                  share(first, "1Gi", "80"), {"driver": "net.example", "pool": "x"})
        whole = world.api.allocate("whole", share(second))
        cdi = ["vgpu.local/slice=claim-" + both[1]]
        answer = world.kubelet.prepare(both, whole)
        assert answer[both[1]] == [(["gpu"], NODE, first, cdi), (["more"], NODE, second, cdi),
                                   (["gpu"], NODE, first, [])], answer
        limits = {name.lower(): value for name, value in world.policy(both[1]).items()}
        assert limits[first] == {"memory": "9G", "cores": "100"}, limits
        assert limits[second] == {"memory": "1536m", "cores": "80"}, limits
        limits = {name.lower(): value for name, value in world.policy(whole[1]).items()}
        assert limits[second]["memory"] == "unlimited" and first not in limits


def names_gpus_by_cdi():
    with World() as world:
        world.start("--cdi-kind", "nvidia.com/gpu", "--turns", world.root + "/turns")
        cluster.until(lambda: cluster.SLICE in world.api.objects, "a ResourceSlice")
        device = world.devices()[0]
        claim = world.api.allocate("c", share(device, "1Gi", "1"))
        (_, _, _, cdi), = world.kubelet.prepare(claim)[claim[1]]
        assert cdi[1].lower() == "nvidia.com/gpu=" + device, cdi
        assert world.spec(claim[1])["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
        assert world.host(claim[1], "/run/vgpu-host/turns") == world.root + "/turns"


def refuses():
    with World() as world:
        device = world.ready()[0]
        api = world.api
        api.allocate("replaced", share(device, "1Gi", "1"))
        bad = {
            "no devices of gpu.vgpu.dev allocated": [api.allocate("other", share(device, driver="net.example")),
                                     api.allocate("none")],
            "404": [("team", "0" * 8, "gone")],
            "was deleted and made again": [("team", "1" * 8, "replaced")],
            "adminAccess": [api.allocate("admin", share(device, adminAccess=True))],
            "consumedCapacity of memory": [api.allocate(f"m{n}", share(device, value, "1"))
                                           for n, value in enumerate(["0", "-1Gi", "8 Gi", "9Ei"])],
            "consumedCapacity of cores": [api.allocate(f"c{n}", share(device, "1Gi", value))
                                          for n, value in enumerate(["0", "101", "all"])],
            "no device": [api.allocate("gpu", share("gpu-none", "1Gi", "1"))],
            "node-2 on this node, which vgpu-dra knows as node-1": [
                api.allocate("pool", share(device, "1Gi", "1", pool="node-2"))],
            "no DNS name": [api.allocate("path", share("../" + device, "1Gi", "1"))],
        }
        good = api.allocate("good", share(device, "1Gi", "1"))
        claims = [claim for of_a_kind in bad.values() for claim in of_a_kind]
        answers = world.kubelet.prepare(good, *claims)
        for why, of_a_kind in bad.items():
            for claim in of_a_kind:
                assert why in answers[claim[1]], (why, answers[claim[1]])
        assert len(answers[good[1]]) == 1, "the others' errors are this claim's"
        assert len(world.left()) == 5, world.left()


def survives():
    """Kills, and an API server that is away: what was prepared is prepared as it was."""
    with World() as world:
        device = world.ready()[0]
        claim = world.api.allocate("kept", share(device, "8Gi", "30"))
        new = world.api.allocate("new", share(device, "8Gi", "30"))
        answer, policy = world.kubelet.prepare(claim), world.policy(claim[1])
        world.stop(signal.SIGKILL)
        world.api.stop()
        for place in ("dra/regions", "cdi", "vgpud"):  # as after a restart of the node
            cluster.shutil.rmtree(f"{world.root}/{place}")
        world.kubelet.close()
        world.start()
        answers = world.kubelet.prepare(claim, new)
        assert answers[claim[1]] == answer[claim[1]] and world.policy(claim[1]) == policy
        assert os.path.isdir(world.host(claim[1], "/run/vgpud"))
        assert "does not answer" in answers[new[1]]
        assert world.kubelet.unprepare(claim, new) == {claim[1]: "", new[1]: ""}
        assert world.left() == []
        world.api.start()
        assert isinstance(world.kubelet.prepare(claim)[claim[1]], list)
        del world.api.objects[cluster.CLAIMS % (claim[0], claim[2])]
        assert "404" in world.kubelet.prepare(claim)[claim[1]], "a claim that is gone is prepared"


def withstands_garbage():
    """Messages that are none of the kubelet's, and claims that no API server should have."""
    with World() as world:
        device = world.ready()[0]
        claim = world.api.allocate("good", share(device, "1Gi", "1"))
        chance = random.Random(1)
        whole = field(1, field(1, claim[0]) + field(2, claim[1]) + field(3, claim[2]))
        methods = ["/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node%sResources" % name
                   for name in ("Prepare", "Unprepare")]
        for turn in range(60):
            message = bytearray(whole * chance.randrange(1, 3))
            for _ in range(chance.randrange(1, 4)):
                message[chance.randrange(len(message))] = chance.randrange(256)
            try:
                world.kubelet.call(methods[turn % 2], bytes(message[:chance.randrange(len(message))]))
            except cluster.fake.grpc.RpcError as error:
                assert error.code() == cluster.fake.grpc.StatusCode.INVALID_ARGUMENT, error
        for namespace, uid, name in [("a/b", "u", "n"), ("a", "../u", "n"), ("a", "u", ".."), ("", "u", "n")]:
            try:
                world.kubelet.prepare((namespace, uid, name))
            except cluster.fake.grpc.RpcError as error:
                assert error.code() == cluster.fake.grpc.StatusCode.INVALID_ARGUMENT, error
            else:
                raise AssertionError(f"{name} of {namespace} is a name")
        for broken in [b"", b"[]", b"{\"metadata\": {\"uid\": 7}}", b"\0" * 9, b"[" * 5000]:
            world.api.broken = (200, broken)
            assert isinstance(world.kubelet.prepare(claim)[claim[1]], str), broken
        world.api.broken = None
        assert isinstance(world.kubelet.prepare(claim)[claim[1]], list)
        assert world.kubelet.unprepare(claim) == {claim[1]: ""} and world.left() == []


cluster.run([prepares, sums_and_whole_gpus, names_gpus_by_cdi, refuses, survives, withstands_garbage])
