#!/bin/sh
# gang_turns.sh [all]: searches the model of a gang's turns (gang_turns.pml) for what must never be,
# as turns.sh does for the turns of slices. It takes some 40 s, and with "all" some 10 minutes and 3
# GB of memory, so `make check` leaves it out. Exits with 1 if anything is not as it must be, and with
# 77 where spin is missing.
set -u
# shellcheck disable=SC2034 # search.sh uses them
model=gang_turns.pml compiled='' searched='-w22 -m1000000'
cycles='-DNFAIR=3 -DNOREDUCE' cycles_defines=-DPATIENT sleepers_defines=''
# shellcheck source=tests/model/search.sh
. "$(dirname "$0")/search.sh"

holds 'a gang and a slice never work at once, but for the bound' \
    asserts -DGANGS=1 -DWHO=4 -DDEATHS=1 -DSTOPS=1
holds 'no grant is lost between a gang and a slice' sleepers -DGANGS=1
holds 'two gangs neither work at once nor wait for each other' sleepers -DSLICES=0
holds 'a slice gets its turns, whether the gang lives, has died or has stopped' \
    cycles -DGANGS=1 -DDEATHS=1 -DSTOPS=1
holds 'a gang gets its turns, whether the slice lives, has died or has stopped' \
    cycles -DGANGS=1 -DWHO=2 -DDEATHS=1 -DSTOPS=1
holds 'a gang gets its turns, whether another one lives, has died or has stopped' \
    cycles -DSLICES=0 -DWHO=2 -DCOARSE -DDEATHS=1 -DSTOPS=1

breaks 'a wish that is withdrawn without a count' 'invalid end state' \
    sleepers -DGANGS=1 -DBREAK=NO_COUNT
breaks 'a gang that submits with one word' 'assertion violated' asserts -DGANGS=1 -DBREAK=HALF
breaks 'a gang that submits before its turn begins' 'assertion violated' \
    asserts -DGANGS=1 -DBREAK=NO_BEGIN
breaks 'gangs that keep what they have' 'invalid end state' sleepers -DSLICES=0 -DBREAK=KEEPS
breaks 'a look for sleepers before the word changes' 'invalid end state' \
    sleepers -DGANGS=1 -DBREAK=RING_BEFORE
breaks 'gangs that heed no ticket' 'non-progress cycle' \
    cycles -DSLICES=0 -DWHO=2 -DCOARSE -DBREAK=NO_TICKET
breaks 'a gang that draws another ticket when it is late' 'non-progress cycle' \
    cycles -DSLICES=0 -DWHO=2 -DCOARSE -DBREAK=NEW_TICKET
breaks 'wishes that nobody heeds' 'non-progress cycle' cycles -DGANGS=1 -DWHO=2 -DBREAK=NO_WISH

if [ "${1:-}" = all ]; then
    searched='-w26 -m2000000' memory=6000 cycles='-DNFAIR=4 -DNOREDUCE'
    holds 'two gangs and a slice: none sleeps for ever' sleepers -DCOARSE
    holds 'two gangs and a slice: a gang gets its turns' cycles -DWHO=2 -DCOARSE
    holds 'two gangs and a slice: the slice gets its turns' cycles -DWHO=0 -DCOARSE
fi
exit "$failed"
