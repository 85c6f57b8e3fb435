#!/bin/sh
# scenes.sh BUILD PROGRAMS SCRATCH [SCENE...]: what run.sh runs within the namespaces: it starts the cluster and
# the plugin, then plays the scenes in order. A scene is a function of that name; each thing that it sees is a line
# of "ok" or "FAIL". The truth about the GPU is the simulated NVML's, asked outside of all slices.
set -eu
build=$1 programs=$2 scratch=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
. "$here/cluster.sh"
. "$here/image.sh"
. "$here/pods.sh"
failures=0

big=vgpu.dev/slice-2g-30c   # 2 GiB, 30 % of the time, two of them
small=vgpu.dev/slice-1g-10c # 1 GiB, 10 % of the time, four of them
single=vgpu.dev/single      # as small, and a container gets one at most
hog='sleep infinity | hog'  # takes its whole quota, and keeps it

# sees WHAT COMMAND...
sees() {
    seen=$1
    shift
    if "$@"; then
        echo "  ok    $seen"
    else
        echo "  FAIL  $seen"
        failures=$((failures + 1))
    fi
}

# Each scene begins with no pod and an empty GPU. Most need two pods that have filled both slices of 2 GiB.
two_full() {
    pod a "$big" "$hog"
    pod b "$big" "$hog"
    wait_for 180 'two full slices' are_full a b
}

# A third pod for two slices waits. The scheduler does not say again why a pod waits: the pod is made again
# while the reason is another one, as while a kubelet starts.
third_waits() {
    wait_for 180 'a pod that waits for a slice' third_is_refused
}

third_is_refused() {
    pod c "$big" "$hog"
    (wait_for 10 'the event' event c FailedScheduling "Insufficient $big") || {
        kubectl delete pod c --wait=true >/dev/null
        return 1
    }
}

shared() {
    sees 'two pods run at the same time on one GPU' two_full
    for name in a b; do
        sees "pod $name sees a GPU of 2048 MiB" logged "$name" 'a GPU of 2048 MiB'
        sees "pod $name is refused what exceeds its slice" logged "$name" 'one byte more: CUDA_ERROR_OUT_OF_MEMORY'
    done
    sees 'outside, NVML counts two slices and no more' holds_two
}

# A session in a container has neither the pod's environment nor LD_PRELOAD.
session() {
    two_full
    kubectl exec a -- env -i VGPU_SIM_STATE=/run/simulated/gpu hog </dev/null >"$scratch/session" 2>&1 || :
    sees 'a program started by kubectl exec and env -i has no context in a full slice' \
        grep -q 'CUDA_ERROR_OUT_OF_MEMORY' "$scratch/session"
    sees 'outside, NVML counts no more than before' holds_two
}

waiting() {
    two_full
    sees 'a third pod waits' third_waits
    kubectl delete pod a --wait=true >/dev/null
    sees 'it has the slice of one that has ended' wait_for 180 'pod c to be full' are_full c
    sees 'outside, NVML counts two slices' holds_two
}

# The region of a pod whose program is killed stays, and the next program finds the quota free.
killed() {
    two_full
    kill -9 "$(main_process b)"
    sees 'a pod that is killed is started again' wait_for 180 'a restart' has_restarted b 1
    sees 'and fills its slice again' wait_for 180 'pod b to be full' are_full b
    sees 'outside, NVML counts two slices' holds_two
}

evicted() {
    two_full
    third_waits
    echo '{"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "b", "namespace": "default"}}' |
        kubectl create --raw /api/v1/namespaces/default/pods/b/eviction -f - >/dev/null 2>&1
    sees 'a pod that is evicted is gone' wait_for 180 'pod b to go' is_gone b
    sees 'the pod that waited has its slice' wait_for 180 'pod c to be full' are_full c
    sees 'outside, NVML counts two slices' holds_two
}

# goes_on_with_pods: after a restart of the kubelet or of the plugin.
goes_on_with_pods() {
    sees 'it offers the slices again' wait_for 180 "2 of $big" offers "$big" 2
    sees 'the pods ran on' same "$before" "$(containers a b)"
    sees 'no slice is given twice' third_waits
    kubectl delete pod a --wait=true >/dev/null
    sees 'a slice that is free is given' wait_for 180 'pod c to be full' are_full c
    sees 'outside, NVML counts two slices' holds_two
}

