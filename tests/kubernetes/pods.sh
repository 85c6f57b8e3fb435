# pods.sh, sourced by scenes.sh: pods that use a slice, and questions about them.
# shellcheck shell=sh

# pod NAME RESOURCE COMMAND [COUNT]: a pod of one container that asks for so many of the resource, 1 by default.
# The driver comes from the node's runtime (runtime.py).
pod() {
    kubectl apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  runtimeClassName: nvidia
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
  - name: main
    image: localhost/vgpu-test:1
    command: [sh, -c, "$3"]
    resources: {limits: {$2: ${4:-1}}}
YAML
}

logged() {
    kubectl logs "$1" | grep -q "$2"
}

both_logged() {
    logged "$1" "$3" && logged "$2" "$3"
}

# are_full NAME...: the programs of all of these have taken their whole slice.
are_full() {
    for name in "$@"; do
        is_running "$name" && logged "$name" 'one byte more' || return 1
    done
}

is_running() {
    [ "$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].state.running.startedAt}')" ]
}

is_gone() {
    ! kubectl get pod "$1"
}

# restarts_of POD [NAMESPACE]: of all its containers together.
restarts_of() {
    kubectl -n "${2:-default}" get pod "$1" -o 'jsonpath={.status.containerStatuses[*].restartCount}' |
        tr ' ' '\n' | awk '{ sum += $1 } END { print sum + 0 }'
}

# has_restarted POD TIMES [NAMESPACE]
has_restarted() {
    [ "$(restarts_of "$1" "${3:-default}")" -ge "$2" ]
}

# event NAME REASON TEXT: an event of that pod.
event() {
    kubectl get events --field-selector "involvedObject.name=$1,reason=$2" -o 'jsonpath={.items[*].message}' | grep -qF "$3"
}

# offers RESOURCE COUNT
offers() {
    kubectl get node "$node" -o json | grep -A 20 '"allocatable"' | grep -q "\"$1\": \"$2\""
}

# main_process POD [CONTAINER] [NAMESPACE]: its first process, as a number of this namespace.
main_process() {
    id=$(kubectl -n "${3:-default}" get pod "$1" \
        -o "jsonpath={.status.containerStatuses[?(@.name==\"${2:-main}\")].containerID}")
    ctr -n k8s.io tasks ls | awk -v id="${id#containerd://}" '$1 == id { print $2; found = 1 } END { exit !found }'
}

# containers POD...: what identifies those that run now.
containers() {
    kubectl get pods "$@" -o 'jsonpath={.items[*].status.containerStatuses[*].containerID}'
}

same() {
    [ "$1" = "$2" ] && [ -n "$1" ]
}

# outside PROGRAM [ARGUMENT...]: of the build, on the simulated GPU, in no slice.
outside() {
    program=$1
    shift
    env LD_LIBRARY_PATH="$build/sim" VGPU_SIM_STATE="$scratch/sim/gpu" VGPU_SIM_GPUS=1x80G \
        "$(find "$build/demo" "$build/bench" -name "$program" -type f)" "$@"
}

# holds_mib LEAST MOST: what NVML counts on the GPU.
holds_mib() {
    used=$(outside outside | cut -d ' ' -f 1)
    if [ "$used" -lt "$1" ] || [ "$used" -gt "$2" ]; then
        echo "NVML counts $used MiB" >&2
        return 1
    fi
}

# Two full slices of 2 GiB: each at least 99 % of it, and at most a granule above.
holds_two() {
    holds_mib 4056 4100
}

# has_share POD MOST: in percent.
has_share() {
    share=$(kubectl logs "$1" | sed -n 's/.*\<share=\([0-9.]*\).*/\1/p' | tail -n 1)
    awk -v share="$share" -v most="$2" 'BEGIN { exit !(share > 0 && share * 100 <= most) }' || {
        echo "its share is $share" >&2
        return 1
    }
}

# The image of pods, a shell and the programs that they run; and that of the node's agents, in the places of
# Containerfile.
make_images() {
    lay "$scratch/pods" /usr/bin /bin/sh /usr/bin/sleep /usr/bin/cat /usr/bin/env \
        "$build/demo/hog" "$build/bench/shares"
    image localhost/vgpu-test:1 "$scratch/pods"
    lay "$scratch/agents" /usr/bin "$build/vgpu" "$build/vgpud" "$build/vgpu-device-plugin"
    lay "$scratch/agents" /usr/lib/vgpu "$build/libvgpu.so"
    image localhost/vgpu:1 "$scratch/agents"
}

# The plugin, by the manifests of deploy/, with the slices of this test.
install_plugin() {
    kubectl apply -f - >/dev/null <<'YAML'
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
YAML
    mkdir -p "$scratch/deploy/test"
    cp -r "$here/../../deploy/kubernetes" "$scratch/deploy/"
    cp "$here/kustomization.yaml" "$here/config.yaml" "$scratch/deploy/test/"
    kubectl apply -k "$scratch/deploy/test" >/dev/null
    wait_for 90 'the slices' offers "$big" 2
}

# agent NAME: its pod.
agent() {
    kubectl -n vgpu get pods -l "app.kubernetes.io/name=$1" -o 'jsonpath={.items[0].metadata.name}'
}

# Whether vgpud's metrics have the memory of two full slices as the GPU's.
serves_memory() {
    nsenter --net="/proc/$(main_process "$(agent vgpud)" vgpud vgpu)/ns/net" \
        curl -s -k -H "Authorization: Bearer $(cat "$scratch/token")" https://127.0.0.1:9742/metrics >"$scratch/metrics"
    awk '/^vgpu_gpu_memory_used_bytes/ && $2 >= 4056 * 2^20 { found = 1 } END { exit !found }' "$scratch/metrics"
}

# The metrics say whose the slices of both pods are.
serves_pods() {
    serves_memory &&
        grep -q '^vgpu_slice_memory_used_bytes{.*namespace="default",pod="a",container="main"' "$scratch/metrics" &&
        grep -q '^vgpu_slice_memory_used_bytes{.*namespace="default",pod="b",container="main"' "$scratch/metrics"
}

# is_taken FILE: by the API server, which does not do what it says.
is_taken() {
    kubectl apply --dry-run=server -f "$1" >/dev/null
}
