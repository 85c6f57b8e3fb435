"""What a container mounts is lost before it starts: it is made again, or the container does not start."""
import os
import shutil
import stat

import fake
from fake import SLICE, World

RESOURCE = "vgpu.dev/slice-8g-30c"
LIBRARY, PRELOAD = "/usr/local/lib/libvgpu.so", "/etc/ld.so.preload"
LOST = fake.grpc.StatusCode.FAILED_PRECONDITION


def start(world):
    world.configure(SLICE)
    world.kubelet.start()
    world.start()
    endpoint = fake.Endpoint(world.kubelet.wait()[RESOURCE])
    return endpoint, sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def is_whole(container):
    assert read(container.host(LIBRARY)) == read(fake.LIBRARY)
    assert read(container.host(PRELOAD)) == b"/usr/local/lib/libvgpu.so\n"
    for inside in LIBRARY, PRELOAD:
        assert stat.S_IMODE(os.stat(container.host(inside)).st_mode) == 0o644
    assert stat.S_IMODE(os.stat(container.host("/run/vgpu")).st_mode) == 0o1777


def refuses(error, code, *words):
    assert error and error.code() == code, error
    for word in words:
        assert word in error.details(), error


def files_come_back():
    with World() as world:
        endpoint, devices = start(world)
        container = endpoint.allocate(devices[:2])[0]
        files = [container.host(LIBRARY), container.host(PRELOAD)]

        def begins():
            # The kubelet's order of IDs is another one each time.
            assert endpoint.begin(devices[1], devices[0]) is None
            is_whole(container)

        begins()
        inodes = [os.stat(file).st_ino for file in files]
        begins()
        assert inodes == [os.stat(file).st_ino for file in files], "a file that is whole is replaced"
        for file in files:
            os.unlink(file)
        begins()
        for file in files:  # as containerd makes what it does not find
            os.unlink(file)
            os.mkdir(file)
        begins()
        for file in files:
            os.chmod(file, 0o600)
        begins()
        for file in files:
            os.truncate(file, 3)
        begins()
        shutil.rmtree(world.regions)
        begins()
        os.chmod(container.host("/run/vgpu"), 0o755)
        begins()
        os.unlink(files[0])
        os.makedirs(files[0] + "/something")
        refuses(endpoint.begin(*devices[:2]), fake.grpc.StatusCode.INTERNAL, "not empty", files[0])
        assert os.path.exists(files[0] + "/something")
        assert "refuses the start of a container" in world.said()


def needs_no_package():
    """The library that the containers' copy is made of is removed while the plugin runs."""
    with World() as world:
        world.configure(SLICE)
        shutil.copy(fake.LIBRARY, world.root + "/libvgpu.so")
        with open(world.config) as file:
            text = file.read().replace(fake.LIBRARY, world.root + "/libvgpu.so")
        with open(world.config, "w") as file:
            file.write(text)
        world.kubelet.start()
        world.start()
        endpoint = fake.Endpoint(world.kubelet.wait()[RESOURCE])
        device = sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))[0]
        container = endpoint.allocate([device])[0]
        os.unlink(world.root + "/libvgpu.so")
        assert endpoint.begin(device) is None
        os.unlink(container.host(LIBRARY))
        assert endpoint.begin(device) is None
        is_whole(container)


def limits_are_lost():
    with World() as world:
        endpoint, devices = start(world)
        container = endpoint.allocate([devices[0]])[0]
        shutil.rmtree(world.state)
        refuses(endpoint.begin(devices[0]), LOST, world.state, "no policy", "delete the pod")
        # The next pod has the devices, and all that it needs.
        container = endpoint.allocate([devices[0]])[0]
        assert endpoint.begin(devices[0]) is None
        is_whole(container)
        assert len(container.policy()) == 2
        # Also a pod that comes without a start in between.
        shutil.rmtree(world.state)
        shutil.rmtree(world.regions)
        is_whole(endpoint.allocate([devices[1]])[0])
        # A runtime has made a directory of a policy that is gone.
        container = endpoint.allocate([devices[2]])[0]
        shutil.rmtree(container.host("/etc/vgpu/policy"))
        refuses(endpoint.begin(devices[2]), LOST, "is missing", "delete the pod")
        os.mkdir(container.host("/etc/vgpu/policy"))
        refuses(endpoint.begin(devices[2]), LOST, "has no GPU", "delete the pod")


def limits_of_others_do_not_count():
    with World() as world:
        endpoint, devices = start(world)
        endpoint.allocate(devices[:2], [devices[2]])
        for ids in [devices[:1], devices[:3], [devices[0], devices[0]], [devices[0], devices[2]], devices[3:4]]:
            refuses(endpoint.begin(*ids), LOST, "no policy")
        refuses(endpoint.begin(), fake.grpc.StatusCode.INVALID_ARGUMENT)
        refuses(endpoint.begin("x" * 5000), fake.grpc.StatusCode.INVALID_ARGUMENT)
        # The configuration has other slices now; the container is one of before.
        world.stop()
        world.configure("  - {name: vgpu.dev/other, memory: 1Gi, replicas: 1}\n")
        world.start()
        endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/other"])
        assert endpoint.begin(*devices[:2]) is None


def a_mounted_directory_is_lost():
    """The plugin has the host's directories mounted, as in a pod and in its unit."""
    for name in "state", "regions":
        with World() as world:
            host, here = world.root + "/host", world.root + "/here"
            mounts = fake.mounted(host, here)
            if not mounts:
                return
            if name == "state":
                world.state = here + "/kubernetes"
            else:
                world.regions = here
            world.configure(SLICE)
            world.kubelet.start()
            world.start(within=mounts)
            world.kubelet.wait()
            shutil.rmtree(host)
            assert world.plugin.wait(fake.PATIENCE_S) == 125, "the status"
            assert f"{world.state} or {world.regions} was removed" in world.said()


fake.run([files_come_back, needs_no_package, limits_are_lost, limits_of_others_do_not_count,
          a_mounted_directory_is_lost])
