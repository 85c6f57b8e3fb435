#!/bin/sh
# build.sh: builds Kubernetes from Debian 12's own source package, once, and prints the directory of its
# programs. Each later call finds them there and is over at once.
#
# Debian 12 packages kubectl alone. Its source package brings all that Kubernetes needs with it (vendor/), so
# that Debian's Go builds the other programs without the network; only the source itself is fetched, through
# apt, by a list of sources of our own: the machine's stays as it is.
# The programs lie in ~/.cache/vgpu/kubernetes-1.20.2; VGPU_KUBERNETES names another directory. The directory
# counts once it is renamed into place: an interrupted build leaves another name, and is begun again.
# Exits with 77 and a reason where it cannot build.
set -eu
version=1.20.2
programs='kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet'
place=${VGPU_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpu/kubernetes-$version}
work=$place.new
log=$place.log
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

skip() {
    echo "skipped: $*" >&2
    exit 77
}

# quiet WHAT COMMAND...: its output goes to the log, of which the end is shown when it fails.
quiet() {
    what=$1
    shift
    "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        skip "$what failed; $log has all of its output"
    }
}

# The source package comes from bookworm whatever the machine's release is.
fetch_source() {
    mkdir -p "$work/apt/sources" "$work/apt/lists/partial"
    cat >"$work/apt/sources/bookworm.sources" <<SOURCES
Types: deb-src
URIs: ${VGPU_DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: bookworm
Components: main
Signed-By: $keyring
SOURCES
    set -- -q -o "Dir::Etc::sourcelist=$work/apt/none" -o "Dir::Etc::sourceparts=$work/apt/sources" \
        -o "Dir::State::lists=$work/apt/lists" -o APT::Sandbox::User=root
    quiet "fetching Debian's list of sources" apt-get "$@" update
    (cd "$work/apt" && quiet 'fetching the source' apt-get "$@" source --download-only kubernetes)
    quiet 'unpacking the source' dpkg-source -x "$work"/apt/kubernetes_*.dsc "$work/go/src/k8s.io/kubernetes"
}

# go_build NAME PACKAGE: in GOPATH mode, as the package predates Go modules' vendoring of its own parts.
go_build() {
    quiet "building $1" nice -n 5 env GO111MODULE=off GOPATH="$work/go" GOCACHE="$work/cache" GOFLAGS=-trimpath \
        CGO_ENABLED=0 GOMAXPROCS="${GOMAXPROCS:-2}" \
        go build -ldflags "-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=v$version" \
        -o "$work/bin/$1" "$2"
}

# The API server serves a description of its types that is generated from comments in them.
generate_openapi() {
    go_build openapi-gen k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
    packages=$(find -L cmd pkg plugin vendor/k8s.io -name '*.go' -exec grep -l '^// *+k8s:openapi-gen=' {} + |
        grep -v -e /code-generator/ -e /sample-apiserver/ -e /kube-openapi/ | xargs -n 1 dirname | LC_ALL=C sort -u |
        sed 's,^,k8s.io/kubernetes/,' | paste -s -d ,)
    quiet 'generating pkg/generated/openapi' nice -n 5 env GO111MODULE=off GOPATH="$work/go" GOROOT="$(go env GOROOT)" \
        "$work/bin/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
        -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"
    rm "$work/bin/openapi-gen"
}

if [ -d "$place" ]; then
    echo "$place"
    exit 0
fi
for tool in apt-get dpkg-source go; do
    command -v "$tool" >/dev/null 2>&1 || skip "there is no $tool"
done
[ -e "$keyring" ] || skip "there is no $keyring, with which Debian's sources are checked"
rm -rf "$work" "$log"
mkdir -p "$work/go/src/k8s.io" "$work/bin"
echo "Building Kubernetes $version in $work; this takes some six minutes." >&2
fetch_source
cd "$work/go/src/k8s.io/kubernetes"
generate_openapi
for program in $programs; do
    go_build "$program" "k8s.io/kubernetes/cmd/$program"
done
cd /
mv "$work/bin" "$place"
rm -rf "$work"
echo "$place"
