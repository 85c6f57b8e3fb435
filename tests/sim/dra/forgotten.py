"""Claims that the kubelet has forgotten: after a restart of the node, or a kubelet whose state was lost."""
import contextlib
import os
import shutil
import signal
import subprocess
import time

import cluster
from cluster import CLAIMS, World, share, until


def path(claim):
    return CLAIMS % (claim[0], claim[2])


def prepared(world, name="alice"):
    claim = world.api.allocate(name, share(world.devices()[0], "1Gi", "1"))
    assert isinstance(world.kubelet.prepare(claim)[claim[1]], list)
    return claim


def is_there(world, claim):
    """Whether all of the claim is. Part of it is a mistake."""
    left = [entry for entry in world.left() if claim[1] in entry]
    assert len(left) in (0, 5), left
    return bool(left)


def gone_is(world, claim):
    until(lambda: not any(claim[1] in entry for entry in world.left()), "the claim's removal")


def wait_rounds(world, claim, count=3, asked=None):
    """Until so many rounds have asked for the claim, of those after `asked` requests."""
    asked = len(world.api.asked) if asked is None else asked
    until(lambda: world.api.asked[asked:].count(path(claim)) >= count, "rounds")


def of_all_kinds_are_removed():
    with World() as world:
        world.ready("--sweep", "1")
        device = world.devices()[0]
        stays = prepared(world, "stays")
        deleted, replaced, free, moved, other = [
            prepared(world, name) for name in ("deleted", "replaced", "free", "moved", "other")]
        del world.api.objects[path(deleted)]
        world.api.allocate("replaced", share(device, "1Gi", "1"))
        del world.api.objects[path(free)]["status"]["allocation"]
        for claim, results in ((moved, [share(device, pool="node-2")]), (other, [share(device, driver="net.example")])):
            world.api.objects[path(claim)]["status"]["allocation"]["devices"]["results"] = results
        for claim in (deleted, replaced, free, moved, other):
            gone_is(world, claim)
        wait_rounds(world, stays, 1)
        assert is_there(world, stays)
        assert world.said().count("which is gone") == 5
        assert world.kubelet.unprepare(deleted) == {deleted[1]: ""}, "a claim that the kubelet remembers after all"


def after_a_restart_of_the_node():
    with World() as world:
        world.ready()
        claim, stays = prepared(world), prepared(world, "stays")
        world.stop(signal.SIGKILL)
        for place in ("dra/regions", "cdi"):
            shutil.rmtree(f"{world.root}/{place}")
        del world.api.objects[path(claim)]
        world.kubelet.close()
        world.start("--sweep", "1")
        gone_is(world, claim)
        wait_rounds(world, stays, 1)
        assert [entry for entry in world.left() if stays[1] in entry]


def not_before_two_rounds_agree():
    with World() as world:
        world.ready()
        claim = prepared(world)
        del world.api.objects[path(claim)]
        world.stop()
        world.kubelet.close()
        asked = len(world.api.asked)
        world.start("--sweep", "3600")  # the first round is at once
        until(lambda: path(claim) in world.api.asked[asked:], "a round")
        time.sleep(2.5)
        assert is_there(world, claim) and world.api.asked[asked:].count(path(claim)) == 1


def not_while_a_container_lives():
    with World() as world:
        world.ready("--sweep", "1")
        claim = prepared(world)
        program = world.run_in(claim[1])
        del world.api.objects[path(claim)]
        wait_rounds(world, claim)
        assert is_there(world, claim)
        program.kill()
        program.wait()
        gone_is(world, claim)


def not_while_a_container_has_it_mounted():
    """One whose programs do not use the GPU."""
    with World() as world:
        world.ready("--sweep", "1")
        claim = prepared(world)
        target = world.root + "/target"
        os.makedirs(target)
        program = world.spawn(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && echo mounted && exec sleep 1000',
             world.host(claim[1], "/run/vgpu"), target], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        mounted = program.stdout.readline() == b"mounted\n"
        del world.api.objects[path(claim)]
        if mounted:
            wait_rounds(world, claim)
            assert is_there(world, claim)
        program.kill()
        program.wait()
        gone_is(world, claim)


def not_in_doubt():
    """Answers that do not say that the claim is gone."""
    def other(kind, name):
        return lambda world: world.api.missing(f"/api/v1/{kind}/{name}")

    doubts = [lambda _, doubt=doubt: doubt for doubt in (
        (403, {}), (429, b""), (500, b"\xff"), (404, b"404 page not found\n"),
        (404, {"kind": "Status", "reason": "NotFound", "details": {}}), (200, b""), (200, b"{}"),
        (200, {"metadata": {"namespace": "team", "name": "bob", "uid": "u"}}))]
    doubts += [other("namespaces", "alice"), other("resourceclaims", "bob")]
    with contextlib.ExitStack() as stack:
        worlds = [stack.enter_context(World()) for _ in doubts]
        for world in worlds:
            world.ready("--sweep", "1")
        claims = [prepared(world) for world in worlds]
        for world, doubt in zip(worlds, doubts):
            world.api.broken = doubt(world)
        asked = [len(world.api.asked) for world in worlds]
        for world, claim, before in zip(worlds, claims, asked):
            wait_rounds(world, claim, asked=before)
            assert is_there(world, claim), world.api.broken
        assert worlds[0].said().count("cannot look for claims") == 1, "it is said again and again"


def not_if_a_round_in_between_is_in_doubt():
    with World() as world:
        world.ready("--sweep", "1")
        claim = prepared(world)
        missing = world.api.missing(path(claim))
        for _ in range(2):
            world.api.broken = missing
            wait_rounds(world, claim, 1)
            world.api.broken = (500, b"")
            wait_rounds(world, claim, 1)
        world.api.stop()
        time.sleep(2.5)
        assert is_there(world, claim)
        world.api.broken = missing
        world.api.start()
        gone_is(world, claim)


cluster.run([of_all_kinds_are_removed, after_a_restart_of_the_node, not_before_two_rounds_agree,
             not_while_a_container_lives, not_while_a_container_has_it_mounted, not_in_doubt,
             not_if_a_round_in_between_is_in_doubt])
