"""Registration, the node's ResourceSlice, and the API server's token and certificate."""
import time

import cluster
from cluster import NODE, SLICE, World, until

NODE_PATH = "/api/v1/nodes/" + NODE


def publishes():
    with World() as world:
        first, second = world.ready()
        spec = world.api.objects[SLICE]["spec"]
        device = spec["devices"][0]
        assert first.startswith("gpu-") and first != second
        assert device["attributes"]["uuid"]["string"].lower() == first
        assert device["attributes"]["productName"]["string"]
        assert device["allowMultipleAllocations"] is True
        assert device["capacity"]["memory"]["value"] == "80Gi", device
        assert device["capacity"]["cores"]["value"] == "100"
        owner, = world.api.objects[SLICE]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", NODE, "node-uid")
        world.stop()
        assert SLICE in world.api.objects, "the slice of a driver that is updated is gone"
        assert not cluster.os.listdir(world.kubelet.registry), "a socket is left"
        world.start()  # what is right is not written again
        time.sleep(1.5)
        assert world.api.writes == 1


def publishes_again():
    """After a kubelet that started has deleted the slice, and after somebody has changed it."""
    with World() as world:
        world.ready()
        del world.api.objects[SLICE]
        world.kubelet.register()
        until(lambda: SLICE in world.api.objects, "the slice again")
        changed = world.api.objects[SLICE]
        changed["spec"]["devices"].pop()
        world.api.put(SLICE, changed)
        world.kubelet.register()
        until(lambda: len(world.devices()) == 2, "both GPUs again")
        assert world.api.objects[SLICE]["spec"]["pool"]["generation"] == 2
        world.kubelet.register("no such version")
        until(lambda: "no such version" in world.said(), "the kubelet's reason")


def a_sick_gpu_is_not_published():
    """NVML answers for the first GPU only from the third look on."""
    with World() as world:
        world.start(VGPU_SIM_FAULTS=",".join(f"nvmlDeviceGetMemoryInfo@{n}=15" for n in [3, 5]))
        until(lambda: SLICE in world.api.objects and len(world.devices()) == 1, "one GPU")
        until(lambda: len(world.devices()) == 2, "both GPUs")


def without_consumable_capacity():
    with World() as world:
        world.api.consumable = False
        device = world.ready()[0]
        until(lambda: "DRAConsumableCapacity" in world.said(), "what is missing")
        world.kubelet.register()
        time.sleep(1.5)
        assert world.api.writes == 1, "it is written again and again"
        claim = world.api.allocate("whole", cluster.share(device))
        assert len(world.kubelet.prepare(claim)[claim[1]]) == 1
        limits, = [v for k, v in world.policy(claim[1]).items() if k != "slice"]
        assert limits["memory"] == "unlimited" and limits.get("cores") in (None, "unlimited"), limits


def reads_the_token_again():
    with World() as world:
        world.ready()
        world.api.token = "second"
        claim = world.api.allocate("c", cluster.share(world.devices()[0], "1Gi", "1"))
        assert "401" in world.kubelet.prepare(claim)[claim[1]]
        world.give_token("second")
        assert len(world.kubelet.prepare(claim)[claim[1]]) == 1


def trusts_its_certificates_alone():
    with World() as world, World() as other:
        world.start(ca=other.api.ca)
        until(lambda: "does not answer" in world.said(), "a refusal")
        claim = world.api.allocate("c", cluster.share("gpu-x", "1Gi", "1"))
        assert "does not answer" in world.kubelet.prepare(claim)[claim[1]]
        assert SLICE not in world.api.objects and world.left() == []


def goes_on_without_answers():
    """Of whatever kind: it says so once, and publishes when there are some."""
    with World() as world:
        world.api.broken = (200, b"{\"metadata\": [")
        world.start()
        until(lambda: "no JSON" in world.said(), "a complaint")
        world.api.broken = (500, b"\xff" * 100)
        until(lambda: "500" in world.said(), "another complaint")
        world.api.broken = None
        until(lambda: SLICE in world.api.objects, "a ResourceSlice")
        assert world.said().count("no JSON") == 1


def a_node_that_is_not_there():
    with World() as world:
        node = world.api.objects.pop(NODE_PATH)
        world.start()
        until(lambda: f"the API server has no node {NODE}: write --node" in world.said(), "what is wrong")
        assert SLICE not in world.api.objects
        world.api.objects[NODE_PATH] = node
        until(lambda: SLICE in world.api.objects, "a ResourceSlice")
        assert world.said().count("has no node") == 1, "it is said again and again"


def a_node_that_is_another_machine():
    """The name of another node of the cluster."""
    with World() as world:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            here = boot.read().strip()
        info = world.api.objects[NODE_PATH].setdefault("status", {}).setdefault("nodeInfo", {"bootID": "another"})
        world.start()
        until(lambda: "is another machine" in world.said() and "write --node" in world.said(), "what is wrong")
        assert SLICE not in world.api.objects and here in world.said()
        info["bootID"] = here  # it was this machine, whose kubelet had not started
        until(lambda: SLICE in world.api.objects, "a ResourceSlice")


cluster.run([publishes, publishes_again, a_sick_gpu_is_not_published, without_consumable_capacity,
             a_node_that_is_not_there, a_node_that_is_another_machine, reads_the_token_again,
             trusts_its_certificates_alone, goes_on_without_answers])
