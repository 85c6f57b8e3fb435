"""The pods that use a claim are written down, as the kubelet says them, for vgpu and vgpud."""
import json
import os
import re
import time

import cluster
from cluster import World, share, until


def cdi(claim):
    return "vgpu.local/slice=claim-" + claim[1]


def pods(world, claim):
    """The lines that are written down; None: there is no file."""
    try:
        with open(f"{world.root}/dra/claims/{claim[1]}.pods") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return None


def prepared(world, *names):
    device = world.ready()[0]
    claims = [world.api.allocate(name, share(device, "1Gi", "10")) for name in names]
    world.kubelet.prepare(*claims)
    return claims


def until_used(world, claim, *lines):
    until(lambda: pods(world, claim) == list(lines), f"{lines}, but {pods(world, claim)}")


def ps(world, name):
    status, out, err = world.vgpu("ps", "--json")
    assert status == 0, err
    one, = [one for one in json.loads(out)["slices"] if one["name"] == name]
    return [one[member] for member in ("namespace", "pod", "container", "pods")]


def are_named():
    with World() as world:
        world.kubelet.serve_pods()
        device = world.ready()[0]
        alice, bob = [world.api.allocate(name, share(device, "1Gi", "10")) for name in ("alice", "bob")]
        world.kubelet.users = [("team", "train-0", "main", ["nvidia.com/gpu=0", cdi(alice)]),
                               ("team", "other", "x", ["other.test/slice=claim-" + alice[1], "vgpu.local/slice=claim-"])]
        world.kubelet.prepare(alice, bob)
        until_used(world, alice, "team/train-0/main")
        assert pods(world, bob) is None
        assert ps(world, "team/alice") == ["team", "train-0", "main", [
            {"namespace": "team", "pod": "train-0", "container": "main"}]]
        assert ps(world, "team/bob") == [None, None, None, []]
        status, out, _ = world.vgpu("ps")
        assert status == 0 and out.count(" pod team/train-0/main\n") == 1, out
        assert world.kubelet.unprepare(alice, bob) == {alice[1]: "", bob[1]: ""} and world.left() == []


def all_that_use_a_claim():
    """A shared claim: the names that all of its containers have are the slice's."""
    with World() as world:
        world.kubelet.serve_pods()
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "1Gi", "10"))
        world.kubelet.users = [("team", "b", "side", [cdi(claim)]), ("team", "b", "main", [cdi(claim)] * 2)]
        world.kubelet.prepare(claim)
        until_used(world, claim, "team/b/main", "team/b/side")
        assert ps(world, "team/alice")[:3] == ["team", "b", None]
        world.kubelet.users.append(("team", "a", "main", [cdi(claim)]))
        world.kubelet.prepare(claim)
        until_used(world, claim, "team/a/main", "team/b/main", "team/b/side")
        assert ps(world, "team/alice")[:3] == ["team", None, None]
        world.kubelet.users = []  # the pods have ended, and the claim is not removed yet
        asked = world.kubelet.looks
        world.kubelet.prepare(claim)
        until(lambda: world.kubelet.looks > asked, "a look")
        time.sleep(0.2)
        assert len(pods(world, claim)) == 3


def odd_names_are_left_out():
    with World() as world:
        world.kubelet.serve_pods()
        device = world.ready()[0]
        claim = world.api.allocate("alice", share(device, "1Gi", "10"))
        world.kubelet.users = [(space, pod, container, [cdi(claim)]) for space, pod, container in (
            ("../../x", "a", "b"), ("team", "a\n", "b"), ("team", "\x1b[2J", "c"), ("team", "", "c"),
            ("t" * 64, "a", "b"), ("team", "good", "main"))]
        world.kubelet.users.append(("team", "a", "b", ["vgpu.local/slice=claim-" + "../" * 3 + "x", "vgpu.local/slice="]))
        world.kubelet.prepare(claim)
        until_used(world, claim, "team/good/main")


def without_the_kubelets_answer():
    """The claim is prepared, and named as soon as the kubelet answers; also after a restart of the driver."""
    with World() as world:
        claim, = prepared(world, "alice")
        until(lambda: "cannot find the pods of claims" in world.said(), "a warning")
        assert "pod-resources/kubelet.sock" in world.said() and pods(world, claim) is None
        world.kubelet.prepare(claim)
        time.sleep(1.2)  # the driver asks the kubelet again within a second, with the same answer
        world.kubelet.users = [("team", "train-0", "main", [cdi(claim)])]
        world.kubelet.serve_pods()
        world.stop()
        world.kubelet.close()
        world.start()
        until_used(world, claim, "team/train-0/main")
        assert world.said().count("cannot find the pods") == 1


def nothing_is_asked_without_claims():
    with World() as world:
        world.kubelet.serve_pods()
        world.ready()
        time.sleep(1.2)
        assert world.kubelet.looks == 0


def metrics_have_labels():
    if not os.environ["VGPUD"]:
        return
    with World() as world:
        claim, = prepared(world, "alice")
        metrics = world.start_vgpud()
        with open(f"{world.root}/dra/claims/{claim[1]}.pods", "w") as file:
            file.write("team/a/main\nteam/a/side\n")
        until(lambda: re.search('slice="team/alice",kind="claim",user="[^"]*",namespace="team",pod="a"} ', metrics()),
              "labels")


cluster.run([are_named, all_that_use_a_claim, odd_names_are_left_out, without_the_kubelets_answer,
             nothing_is_asked_without_claims, metrics_have_labels])
