#!/bin/sh
# turns.sh: searches the model of turns (turns.pml) for what must never be. It must not be found in
# the model as it is, and must be in each that has a mistake: half a minute. Exits with 1 if
# anything is not as it must be, and with 77 where spin is missing.
set -u
# shellcheck disable=SC2034 # search.sh uses them
model=turns.pml compiled='' searched='-w20 -m1000000'
cycles='-DNFAIR=3 -DNOREDUCE' cycles_defines='' sleepers_defines=-DDEATHS=0
# shellcheck source=tests/model/search.sh
. "$(dirname "$0")/search.sh"

holds 'two slices never work at once, but for the bound' asserts
holds 'the same where one may stop' asserts -DSTOPS=1
holds 'no grant and no wish is lost while all live' sleepers
holds 'a slice gets its turns, whether the other lives, has died or has stopped' \
    cycles -DSTOPS=1
holds 'the same of a gang and a slice: two never work at once' asserts -DGANG=1
holds 'no grant and no wish of a gang is lost' sleepers -DGANG=1
holds 'a slice gets its turns, whatever became of the gang' cycles -DGANG=1 -DSTOPS=1
holds 'a gang gets its turns, whatever became of the slice' cycles -DGANG=0 -DSTOPS=1

breaks 'a hand-over by a store' 'assertion violated' asserts -DBREAK=NO_COMPARE
breaks 'a word without a count' 'assertion violated' asserts -DBREAK=NO_COUNT
breaks 'work before the turn begins' 'assertion violated' asserts -DBREAK=NO_BEGIN
breaks 'a word that is read once' 'assertion violated' asserts -DBREAK=WORD_ONCE
breaks 'a turn that is not shared any more, and no second look' 'invalid end state' \
    sleepers -DBREAK=NO_SECOND_LOOK
breaks 'a slice that is idle after it looked at the word' 'invalid end state' \
    sleepers -DBREAK=LOOK_BEFORE
breaks 'a bell before the word' 'invalid end state' sleepers -DBREAK=BELL_BEFORE
breaks 'a bell that is read after the word' 'invalid end state' sleepers -DBREAK=BELL_AFTER_WORD
breaks 'a wish of which the holder hears nothing' 'non-progress cycle' cycles -DBREAK=NO_SHARE
breaks 'a word that nobody takes' 'non-progress cycle' cycles -DBREAK=NO_TAKE
breaks 'a word that nobody takes from the stopped' 'non-progress cycle' \
    cycles -DBREAK=NO_OVERDUE -DDEATHS=0 -DSTOPS=1
breaks 'wishes that are never void' 'non-progress cycle' \
    cycles -DGANG=1 -DBREAK=NO_VOID -DDEATHS=0 -DSTOPS=1
exit "$failed"
