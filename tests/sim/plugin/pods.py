"""The names of containers are written down beside their policies, as the kubelet says them."""
import os

import fake
from fake import SLICE, World

LAB = ("lab", "train-0", "main")


def start(world):
    world.configure(SLICE)
    world.kubelet.start()
    world.start()
    endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"])
    return endpoint, sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))


def give(world, endpoint, device, names, starts=True):
    """A container of that pod, which is about to start."""
    name = endpoint.allocate([device])[0].name()
    world.kubelet.named[device] = names
    world.kubelet.pods = [p for p in world.kubelet.pods if p != [device]] + [[device]]
    if starts:
        assert endpoint.begin(device) is None
    return name


def until_named(world, name, line):
    fake.until(lambda: world.pod(name) == line + "\n", f"{line} of {name}, but {world.pod(name)}")


def names_containers():
    with World() as world:
        endpoint, devices = start(world)
        one = give(world, endpoint, devices[0], LAB)
        until_named(world, one, "lab/train-0/main")
        other = give(world, endpoint, devices[1], ("default", "x.y", "c"))
        until_named(world, other, "default/x.y/c")
        assert world.pod(one) == "lab/train-0/main\n"
        assert os.stat(f"{world.state}/{one}/pod").st_uid == os.getuid()


def keeps_the_name_of_the_one_before():
    """A device goes to another pod while the record of the former is kept."""
    with World() as world:
        endpoint, devices = start(world)
        former = give(world, endpoint, devices[0], LAB)
        until_named(world, former, "lab/train-0/main")
        later = give(world, endpoint, devices[0], ("lab", "train-1", "main"))
        until_named(world, later, "lab/train-1/main")
        assert world.pod(former) == "lab/train-0/main\n"


def does_not_take_a_late_answer():
    """An answer to a question from before a container was made names it not."""
    with World() as world:
        endpoint, devices = start(world)
        world.kubelet.sends.clear()
        give(world, endpoint, devices[0], LAB)
        assert world.kubelet.asked.acquire(timeout=fake.PATIENCE_S)
        later = give(world, endpoint, devices[0], ("lab", "train-1", "main"))
        world.kubelet.sends.set()
        fake.until(lambda: world.pod(later), "a name")
        assert world.pod(later) == "lab/train-1/main\n", world.pod(later)


def names_no_init_container():
    """Both have the same device, and the kubelet lists the one that goes on."""
    with World() as world:
        endpoint, devices = start(world)
        init, main = [c.name() for c in endpoint.allocate([devices[0]], [devices[0]])]
        world.kubelet.named[devices[0]], world.kubelet.pods = LAB, [[devices[0]]]
        assert endpoint.begin(devices[0]) is None
        until_named(world, main, "lab/train-0/main")
        assert world.pod(init) is None


def writes_no_odd_name():
    odd = [("../../x", "a", "b"), ("lab", "a\n", "b"), ("lab", "a/b", "c"), ("lab", "\x1b[2J", "c"),
           ("lab", "", "c"), ("l" * 64, "a", "b"), ("lab", "p" * 254, "c")]
    with World(gpus="2x80G") as world:
        endpoint, devices = start(world)
        made = [give(world, endpoint, device, names) for device, names in zip(devices, odd)]
        good = give(world, endpoint, devices[7], LAB)
        until_named(world, good, "lab/train-0/main")
        assert [world.pod(name) for name in made] == [None] * 7
        assert world.plugin.poll() is None


def names_after_a_restart():
    """The kubelet said nothing while the container started; the plugin was started again."""
    with World() as world:
        endpoint, devices = start(world)
        os.rename(world.kubelet.pods_socket, world.kubelet.pods_socket + ".away")
        name = give(world, endpoint, devices[0], LAB)
        fake.until(lambda: "cannot find the pods of containers: cannot call" in world.said(), "a warning")
        assert world.pod(name) is None
        world.stop()
        os.rename(world.kubelet.pods_socket + ".away", world.kubelet.pods_socket)
        world.start()
        until_named(world, name, "lab/train-0/main")


def says_once_why_names_are_missing():
    with World() as world:
        endpoint, devices = start(world)
        os.rename(world.kubelet.pods_socket, world.kubelet.pods_socket + ".away")
        name = give(world, endpoint, devices[0], LAB)
        for _ in range(3):
            assert endpoint.begin(devices[0]) is None
        os.rename(world.kubelet.pods_socket + ".away", world.kubelet.pods_socket)
        assert endpoint.begin(devices[0]) is None
        until_named(world, name, "lab/train-0/main")
        world.stop()
        assert world.said().count("cannot find the pods of containers") == 1, world.said()


fake.run([names_containers, keeps_the_name_of_the_one_before, does_not_take_a_late_answer,
          names_no_init_container, writes_no_odd_name, names_after_a_restart,
          says_once_why_names_are_missing])
