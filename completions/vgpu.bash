# bash completion for vgpu, made from its commands' tables by `make docs`.
# shellcheck shell=bash disable=SC2207 # what is offered has no blanks
_vgpu_words() {
    COMPREPLY=($(compgen -W "$1" -- "$word"))
}

# Tenants may have chosen names: none gets into a command line that means something to a shell,
# and compgen -W would expand it.
_vgpu_slices() {
    local name
    while IFS= read -r name; do
        [[ $name == "$word"* && $name != *[!A-Za-z0-9._/-]* ]] && COMPREPLY+=("$name")
    done < <(vgpu ps --quiet 2>/dev/null)
}

_vgpu_slices_and_files() {
    _vgpu_slices
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$word"))
}

# A list of GPUs: the last entry is completed.
_vgpu_gpus() {
    local list='' gpu
    [[ $word != *,* ]] || list=${word%,*},
    for gpu in $(vgpu __complete gpus 2>/dev/null) all; do
        [[ $gpu == all && -n $list ]] || [[ ,$list == *,"$gpu",* ]] ||
            [[ $list$gpu != "$word"* ]] || COMPREPLY+=("$list$gpu")
    done
}

# What follows an option that leads to a command line: that line's own completion.
_vgpu_command() {
    local first=2
    while [[ $first -lt $COMP_CWORD && ${COMP_WORDS[first]} == -* ]]; do
        case ${COMP_WORDS[first]} in
        --) first=$((first + 1)) && break ;;
        --*=* | -[!-]?* | --help | -h | --oversubscribe | --unlimited | --allow-unheld | --container | --json | -j) first=$((first + 1)) ;;
        *) first=$((first + 2)) ;;
        esac
    done
    if declare -F _command_offset >/dev/null; then
        _command_offset "$first"
    else
        COMPREPLY=($(compgen -c -f -- "$word"))
    fi
}

_vgpu() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 || ($COMP_CWORD -eq 2 && $before == help) ]]; then
        _vgpu_words 'run ps ls top set pause resume rm trace inspect cdi doctor help --help --version'
        return
    fi
    case ${COMP_WORDS[1]} in
    run)
        case $before in
        --memory | -m) :; return ;;
        --cores | -c) :; return ;;
        --burst) :; return ;;
        --gpus | -g) _vgpu_gpus; return ;;
        --gang) _vgpu_words 'yes no found'; return ;;
        --group) :; return ;;
        --name | -n) _vgpu_slices; return ;;
        esac
        [[ $word != -* ]] || { _vgpu_words '--memory --cores --burst --gpus --oversubscribe --gang --group --name --unlimited --allow-unheld --container --help'; return; }
        _vgpu_command
        ;;
    ps | ls)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--all --json --quiet --help'; return; }
        _vgpu_slices
        ;;
    top)
        case $before in
        --interval | -i) :; return ;;
        --count | -n) :; return ;;
        esac
        [[ $word != -* ]] || { _vgpu_words '--all --interval --count --batch --json --help'; return; }
        _vgpu_slices
        ;;
    set)
        case $before in
        --memory | -m) :; return ;;
        --cores | -c) :; return ;;
        --burst) :; return ;;
        --gpus | -g) _vgpu_gpus; return ;;
        --gang) _vgpu_words 'yes no found'; return ;;
        --group) :; return ;;
        esac
        [[ $word != -* ]] || { _vgpu_words '--memory --cores --burst --gpus --gang --group --json --help'; return; }
        _vgpu_slices
        ;;
    pause)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--all --json --help'; return; }
        _vgpu_slices
        ;;
    resume)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--all --json --help'; return; }
        _vgpu_slices
        ;;
    rm)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--all --force --json --help'; return; }
        _vgpu_slices
        ;;
    trace)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--follow --json --help'; return; }
        _vgpu_slices
        ;;
    inspect)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--json --help'; return; }
        _vgpu_slices_and_files
        ;;
    cdi)
        case $before in
        --memory | -m) :; return ;;
        --cores | -c) :; return ;;
        --burst) :; return ;;
        --gpus | -g) _vgpu_gpus; return ;;
        --gang) _vgpu_words 'yes no found'; return ;;
        --gangs) :; return ;;
        --turns) :; return ;;
        --output | -o) :; return ;;
        esac
        [[ $word != -* ]] || { _vgpu_words '--memory --cores --burst --gpus --oversubscribe --gang --gangs --turns --vgpud --unlimited --output --flags --list --remove --json --help'; return; }
        _vgpu_slices
        ;;
    doctor)
        case $before in
        esac
        [[ $word != -* ]] || { _vgpu_words '--json --help'; return; }
        _vgpu_command
        ;;
    esac
}
complete -F _vgpu vgpu
