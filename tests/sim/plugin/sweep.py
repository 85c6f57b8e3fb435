"""What containers had is removed when they are gone, and not before."""
import os
import subprocess
import time

import fake
from fake import SLICE, World

GRACE_S = 2


def start(world):
    world.configure(SLICE)
    world.kubelet.start()
    world.start("--grace", str(GRACE_S))
    endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"])
    return endpoint, sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))


def wait_looks():
    """For as long as anything takes to be removed that will be."""
    time.sleep(4 * GRACE_S + 2)


def removes_what_no_pod_has():
    with World() as world:
        endpoint, devices = start(world)
        kept, gone = [c.name() for c in endpoint.allocate([devices[0]], [devices[1]])]
        world.kubelet.pods = [[devices[0]]]
        # All that a tenant may have made: links, pipes, directories without rights.
        region = f"{world.regions}/{gone}"
        os.symlink("/", region + "/root")
        os.symlink(f"{world.state}/{kept}", region + "/kept")
        os.mkfifo(region + "/pipe")
        os.makedirs(region + "/a/b/c")
        if os.geteuid() == 0:  # as the plugin is: another user's plugin may not look into it
            os.chmod(region + "/a", 0)
        fake.until(lambda: world.directories() == [kept], "one that is left")
        fake.until(lambda: os.listdir(world.regions) == [kept], "one that is removed wholly")
        assert set(os.listdir(f"{world.state}/{kept}")) - {"pod"} == {"policy", "record"}


def keeps_what_a_process_has():
    with World() as world:
        endpoint, devices = start(world)
        container = endpoint.allocate([devices[0]])[0]
        program = subprocess.Popen(
            ["env", "LD_PRELOAD=" + fake.LIBRARY, os.environ["HOG"]],
            env=dict(world.env, VGPU_POLICY=as_seen_here(world, container)),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        fake.until(lambda: os.path.exists(container.host("/run/vgpu") + "/region"), "a region")
        time.sleep(1)
        wait_looks()
        assert world.directories() == [container.name()]
        program.kill()
        program.wait()
        fake.until(lambda: world.directories() == [], "none")


def as_seen_here(world, container):
    """The policy, with the region where it lies on the host."""
    made = world.root + "/policy"
    os.makedirs(made)
    for name in os.listdir(container.host("/etc/vgpu/policy")):
        with open(container.host("/etc/vgpu/policy") + "/" + name) as file:
            lines = file.read().replace("/run/vgpu/", container.host("/run/vgpu") + "/")
        with open(made + "/" + name, "w") as file:
            file.write(lines)
    return made


def made_s(world, name):
    with open(f"{world.state}/{name}/record") as record:
        return int(record.readline().split()[1])


def keeps_init_containers():
    """Two Allocates of the same devices, one right after the other, are of one pod."""
    with World() as world:
        endpoint, devices = start(world)
        for device in devices:
            world.kubelet.pods = [[device]]
            init, main = [c.name() for c in endpoint.allocate([device], [device])]
            if made_s(world, main) - made_s(world, init) < GRACE_S:
                break  # else this machine was too slow for them to be of one pod
        wait_looks()
        assert set(world.directories()) >= {init, main}
        # Another one, later: the pod of both is gone, though the devices are always in use.
        other = endpoint.allocate([device])[0].name()
        fake.until(lambda: world.directories() == [other], "one that is left")


def keeps_all_while_the_kubelet_says_nothing():
    with World() as world:
        endpoint, devices = start(world)
        name = endpoint.allocate([devices[0]])[0].name()
        os.unlink(world.kubelet.pods_socket)
        wait_looks()
        assert world.directories() == [name]
        said = world.said()
        assert said.count("cannot find out which pods have devices") == 1, "it is said again and again"
        assert world.kubelet.pods_socket in said and "see --pods" in said, said


def keeps_what_is_mounted():
    """In another mount namespace, as a container is."""
    with World() as world:
        endpoint, devices = start(world)
        container = endpoint.allocate([devices[0]])[0]
        target = world.root + "/target"
        os.makedirs(target)
        program = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && echo mounted && exec sleep 1000',
             container.host("/run/vgpu"), target], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if program.stdout.readline() == b"mounted\n":
            wait_looks()
            assert world.directories() == [container.name()]
        program.kill()
        program.wait()
        fake.until(lambda: world.directories() == [], "none")


fake.run([removes_what_no_pod_has, keeps_what_a_process_has, keeps_init_containers,
          keeps_all_while_the_kubelet_says_nothing, keeps_what_is_mounted])
