"""Claims that vgpu-dra has prepared, in containers of Podman; the kubelet and the API server are those of tests/sim/dra.
claims.sh sets the variables: ENGINE and FLAGS are words of a command."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sim", "dra"))
import cluster  # noqa: E402
from cluster import CLAIMS, World, share, until  # noqa: E402

ENGINE, FLAGS, SPECS = os.environ["ENGINE"].split(), os.environ["FLAGS"].split(), "/run/cdi"


def engine(*words):
    done = subprocess.run([*ENGINE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return done.returncode, done.stdout


def device(claim):
    return ["--device", "vgpu.local/slice=claim-" + claim[1]]


def run(claim, *command):
    return engine("run", "--rm", *FLAGS, *device(claim), "vgpu-test", *command)[1]


def is_held(said, mib):
    assert f"the program sees a GPU of {mib} MiB" in said and "one byte more: CUDA_ERROR_OUT_OF_MEMORY" in said, said


def start():
    world = World()
    world.cdi = SPECS
    world.env.update(VGPU_SIM_STATE=os.environ["VGPU_SIM_STATE"], LD_LIBRARY_PATH=os.environ["SIM"])
    return world


def prepared(world, name, memory):
    claim = world.api.allocate(name, share(world.devices()[0], memory, "30"))
    (_, _, _, cdi), = world.kubelet.prepare(claim)[claim[1]]
    assert cdi == ["vgpu.local/slice=claim-" + claim[1]]
    return claim


def are_held():
    with start() as world:
        world.ready()
        alice, bob = prepared(world, "alice", "2Gi"), prepared(world, "bob", "1Gi")
        is_held(run(alice, "hog"), 2048)
        is_held(run(bob, "hog"), 1024)
        is_held(run(alice, "env", "-i", "VGPU_SIM_STATE=/gpu/state", "VGPU_SIM_GPUS=2x80G", "hog"), 2048)
        code, said = engine("run", "-d", "-i", "--name", "full", *FLAGS, *device(alice), "vgpu-test", "sh", "-c",
                            "sleep 1000 | hog")
        assert code == 0, said
        until(lambda: "one byte more" in engine("logs", "full")[1], "a full slice")
        said = run(alice, "hog")
        assert "CUDA_ERROR_OUT_OF_MEMORY" in said and "it took" not in said, "containers of one claim are one slice: " + said
        is_held(run(bob, "hog"), 1024)
        status, out, _ = world.vgpu("ps", "-q")
        assert (status, sorted(out.split())) == (0, ["team/alice", "team/bob"]), out
        # The kubelet and the driver start again.
        world.stop()
        world.kubelet.close()
        world.start()
        assert isinstance(world.kubelet.prepare(alice)[alice[1]], list)
        assert "CUDA_ERROR_OUT_OF_MEMORY" in run(alice, "hog")
        engine("rm", "-f", "-t", "0", "full")
        is_held(run(alice, "hog"), 2048)
        assert world.kubelet.unprepare(alice, bob) == {alice[1]: "", bob[1]: ""}
        assert "the program sees" not in run(alice, "hog"), "a device that was removed"


def stay_while_a_container_lives():
    """The kubelet has forgotten the claim, and a container still has it, in which no program uses the GPU."""
    with start() as world:
        world.ready("--sweep", "1")
        claim = prepared(world, "alice", "2Gi")
        path = CLAIMS % (claim[0], claim[2])
        code, said = engine("run", "-d", "--name", "idle", *FLAGS, *device(claim), "vgpu-test", "sleep", "1000")
        assert code == 0, said
        del world.api.objects[path]
        asked = len(world.api.asked)
        until(lambda: world.api.asked[asked:].count(path) >= 3, "rounds")
        is_held(engine("exec", "idle", "hog")[1], 2048)
        engine("rm", "-f", "-t", "0", "idle")
        until(lambda: not [name for name in os.listdir(SPECS) if claim[1] in name] and not world.left(), "the removal")


cluster.run([are_held, stay_while_a_container_lives])
