"""Claims as the other programs of the node see them: vgpu, and vgpud."""
import json
import os
import re

import cluster
from cluster import World, share, until


def claims(world):
    """{name: slice} of those that vgpu ps lists."""
    status, out, err = world.vgpu("ps", "--json")
    assert status == 0, err
    return {one["name"]: one for one in json.loads(out)["slices"] if one["kind"] == "claim"}


def are_listed():
    with World() as world:
        device = world.ready()[0]
        alice = world.api.allocate("alice", share(device, "8Gi", "30"))
        bob = world.api.allocate("bob.v1", share(device, "1Gi", "10"), namespace="other")
        world.kubelet.prepare(alice, bob)
        for name in (".half.name.1", "x.name", "empty.name"):  # half written; without a slice; damaged
            with open(f"{world.root}/dra/claims/{name}", "w") as file:
                file.write("" if name == "empty.name" else "team/none\n")
        found = claims(world)
        assert sorted(found) == ["other/bob.v1", "team/alice"], found
        assert found["team/alice"]["state"] == "empty"
        assert found["team/alice"]["policy"] == world.host(alice[1], "/etc/vgpu/policy")
        program = world.run_in(alice[1])
        one = claims(world)["team/alice"]
        assert one["state"] == "running" and one["region"] == world.host(alice[1], "/run/vgpu") + "/region", one
        assert [process["pid"] for process in one["processes"]] == [program.pid], one
        assert one["devices"][0]["memory_limit_bytes"] == 8 << 30, one
        status, out, _ = world.vgpu("ps", "-q", "team/al")
        assert (status, out) == (0, "team/alice\n"), out
        assert world.vgpu("inspect", "team/alice")[0] == 0
        assert world.kubelet.unprepare(bob) == {bob[1]: ""}
        assert list(claims(world)) == ["team/alice"]


def are_changed_by_the_driver_alone():
    with World() as world:
        claim = world.api.allocate("alice", share(world.ready()[0], "8Gi", "30"))
        world.kubelet.prepare(claim)
        policy = world.policy(claim[1])
        for command, why in ((("set", "team/alice", "--memory", "1G"), "what the scheduler gave"),
                             (("rm", "--force", "team/alice"), "vgpu-dra removes it")):
            status, _, err = world.vgpu(*command)
            assert status != 0 and why in err, (command, err)
        assert world.policy(claim[1]) == policy


def namesakes_are_told_apart():
    """A claim that was deleted and not unprepared, and another one of its name."""
    with World() as world:
        device = world.ready()[0]
        for _ in range(2):
            world.kubelet.prepare(world.api.allocate("alice", share(device, "8Gi", "30")))
        status, out, err = world.vgpu("ps", "-q")
        assert status == 0 and len(set(out.split())) == 2, (out, err)


def have_a_part_of_vgpud_each():
    """A namespace may have more claims than vgpud looks at of one tenant."""
    if not os.environ["VGPUD"]:
        return
    with World() as world:
        os.makedirs(world.root + "/dra/claims")
        for number in range(300):
            os.makedirs(f"{world.root}/dra/policies/claim-{number}")
            with open(f"{world.root}/dra/claims/{number}.name", "w") as name:
                name.write(f"team/claim-{number}\n")
        os.mkfifo(world.root + "/dra/claims/pipe.name")  # nobody waits for a writer
        metrics = world.start_vgpud()()
        assert len(re.findall('^vgpu_slice_paused{slice="team/.*kind="claim"', metrics, re.M)) == 300, metrics


def take_turns_by_vgpud():
    if not os.environ["VGPUD"]:
        return
    with World() as world:
        device = world.ready()[0]
        both = [world.api.allocate(name, share(device, "1Gi", "40")) for name in ("alice", "bob")]
        world.kubelet.prepare(*both)
        world.start_vgpud()
        until(lambda: os.path.exists(world.host(both[0][1], "/run/vgpud") + "/vgpud.sock"), "vgpud's socket")
        programs = [world.run_in(claim[1]) for claim in both]
        until(lambda: len({file for program in programs for file in turns_of(program)}) == 1 and
              all(turns_of(program) for program in programs), "one file of turns in both")


def turns_of(program):
    """The files of vgpud's that it has."""
    found = []
    for name in os.listdir(f"/proc/{program.pid}/fd"):
        path = f"/proc/{program.pid}/fd/{name}"
        try:
            if "memfd:vgpu-turns-" in os.readlink(path):
                found.append(os.stat(path).st_ino)
        except OSError:
            pass
    return found


cluster.run([are_listed, are_changed_by_the_driver_alone, namesakes_are_told_apart,
             have_a_part_of_vgpud_each, take_turns_by_vgpud])
