#!/usr/bin/python3
"""runtime.py: runc as NVIDIA's container runtime wraps it, for a simulated GPU.

containerd calls it as it calls runc. A container whose environment has NVIDIA_VISIBLE_DEVICES gets the
simulated driver and the GPU's state; every other one is left as it is. SIMULATED names the directory of the
driver's libraries, and STATE that of the state; run.sh writes both in the place of the words below.
"""
import json
import os
import platform
import sys

SIMULATED = "@SIMULATED@"
STATE = "@STATE@"
LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"


def bind(source, destination, *options):
    return {"type": "bind", "source": source, "destination": destination, "options": ["rbind", *options]}


def add_gpu(path):
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    environment = spec["process"].get("env", [])
    values = dict(variable.split("=", 1) for variable in environment)
    if values.get("NVIDIA_VISIBLE_DEVICES", "void") in ("", "none", "void"):
        return
    environment += ["VGPU_SIM_STATE=/run/simulated/gpu", "VGPU_SIM_GPUS=1x80G"]
    spec["mounts"].append(bind(STATE, "/run/simulated", "rw"))
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        spec["mounts"].append(bind(f"{SIMULATED}/{library}", f"{LIBRARIES}/{library}", "ro"))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)


def main():
    arguments = sys.argv[1:]
    if "create" in arguments:
        bundle = arguments[arguments.index("--bundle") + 1] if "--bundle" in arguments else "."
        add_gpu(os.path.join(bundle, "config.json"))
    os.execvp("runc", ["runc", *arguments])


main()
