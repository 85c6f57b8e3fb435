#!/bin/sh
# The bash completion: commands, options, and slices' names, but none that a shell would run.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
: "${COMPLETION:?}" # from CMakeLists.txt
command -v bash >/dev/null || {
    echo 'skipped: bash is not here'
    exit 77
}

mkdir "$root/bin"
ln -s "$VGPU" "$root/bin/vgpu"
PATH=$root/bin:$PATH

# offers WORDS WORD...: what is offered for the last one of a command line, on one line.
offers() {
    expected=$1
    shift
    # shellcheck disable=SC2016 # bash expands it
    same "what is offered for \"$*\"" "$expected" "$(bash -uc '. "$0"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _vgpu
        echo "${COMPREPLY[*]-}"' "$COMPLETION" "$@" 2>&1)"
}

make_slice train --gpus 0 --memory 2G
make_slice trial --gpus 0 --memory 2G
container pod_one "$region"
container pod_two "$region"
: >"$hami/containers/pod_two/\$(touch\${IFS}$(basename "$root")).cache"
: >"$hami/containers/pod_two/a b;c.cache"
cd "$root" || exit 1
: >trueish
chmod +x trueish

offers 'ps' vgpu ps
offers '--quiet' vgpu ps --q
offers 'train trial' vgpu ps tr
offers 'train' vgpu top tra
offers "train trial pod_one pod_two/$uuid0.cache" vgpu ps ''
offers 'trial' vgpu run --name tri
offers 'trial' vgpu run -n tri
offers 'train trial' vgpu ls tr
offers 'ls' vgpu l
offers '0 1 all' vgpu run --gpus ''
offers 'all' vgpu set -g a
offers '0,1' vgpu run -g 0,
offers '' vgpu run -g 0,1,
offers 'yes no found' vgpu run --gang ''
offers 'no' vgpu set web --gang n
offers 'trueish' vgpu run -m8G -n x trueis
VGPU_SIM_FAULTS=nvmlInit_v2=999 offers 'all' vgpu run --gpus ''
mkdir quiet && : >quiet/trifle
(cd quiet && offers 'trial trifle' vgpu inspect tri) || exit 1
[ ! -e "$(basename "$root")" ] || fail 'a name was run'
