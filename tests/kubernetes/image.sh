# image.sh, sourced by scenes.sh: images for pods, made of this machine's programs, without a registry.
# shellcheck shell=sh

# lay ROOT PLACE FILE...: copies programs and libraries into a directory of the image's root, and what they are
# linked with to where it is on this machine.
lay() {
    root=$1 place=$2
    shift 2
    mkdir -p "$root$place"
    cp -L "$@" "$root$place/"
    for file in "$@"; do
        ldd "$file" 2>/dev/null | sed -n 's,^[^/]*\(/[^ ]*\) (0x.*,\1,p'
    done | sort -u | while read -r library; do
        [ -e "$root$library" ] || {
            mkdir -p "$root$(dirname "$library")"
            cp -L "$library" "$root$library"
        }
    done
}

# image NAME ROOT [VARIABLE=VALUE...]: brings the root to the cluster as an image that by itself sleeps.
image() {
    name=$1 root=$2
    shift 2
    made=$(mktemp -d)
    mkdir -p "$root/tmp" "$root/etc" "$root/proc" "$root/sys" "$root/dev"
    tar -C "$root" --owner=0 --group=0 --sort=name -cf "$made/layer.tar" .
    variables='"PATH=/usr/bin:/bin"'
    for variable in "$@"; do
        variables="$variables, \"$variable\""
    done
    cat >"$made/config.json" <<JSON
{"architecture": "$(go_architecture)", "os": "linux", "config": {"Env": [$variables], "Cmd": ["sleep", "infinity"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum "$made/layer.tar" | cut -d ' ' -f 1)"]}}
JSON
    cat >"$made/manifest.json" <<JSON
[{"Config": "config.json", "RepoTags": ["$name"], "Layers": ["layer.tar"]}]
JSON
    tar -C "$made" -cf "$made/image.tar" manifest.json config.json layer.tar
    ctr -n k8s.io images import --snapshotter native "$made/image.tar" >/dev/null
    rm -rf "$made"
}

go_architecture() {
    case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
    esac
}
