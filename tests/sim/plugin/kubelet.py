"""Registration, the list, Allocate and preferred allocation, as a kubelet meets them."""
import os
import stat

import fake
from fake import SLICE, World


def uuids(devices):
    return sorted({i.split("::")[0] for i in devices})


def registers_and_lists():
    with World() as world:
        world.configure(SLICE + "  - {name: vgpu.dev/half, memory: 16Gi, replicas: 2, devices: [1]}\n")
        world.kubelet.start()
        world.start()
        paths = world.kubelet.wait(2)
        assert sorted(paths) == ["vgpu.dev/half", "vgpu.dev/slice-8g-30c"]
        for path in paths.values():
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        slices = fake.Endpoint(paths["vgpu.dev/slice-8g-30c"])
        assert fake.fields(slices.call("GetDevicePluginOptions")) == fake.OPTIONS
        devices = slices.watch().get(timeout=fake.PATIENCE_S)
        assert len(devices) == 8 and len(uuids(devices)) == 2
        assert all(health == "Healthy" for health, _ in devices.values())
        assert all(i.split("::")[1:] == ["slice-8g-30c", str(n % 4)] for n, i in
                   enumerate(sorted(devices)))
        halves = fake.Endpoint(paths["vgpu.dev/half"]).watch().get(timeout=fake.PATIENCE_S)
        assert len(halves) == 2 and len(uuids(halves)) == 1
        world.stop()
        assert os.listdir(world.kubelet.dir) == ["kubelet.sock"]


def answers_before_register_does():
    with World(asks_first=True) as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        world.kubelet.wait()


def allocates():
    with World() as world:
        world.configure(SLICE)
        os.mkdir(world.regions, 0o755)  # as for a hostPath that was not there
        world.kubelet.start()
        world.start()
        endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"])
        assert stat.S_IMODE(os.stat(world.regions).st_mode) == 0o700
        devices = sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))
        one, both = endpoint.allocate([devices[0]], [devices[1], devices[2], devices[4]])
        first, second = uuids(devices)
        assert one.envs == {"NVIDIA_VISIBLE_DEVICES": first}
        assert one.policy() == {
            first: {"memory": "8G", "cores": "30"},
            "slice": {"region": "/run/vgpu/region", "name": "slice-8g-30c"}}, one.policy()
        assert {inside: mount[1] for inside, mount in one.mounts.items()} == {
            "/usr/local/lib/libvgpu.so": 1, "/etc/ld.so.preload": 1, "/etc/vgpu/policy": 1,
            "/run/vgpud": 1, "/run/vgpu": 0}
        assert one.mounts["/run/vgpud"][0] == "/run/vgpud"
        with open(one.host("/usr/local/lib/libvgpu.so"), "rb") as ours, \
                open(fake.LIBRARY, "rb") as library:
            assert ours.read() == library.read()
        with open(one.host("/etc/ld.so.preload")) as preload:
            assert preload.read() == "/usr/local/lib/libvgpu.so\n"
        assert stat.S_IMODE(os.stat(one.host("/run/vgpu")).st_mode) == 0o1777
        assert both.envs == {"NVIDIA_VISIBLE_DEVICES": first + "," + second}
        assert both.policy()[first] == {"memory": "16G", "cores": "60"}
        assert both.policy()[second] == {"memory": "8G", "cores": "30"}
        assert one.name() != both.name() and world.directories() == sorted([one.name(), both.name()])


def refuses_what_is_not_there():
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start()
        endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"])
        device = sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))[0]
        for ids in [[device[:-1] + "4"], [device[:-1] + "00"], ["../../../etc"], [""], [],
                    [device, device], [device + "\0"], ["GPU-" + "x" * 5000]]:
            try:
                endpoint.allocate(ids)
            except fake.grpc.RpcError as error:
                assert error.code() == fake.grpc.StatusCode.INVALID_ARGUMENT, error
            else:
                raise AssertionError(f"{ids} is allocated")
        try:
            endpoint.call("Nothing")
        except fake.grpc.RpcError as error:
            assert error.code() == fake.grpc.StatusCode.UNIMPLEMENTED, error
        assert world.directories() == []


def hands_gpus_over_in_other_ways():
    with World() as world:
        world.configure(
            SLICE, "    deviceListStrategy: [volume-mounts, cdi-cri, cdi-annotations]\n"
            "    passDeviceSpecs: true\n    turns: /run/vgpu-turns\n")
        world.kubelet.start()
        world.start()
        endpoint = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"])
        devices = sorted(endpoint.watch().get(timeout=fake.PATIENCE_S))
        container = endpoint.allocate([devices[0], devices[4]])[0]
        names = ["nvidia.com/gpu=" + uuid for uuid in uuids(devices)]
        assert container.cdi == names
        assert container.annotations == {"cdi.k8s.io/vgpu_" + container.name(): ",".join(names)}
        assert container.envs == {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}
        for uuid in uuids(devices):
            assert container.host("/var/run/nvidia-container-devices/" + uuid) == "/dev/null"
        assert container.mounts["/run/vgpu-host/turns"] == ("/run/vgpu-turns", 0)


