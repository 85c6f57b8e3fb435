"""What vgpu-dra withstands: odd answers of the API server, a server that hangs, and states that a crash, or
somebody on the node, leaves."""
import itertools
import os
import shutil
import stat
import time

import cluster
from cluster import CLAIMS, NODE, SLICE, World, share, until

NODE_PATH = "/api/v1/nodes/" + NODE


def results(world, claim):
    return world.api.objects[CLAIMS % (claim[0], claim[2])]["status"]["allocation"]["devices"]["results"]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def another_gpu_for_a_claim():
    """The kubelet has forgotten the first allocation, and the claim has another one by now."""
    with World() as world:
        first, second = world.ready()
        claim = world.api.allocate("alice", share(first, "8Gi", "30"))
        world.kubelet.prepare(claim)
        program = world.run_in(claim[1])
        program.kill()
        program.wait()
        for name in "policy", "seen":
            remove(f"{world.root}/{name}-{claim[1]}")
        results(world, claim)[:] = [share(second, "2Gi", "10")]
        (_, _, device, _), = world.kubelet.prepare(claim)[claim[1]]
        assert device == second
        limits = {name.lower(): value for name, value in world.policy(claim[1]).items()}
        assert first not in limits and limits[second] == {"memory": "2G", "cores": "10"}, limits
        world.run_in(claim[1])
        assert read(f"{world.root}/seen-{claim[1]}").split()[0] == b"2048"
        assert world.kubelet.unprepare(claim) == {claim[1]: ""}


def thousands_of_results():
    with World() as world:
        device = world.ready()[0]
        ours = world.api.allocate("ours", *[share(device, "1Mi", "1", f"r{n}") for n in range(10000)])
        others = world.api.allocate("others", share(device, "1Gi", "1"),
                                    *[share(device, "1Mi", "1", f"r{n}", driver="net.example") for n in range(10000)])
        answers = world.kubelet.prepare(ours, others)
        assert "more than 32" in answers[ours[1]]
        assert [d[2] for d in answers[others[1]]] == [device], answers[others[1]]
        assert not any(ours[1] in entry for entry in world.left())
        world.api.broken = (503, b"")
        assert world.kubelet.prepare(others) == {others[1]: answers[others[1]]}, "what was kept"


def names_that_lead_elsewhere():
    with World() as world:
        device = world.ready()[0]
        bad = [world.api.allocate(f"bad-{n}", share(device, "1Gi", "1", **{name: value})) for n, (name, value) in
               enumerate(itertools.product(("request", "pool", "shareID"), ("../x", "..", "a/../b", "", "\n", "x\0/..", "A")))
               if (name, value) != ("request", "a/../b")]  # a subrequest's name is not read
        for uid, answer in world.kubelet.prepare(*bad).items():
            assert "no DNS name" in answer or "no device" in answer, (uid, answer)
        assert world.left() == []


def says_which_share():
    with World() as world:
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "1Gi", "1"), share(device, "1Gi", "1"), share(device))
        answer = world.kubelet.ask("NodePrepareResources", [claim])[claim[1]]
        shares = [cluster.fields(found).get(5, [b""])[0].decode() for found in answer[1]]
        assert shares == [result.get("shareID", "") for result in results(world, claim)], shares


def a_server_that_hangs():
    """It costs one wait, and not one for each claim."""
    with World() as world:
        device = world.ready()[0]
        claims = [world.api.allocate(f"c{n}", share(device, "1Gi", "1")) for n in range(8)]
        answers = world.kubelet.prepare(*claims)
        new = world.api.allocate("new", share(device, "1Gi", "1"))
        world.api.goes_on.clear()
        began = time.monotonic()
        assert world.kubelet.prepare(*claims) == answers
        assert time.monotonic() - began < 30, time.monotonic() - began
        assert "does not answer" in world.kubelet.prepare(new)[new[1]]
        world.api.goes_on.set()
        until(lambda: isinstance(world.kubelet.prepare(new)[new[1]], list), "a server that answers again")


def a_node_that_is_another():
    """A node that was deleted, and has registered again: what belongs to the first one is deleted."""
    with World() as world:
        world.ready()
        world.api.objects[NODE_PATH] = {"metadata": {"name": NODE, "uid": "another"}}
        del world.api.objects[SLICE]
        world.kubelet.register()
        until(lambda: SLICE in world.api.objects, "a ResourceSlice")
        assert world.api.objects[SLICE]["metadata"]["ownerReferences"][0]["uid"] == "another"


def generations():
    with World() as world:
        world.ready()
        for generation in (1 << 63) - 1, -(1 << 63), "x", None:
            changed = world.api.objects[SLICE]
            changed["spec"]["devices"].pop()
            changed["spec"]["pool"]["generation"] = generation
            world.api.put(SLICE, changed)
            world.kubelet.register()
            until(lambda: len(world.devices()) == 2, "both GPUs again")
            assert world.api.objects[SLICE]["spec"]["pool"]["generation"] == 1


def any_part_of_a_claim_is_lost():
    """As a crash leaves it, before or after the driver has answered."""
    with World() as world:
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "1Gi", "1"))
        answer = world.kubelet.prepare(claim)
        uid, policy = claim[1], world.policy(claim[1])
        parts = [f"cdi/vgpu-claim-{uid}.json", f"dra/regions/claim-{uid}", f"dra/policies/claim-{uid}",
                 f"dra/claims/{uid}.json", f"dra/claims/{uid}.name"]
        for count in range(len(parts) + 1):
            for lost in itertools.combinations(parts, count):
                for part in lost:
                    remove(f"{world.root}/{part}")
                assert world.kubelet.prepare(claim) == answer and world.policy(uid) == policy, lost
                assert all(os.path.exists(f"{world.root}/{part}") for part in parts), lost
                for part in lost:
                    remove(f"{world.root}/{part}")
                assert world.kubelet.unprepare(claim) == {uid: ""} and world.left() == [], lost
                world.kubelet.prepare(claim)


def directories_are_removed():
    """What claims need is made again, also if the package of the library is gone by then."""
    with World() as world:
        world.library = world.root + "/libvgpu.so"
        shutil.copy(cluster.fake.LIBRARY, world.library)
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "1Gi", "1"))
        answer = world.kubelet.prepare(claim)
        for place in "dra", "cdi", "libvgpu.so":
            remove(f"{world.root}/{place}")
        assert world.kubelet.prepare(claim) == answer
        assert read(world.host(claim[1], "/usr/local/lib/libvgpu.so")) == read(cluster.fake.LIBRARY)
        assert read(world.host(claim[1], "/etc/ld.so.preload")) == b"/usr/local/lib/libvgpu.so\n"
        assert stat.S_IMODE(os.stat(world.root + "/dra/claims").st_mode) == 0o700
        world.run_in(claim[1])


def a_mounted_directory_is_removed():
    """The driver has the host's directories mounted, as in a pod and in its unit."""
    for place in "dra", "cdi":
        with World() as world:
            host, here = world.root + "/host", f"{world.root}/{place}"
            mounts = cluster.fake.mounted(host, here)
            if not mounts:
                return
            world.ready(within=mounts)
            shutil.rmtree(host)
            assert world.driver.wait(cluster.PATIENCE_S) == 125, "the status"
            assert "was removed" in world.said()


cluster.run([another_gpu_for_a_claim, thousands_of_results, names_that_lead_elsewhere, says_which_share,
             a_server_that_hangs, a_node_that_is_another, generations, any_part_of_a_claim_is_lost,
             directories_are_removed, a_mounted_directory_is_removed])
