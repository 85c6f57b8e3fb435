# cluster.sh, sourced by scenes.sh: a Kubernetes of one node, started and stopped part by part.
#
# All of it lives in the namespaces that run.sh has made: the network has nothing but the loopback device,
# so that no port can be taken, and /run, /var/lib and /var/log are the cluster's own. When the namespace's
# first process ends, the kernel kills every process of the cluster and drops its mounts.
# $programs is where build.sh has put Kubernetes' programs, and $scratch a directory for everything else;
# $scratch/logs has the output of each part.
# shellcheck shell=sh disable=SC2154 # programs and scratch are the caller's

address=10.99.0.1 # of the node; the kubelet refuses a loopback address
node=node

kubectl() {
    "$programs/kubectl" --kubeconfig "$scratch/kubeconfig" "$@"
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds; else says what was waited for, and fails.
wait_for() {
    seconds=$1 what=$2
    shift 2
    until_time=$(($(date +%s) + seconds))
    until "$@" >/dev/null 2>&1; do
        if [ "$(date +%s)" -ge "$until_time" ]; then
            echo "waited $seconds s for $what" >&2
            return 1
        fi
        sleep 0.2
    done
}

# start NAME PROGRAM [ARGUMENT...]: its process id goes to $scratch/NAME.pid.
start() {
    name=$1
    shift
    GOMAXPROCS=${GOMAXPROCS:-2} nice -n 5 "$@" >>"$scratch/logs/$name" 2>&1 &
    echo $! >"$scratch/$name.pid"
}

# stop NAME [SIGNAL]: returns once the process has ended.
stop() {
    process=$(cat "$scratch/$1.pid")
    kill -s "${2:-TERM}" "$process"
    wait "$process" 2>/dev/null || :
}

start_etcd() {
    start etcd etcd --data-dir "$scratch/etcd" --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
}

# Whoever has the token may do everything; service accounts have no part in what is tried here.
start_apiserver() {
    openssl genrsa -out "$scratch/accounts.key" 2048 2>/dev/null
    echo 'the-token,admin,admin,system:masters' >"$scratch/tokens"
    cat >"$scratch/kubeconfig" <<KUBECONFIG
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: the-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
KUBECONFIG
    start apiserver "$programs/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --cert-dir "$scratch/certificates" \
        --secure-port 6443 --insecure-port 0 --bind-address 127.0.0.1 --advertise-address "$address" \
        --service-cluster-ip-range 10.98.0.0/24 --token-auth-file "$scratch/tokens" --authorization-mode AlwaysAllow \
        --disable-admission-plugins ServiceAccount --service-account-issuer https://kubernetes.invalid \
        --service-account-key-file "$scratch/accounts.key" --service-account-signing-key-file "$scratch/accounts.key" \
        --kubelet-preferred-address-types InternalIP --allow-privileged
    wait_for 60 'the API server' kubectl get --raw /readyz
}

# Of the controllers, those that a DaemonSet needs, and those that tell the scheduler of the node's state.
start_controllers() {
    start scheduler "$programs/kube-scheduler" --kubeconfig "$scratch/kubeconfig" --leader-elect=false \
        --port 0 --bind-address 127.0.0.1
    start controllers "$programs/kube-controller-manager" --kubeconfig "$scratch/kubeconfig" --leader-elect=false \
        --controllers daemonset,nodelifecycle,podgc,namespace,garbagecollector --port 0 --bind-address 127.0.0.1
}

# Pods have network namespaces with nothing in them: the plugin for networks only says that it has done its work.
# Image file systems are copies, which work on any file system below.
start_containerd() {
    mkdir -p "$scratch/cni"
    echo '{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "none"}]}' >"$scratch/cni/none.conflist"
    cat >"$scratch/cni/none" <<'NETWORK'
#!/bin/sh
case $CNI_COMMAND:$(basename "$0") in
ADD:none) echo '{"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.99.1.1/32"}]}' ;;
ADD:*) echo '{"cniVersion": "0.4.0"}' ;;
VERSION:*) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}' ;;
esac
NETWORK
    chmod +x "$scratch/cni/none"
    ln -s none "$scratch/cni/loopback"
    sed "s,@SIMULATED@,$build/sim,; s,@STATE@,$scratch/sim," "$here/runtime.py" >"$scratch/nvidia-runtime"
    chmod +x "$scratch/nvidia-runtime"
    cat >"$scratch/containerd.toml" <<TOML
version = 2
root = "$scratch/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/vgpu-test:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
        BinaryName = "$scratch/nvidia-runtime"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$scratch/cni"
    conf_dir = "$scratch/cni"
TOML
    start containerd containerd --config "$scratch/containerd.toml"
    wait_for 30 containerd ctr version
}

# An eviction for want of disk or memory would be the machine's fault, so the kubelet makes none.
start_kubelet() {
    start kubelet "$programs/kubelet" --kubeconfig "$scratch/kubeconfig" --hostname-override "$node" \
        --node-ip "$address" --container-runtime=remote \
        --container-runtime-endpoint unix:///run/containerd/containerd.sock --fail-swap-on=false \
        --cgroup-driver cgroupfs --cgroups-per-qos=false --enforce-node-allocatable= \
        --eviction-hard= --image-gc-high-threshold 100 --cert-dir "$scratch/kubelet-certificates" \
        --anonymous-auth=true --authorization-mode AlwaysAllow --port 10250 --read-only-port 0 --healthz-port 0
}

# Everything but the node's agents of GPUs.
start_cluster() {
    mkdir -p "$scratch/logs"
    ip link set lo up
    ip address add "$address/32" dev lo
    start_etcd
    start_containerd
    start_apiserver
    start_controllers
    start_kubelet
    wait_for 60 'the node' node_is_ready
}

node_is_ready() {
    kubectl get node "$node" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints}' | grep -qx 'True '
}