def prefers():
    with World() as world:
        world.configure(SLICE + "  - {name: vgpu.dev/packed, memory: 1Gi, replicas: 4, placement: pack}\n")
        world.kubelet.start()
        world.start()
        paths = world.kubelet.wait(2)
        spread = fake.Endpoint(paths["vgpu.dev/slice-8g-30c"])
        pack = fake.Endpoint(paths["vgpu.dev/packed"])
        devices = sorted(spread.watch().get(timeout=fake.PATIENCE_S))
        assert sorted(spread.prefer(devices, [], 2)) == [devices[0], devices[4]]
        assert spread.prefer(devices[2:], [], 1) == [devices[4]]
        assert sorted(spread.prefer(devices, [devices[3]], 2)) == [devices[3], devices[4]]
        devices = sorted(pack.watch().get(timeout=fake.PATIENCE_S))
        assert sorted(pack.prefer(devices, [], 2)) == devices[:2]
        assert pack.prefer(devices[:4] + devices[6:], [], 1) == [devices[6]]


def prefers_one_numa_node_or_one_gpu():
    """Four GPUs, of which the kernel says that two are near each NUMA node."""
    with World("4x80G") as world:
        devices = world.root + "/pci"
        for gpu in range(4):
            os.makedirs(f"{devices}/0000:{gpu + 1:02x}:00.0")
            with open(f"{devices}/0000:{gpu + 1:02x}:00.0/numa_node", "w") as node:
                node.write(f"{gpu // 2}\n")
        within = fake.in_place_of(devices, "/sys/bus/pci/devices")
        if not within:
            return
        world.configure("  - {name: vgpu.dev/near, memory: 1Gi, replicas: 2, placement: numa}\n"
                        "  - {name: vgpu.dev/same, memory: 1Gi, replicas: 2, placement: same-gpu}\n")
        world.kubelet.start()
        world.start(within=within)
        paths = world.kubelet.wait(2)
        near, same = [fake.Endpoint(paths["vgpu.dev/" + name]) for name in ("near", "same")]
        listed = near.watch().get(timeout=fake.PATIENCE_S)
        gpus = uuids(listed)
        assert {i: node for i, (_, node) in listed.items()} == {
            i: gpus.index(i.split("::")[0]) // 2 for i in listed}, listed

        def has(endpoint, available, must, size):
            """The GPUs, by number, of the preferred slices."""
            return sorted(gpus.index(i.split("::")[0]) for i in endpoint.prefer(available, must, size))

        ids = sorted(listed)
        assert has(near, ids[3:], [], 2) == [2, 3], "the node that has two left"
        assert has(near, ids, [ids[0]], 2) == [0, 1], "the node of the slice that it must have"
        assert has(near, ids, [], 4) in ([0, 0, 1, 1], [2, 2, 3, 3])
        assert len(has(near, ids, [], 5)) == 5, "more than a node has"
        ids = sorted(same.watch().get(timeout=fake.PATIENCE_S))
        assert has(same, ids[1:], [], 2) in ([1, 1], [2, 2], [3, 3])
        assert has(same, ids, [ids[5]], 2) == [2, 2]


def health_changes():
    """NVML answers for the first GPU only from the third look on."""
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        world.start(VGPU_SIM_FAULTS=",".join(f"nvmlDeviceGetMemoryInfo@{n}=15" for n in [1, 3, 5]))
        lists = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"]).watch()
        seen = lists.get(timeout=fake.PATIENCE_S)
        while any(health != "Healthy" for health, _ in seen.values()):
            first = uuids(seen)[0]
            assert all(health == ("Unhealthy" if i.startswith(first) else "Healthy")
                       for i, (health, _) in seen.items()), seen
            seen = lists.get(timeout=fake.PATIENCE_S)
        assert "NVML does not answer for GPU 0" in world.said()


def errors_make_unhealthy():
    """GPU 0 has an error of a program and one that is ignored, then one of its own; it stays unhealthy."""
    with World() as world:
        world.configure(SLICE)
        world.kubelet.start()
        errors = os.path.join(world.root, "xids")
        with open(errors, "w") as file:
            file.write("0 31\n0 74\n0 43\n")
        world.start("--ignore-xids", "74,119", VGPU_SIM_NVML_XIDS=errors)
        lists = fake.Endpoint(world.kubelet.wait()["vgpu.dev/slice-8g-30c"]).watch()
        seen = lists.get(timeout=fake.PATIENCE_S)
        assert all(health == "Healthy" for health, _ in seen.values()), seen
        with open(errors, "a") as file:
            file.write("0 48\n0 31\n")
        seen = lists.get(timeout=fake.PATIENCE_S)
        first = uuids(seen)[0]
        assert all(health == ("Unhealthy" if i.startswith(first) else "Healthy")
                   for i, (health, _) in seen.items()), seen
        assert "has had the error XID 48" in world.said() and "XID 74" not in world.said()
    with World() as world:
        world.configure(SLICE)
        assert world.start("--ignore-xids", "74,x").wait(fake.PATIENCE_S) == 2
        assert "is no list of XIDs" in world.said()
        assert world.start("--pods", "kubelet.sock").wait(fake.PATIENCE_S) == 2
        assert '--pods "kubelet.sock" is no absolute path: write one that begins with /' in world.said()


fake.run([registers_and_lists, answers_before_register_does, allocates, refuses_what_is_not_there,
          hands_gpus_over_in_other_ways, prefers, prefers_one_numa_node_or_one_gpu, health_changes,
          errors_make_unhealthy])
