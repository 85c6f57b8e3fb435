#!/bin/sh
# check.sh [LIVES]: searches the model of the region's lock (lock.pml) for what must never be. It
# must not be found in the model as it is, and must be in each that has a mistake. With 5 lives in
# place of 4 the longest search takes ten times as long, and 400 MiB. Exits with 1 if anything is
# not as it must be, and with 77 where spin is missing.
set -u
lives=${1:-4}
# shellcheck disable=SC2034 # search.sh uses them
model=lock.pml compiled=-DNOREDUCE searched='-w20 -m100000'
cycles=-DNFAIR=2 cycles_defines='' sleepers_defines=''
# shellcheck source=tests/model/search.sh
. "$(dirname "$0")/search.sh"
steps=$here/../../src/region/steps.h

# So that the two do not part unseen: the model's steps are the region's, and all of the lock's.
same_steps() {
    sed -n 's/.*region_step(\([a-z_][a-z_]*\)).*/\1/p' lock.pml | grep -vx name | sort -u >model
    sed -n 's/^[[:space:]]*X(\([a-z_]*\)).*/\1/p' "$steps" | sort -u >region
    {
        comm -23 model region
        comm -13 model region | grep '^lock_'
    } >differ
    cp differ found
    [ -s model ] && [ ! -s differ ]
}

name='its steps are those of steps.h'
same_steps
report $?

holds 'one living holder at most; what the dead left is repaired; only their slots are emptied' \
    asserts -DLIVES="$lives"
holds 'the same with two at a time, and five successors' asserts -DSLOTS=2 -DLIVES=7
holds 'no wake-up is lost while all live' sleepers -DDEATHS=0 -DLIVES=5
holds 'somebody gets the lock, whoever of three has died' cycles -DLIVES=3
holds 'somebody gets the lock, whoever of two, and of three successors, has died' \
    cycles -DSLOTS=2 -DLIVES=5

breaks 'a takeover without a compare' 'assertion violated (holder==255)' asserts -DBREAK=NO_COMPARE
breaks 'a takeover without a repair' 'assertion violated  *!(half_done)' asserts -DBREAK=NO_REPAIR
breaks 'a claim that is not counted' 'assertion violated (holder==255)' asserts -DCLAIMS=1
breaks 'claims that come round' 'assertion violated (holder==255)' asserts -DCLAIMS=2
breaks 'a byte given back before the word' 'assertion violated (holder==255)' \
    asserts -DBREAK=BYTE_BEFORE_WORD
breaks 'a status published before the lock is taken' 'assertion violated (status' \
    asserts -DBREAK=STATUS_BEFORE_LOCK
breaks "a sleep without the waiters' bit" 'invalid end state' \
    sleepers -DDEATHS=0 -DBREAK=NO_BIT_TO_SLEEP
breaks "a lock taken without it after a sleep" 'invalid end state' \
    sleepers -DDEATHS=0 -DBREAK=NO_BIT_AFTER_SLEEP
breaks 'an unlock that is no exchange' 'invalid end state' sleepers -DDEATHS=0 -DBREAK=NO_EXCHANGE
breaks 'no time-outs, and a death before the wake-up' 'invalid end state' sleepers -DDEATHS=1
breaks 'a taker who never asks after the holder' 'non-progress cycle' \
    cycles -DLIVES=3 -DBREAK=NO_QUESTION
breaks 'a successor who takes its byte for its predecessor'"'"'s' 'non-progress cycle' \
    cycles -DSLOTS=2 -DBREAK=OWN_BYTE
exit "$failed"