kubelet_restarts() {
    two_full
    before=$(containers a b)
    stop kubelet
    start_kubelet
    goes_on_with_pods
}

plugin_restarts() {
    two_full
    before=$(containers a b) restarts=$(restarts_of "$(agent vgpu-device-plugin)" vgpu)
    kill -9 "$(main_process "$(agent vgpu-device-plugin)" vgpu-device-plugin vgpu)"
    sees 'the plugin is started again' \
        wait_for 180 'a restart' has_restarted "$(agent vgpu-device-plugin)" $((restarts + 1)) vgpu
    goes_on_with_pods
}

# Two pods that want all of the GPU's time. A busy machine may have less to give than their slices say.
gpu_time() {
    iterations=$(outside shares --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')
    pod a "$big" "shares $iterations --seconds=5 && sleep infinity"
    pod b "$small" "shares $iterations --seconds=5 && sleep infinity"
    sees 'two pods work at the same time' wait_for 180 'both to be done' both_logged a b share=
    sees 'the pod with 30 % gets that at most' has_share a 33
    sees 'the pod with 10 % gets that at most' has_share b 13
}

# What no slice can be is refused, and the pod's events say why.
wrong() {
    pod a "$single" "$hog" 2
    sees 'two slices where a container gets one at most: the events say so' \
        wait_for 180 'the event' event a UnexpectedAdmissionError 'a container gets one'
    pod b vgpu.dev/no-such-slice "$hog"
    sees 'a slice that no node has: the events say so' \
        wait_for 180 'the event' event b FailedScheduling 'Insufficient vgpu.dev/no-such-slice'
}

# vgpud, by its manifest. Its pod's network is its own, so it is asked from within.
metrics() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=vgpud -keyout "$scratch/tls.key" \
        -out "$scratch/tls.crt" 2>/dev/null
    echo 0123456789abcdef0123456789abcdef >"$scratch/token"
    kubectl -n vgpu create secret generic vgpud --from-file="$scratch/tls.key" --from-file="$scratch/tls.crt" \
        --from-file="$scratch/token" >/dev/null
    sed 's,image: vgpu$,image: localhost/vgpu:1,' "$here/../../deploy/kubernetes/vgpud.yaml" | kubectl apply -f - >/dev/null
    two_full
    sees 'vgpud runs' wait_for 180 vgpud main_process "$(agent vgpud)" vgpud vgpu
    nsenter --net="/proc/$(main_process "$(agent vgpud)" vgpud vgpu)/ns/net" ip link set lo up
    sees 'it serves the memory of the GPU to whoever has the token' wait_for 30 'metrics' serves_memory
    sees 'it says whose pods the slices are' wait_for 60 'pods in the metrics' serves_pods
    kubectl delete -f "$here/../../deploy/kubernetes/vgpud.yaml" >/dev/null
}

# What the API server says of all manifests, without doing what they say.
manifests() {
    for file in "$here"/../../deploy/kubernetes/[!k]*.yaml; do
        sees "the API server takes $(basename "$file")" is_taken "$file"
    done
    "$here/chart.py" --print >"$scratch/chart.yaml"
    sees 'the API server takes what the Helm chart says' is_taken "$scratch/chart.yaml"
    sees 'the Helm chart says what the manifests say' "$here/chart.py"
}

[ $# -gt 0 ] || set -- shared session waiting killed evicted kubelet_restarts plugin_restarts gpu_time wrong metrics manifests
mkdir -p "$scratch/sim"
start_cluster
make_images
install_plugin
for scene in "$@"; do
    echo "$scene:"
    "$scene" || { echo "  FAIL  the scene came to no end"; failures=$((failures + 1)); }
    kubectl delete pods --all --wait=true >/dev/null
    kubectl delete events --all >/dev/null
    sees 'at the end the GPU is empty' wait_for 30 'an empty GPU' holds_mib 0 0
done
[ "$failures" = 0 ]
