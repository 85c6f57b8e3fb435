"""The kubelet restarts and removes all sockets; the plugin is killed and started again under load."""
import os
import shutil
import signal
import stat
import threading
import time

import fake
from fake import SLICE, World

RESOURCE = "vgpu.dev/slice-8g-30c"


def kubelet_restarts():
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        path = world.kubelet.wait()[RESOURCE]
        lists = fake.Endpoint(path).watch()
        devices = lists.get(timeout=fake.PATIENCE_S)
        for _ in range(5):
            world.kubelet.stop()
            world.kubelet.start()
            assert world.kubelet.wait() == {RESOURCE: path}
            assert lists.get(timeout=fake.PATIENCE_S) is None, "the old stream goes on"
            lists = fake.Endpoint(path).watch()
            assert lists.get(timeout=fake.PATIENCE_S) == devices, "other devices"
        world.stop()


def kubelet_comes_later():
    with World() as world:
        world.configure(SLICE)
        shutil.rmtree(world.kubelet.dir)
        world.start()
        fake.until(lambda: "not registered yet" in world.said(), "a line that says what is wrong")
        world.kubelet.start()
        world.kubelet.wait()
        # The whole directory is made again.
        world.kubelet.stop()
        os.rename(world.kubelet.dir, world.kubelet.dir + "-old")
        world.kubelet.start()
        world.kubelet.wait()


def socket_is_removed():
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        path = world.kubelet.wait()[RESOURCE]
        os.unlink(path)
        assert world.kubelet.wait() == {RESOURCE: path}
        fake.Endpoint(path).call("GetDevicePluginOptions")


def kubelet_forgets():
    """A kubelet that was registered with and does not ask for the list gets another chance."""
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        world.kubelet.wait()
        world.kubelet.wait()


def plugin_is_killed_under_load():
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        path = world.kubelet.wait()[RESOURCE]
        devices = fake.Endpoint(path).watch().get(timeout=fake.PATIENCE_S)
        names, ends = [], threading.Event()

        def load(device):
            while not ends.is_set():
                try:
                    endpoint = fake.Endpoint(path)
                    for _ in range(20):
                        names.append(endpoint.allocate([device])[0].name())
                except fake.grpc.RpcError:
                    pass
                finally:
                    endpoint.close()

        threads = [threading.Thread(target=load, args=(device,)) for device in devices]
        for thread in threads:
            thread.start()
        for _ in range(5):
            time.sleep(0.3)
            world.plugin.send_signal(signal.SIGKILL)
            world.plugin.wait()
            world.start()
            world.kubelet.wait()
            assert fake.Endpoint(path).watch().get(timeout=fake.PATIENCE_S) == devices
        ends.set()
        for thread in threads:
            thread.join()
        assert len(names) == len(set(names)) > 50, f"{len(names)} containers, {len(set(names))} names"
        # What the kubelet was answered is there, and nothing is half there after a start.
        there = world.directories()
        assert set(names) <= set(there), "a container's directory is missing"
        for name in there:
            assert sorted(os.listdir(f"{world.state}/{name}")) == ["policy", "record"]
            assert len(os.listdir(f"{world.state}/{name}/policy")) == 2
        world.stop()
        world.start()
        world.kubelet.wait()
        assert not [n for n in os.listdir(world.state) if n.startswith(".new")]


def node_restarts():
    """Regions are in memory; what has a policy has a region's directory again, for every user."""
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        path = world.kubelet.wait()[RESOURCE]
        devices = sorted(fake.Endpoint(path).watch().get(timeout=fake.PATIENCE_S))
        containers = fake.Endpoint(path).allocate([devices[0]], [devices[1]])
        world.stop()
        shutil.rmtree(world.regions)
        # As containerd makes what it does not find.
        os.makedirs(containers[1].host("/run/vgpu"), mode=0o755)
        with open(containers[0].host("/usr/local/lib/libvgpu.so"), "w") as library:
            library.write("an older one")
        world.start()
        world.kubelet.wait()
        for container in containers:
            assert stat.S_IMODE(os.stat(container.host("/run/vgpu")).st_mode) == 0o1777
        with open(containers[0].host("/usr/local/lib/libvgpu.so"), "rb") as ours, \
                open(fake.LIBRARY, "rb") as library:
            assert ours.read() == library.read()


fake.run([kubelet_restarts, kubelet_comes_later, socket_is_removed, kubelet_forgets,
          plugin_is_killed_under_load, node_restarts])
