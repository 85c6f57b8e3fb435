/*
 * Turns on a GPU as a model for spin(1): grant.c, turn_holder.c, turn_waiter.c and turn.c of
 * src/turn/, in their names. turns.sh runs it.
 *
 * How it works. Each slice is one process, which wants the GPU, asks, submits, asks again or becomes
 * idle, and comes back. An atomic block is one access to what is shared, or one system call. At the
 * beginning of each the process may be killed, which ends its work, or stopped for good, which does
 * not: step(). The device ends work at any time. Time is what the clock makes true, sooner or later:
 * that a turn is over, and that a turn begins.
 *
 *     over     the holder's turn has lasted for its length. A slice that is neither dead nor
 *              stopped submits once before that: SOFT_NS are long enough.
 *     wish     a gang's: it is next although it is idle, until the wish is void.
 *     begun    the time has come that the giver told; at the latest SOFT_NS after the turn before
 *              was over. Before that, a process of the slice sleeps.
 *
 * What must hold, by its asserts:
 *     a slice that submits finds no work of another slice at the device, but for the stated
 *     exceptions: the other's work took longer than the bound, or one of the two launches was
 *     asked for before the turn was taken away
 * by the search for states from which nothing goes on, with NO_TIMEOUTS, DEATHS=0 and STOPS=0:
 *     nobody sleeps for ever while all live: no grant and no wish is lost
 * and by the search for cycles without progress that are (weakly) fair:
 *     slice 0, which neither dies nor stops, gets its turns, whoever else has died or stopped
 *
 * What it is not. It has no memory orders, no times, no processes that share a slice, and no
 * nonsense in the file. Who is next is a matter of order here, not of what slices have used.
 *
 * BREAK is one of the mistakes below; turns.sh demands that spin finds each of them.
 */

#ifndef SLICES
#define SLICES 2 /* or 3, which is more than a search comes to the end of */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef GANG
#define GANG SLICES /* the slice that is a gang's, and has wishes; or none is */
#endif

#define NO_COMPARE      1 /* passes the word on by a store, whatever it is by now */
#define NO_SECOND_LOOK  2 /* marks its turn as not shared, and does not look again */
#define LOOK_BEFORE     3 /* looks at the word before it says that it is idle */
#define BELL_BEFORE     4 /* rings before it changes the word */
#define BELL_AFTER_WORD 5 /* reads its bell after it has read the word */
#define NO_BEGIN        6 /* submits as soon as it has the word */
#define NO_TAKE         7 /* waits for the holder's hand-over, whatever became of it */
#define NO_OVERDUE      8 /* takes the word from the dead and the idle alone */
#define NO_SHARE        9 /* leaves the holder in the belief that it is alone */
#define NO_COUNT       10 /* has no count in the word: a value that it had before is taken for it */
#define WORD_ONCE      11 /* reads the word once, and submits for as long as it likes */
#define NO_VOID        12 /* heeds a wish for ever */
#ifndef BREAK
#define BREAK 0
#endif
#define broken(mistake) (BREAK == mistake)

#ifdef NO_TIMEOUTS
#define may_time_out false
#else
#define may_time_out true
#endif

#define NOBODY SLICES

/* -- what is shared --------------------------------------------------------------------------- */

/* The turn word: whose turn, and whether another slice is present. It also has a count and a time,
 * so that a slice that has seen it knows whether it has changed since. */
byte holder = NOBODY;
bool is_shared;
bool changed[SLICES]; /* since the slice has seen it */

bool present[SLICES];
bool idle[SLICES];
bool rung[SLICES]; /* the bell, since the slice has read it */
bool wish;         /* the gang has one that is not void */

/* The kernel's, the device's and the clock's. */
bool alive[SLICES];
bool asleep[SLICES];
bool work[SLICES];
bool over, begun, seen;
bool halted[SLICES]; /* it is dead or stopped */

/* The asserts': between the question and the launch; whose launch or work is excused. The bounds'.
 */
bool asked[SLICES];
bool excused[SLICES];
byte deaths, stops;

#define step() \
	if \
	:: me != 0 && deaths < DEATHS -> goto died \
	:: me != 0 && stops < STOPS -> goto stopped \
	:: true \
	fi

#define wishes(slice) (slice == GANG && wish)
#define wants(slice) (present[slice] && (!idle[slice] || wishes(slice)) && alive[slice])

/* Whether the slices other than `than` want the GPU, or are present. */
#if SLICES > 2
#define others_want(than) \
	((than != 0 && wants(0)) || (than != 1 && wants(1)) || (than != 2 && wants(2)))
#define others_are_present(than) \
	((than != 0 && present[0]) || (than != 1 && present[1]) || (than != 2 && present[2]))
#define others_work(than) ((than != 0 && work[0]) || (than != 1 && work[1]) || (than != 2 && work[2]))
#else
#define others_want(than)        ((than != 0 && wants(0)) || (than != 1 && wants(1)))
#define others_are_present(than) ((than != 0 && present[0]) || (than != 1 && present[1]))
#define others_work(than)        ((than != 0 && work[0]) || (than != 1 && work[1]))
#endif

/* -- grant.c ---------------------------------------------------------------------------------- */

#define see_word() h = holder; s = is_shared; changed[me] = false
#define is_same() \
	(!changed[me] || broken(NO_COMPARE) || (broken(NO_COUNT) && holder == h && is_shared == s))
#if SLICES > 2
#define change() changed[0] = true; changed[1] = true; changed[2] = true
#else
#define change() changed[0] = true; changed[1] = true
#endif

/* The word is another's: a launch that was asked for before comes late. */
#define lose() \
	if \
	:: holder != NOBODY && holder != me && asked[holder] -> excused[holder] = true \
	:: else \
	fi

/* Passes the word from what was seen to `next`; else asks again. */
#define grant_pass() \
	if \
	:: is_same() -> \
		lose(); \
		holder = next; \
		is_shared = true; \
		change(); \
		over = false; \
		begun = false; \
		seen = false \
	:: else -> goto ask \
	fi

#define grant_wake(slice) rung[slice] = true; asleep[slice] = false

/* The one that is next after `h`, of those that want the GPU; else this one. */
#define find_next() \
	next = (h == NOBODY -> me : (h + 1) % SLICES); \
	if \
	:: !wants(next) -> next = (next + 1) % SLICES \
	:: else \
	fi; \
	if \
	:: !wants(next) -> next = (next + 1) % SLICES \
	:: else \
	fi; \
	if \
	:: !wants(next) -> next = me \
	:: else \
	fi

/* -- a slice ---------------------------------------------------------------------------------- */

proctype slice(byte me)
{
	byte h, next;
	bool s;

again: /* grant_want() */
	atomic { step(); idle[me] = false }
	atomic { step(); present[me] = true }

ask: /* turn_ask() */
	atomic {
		step();
		next = 0;
		asked[me] = false;
		if
		:: !broken(BELL_AFTER_WORD) -> rung[me] = false
		:: else
		fi
	}
	atomic {
		step();
		see_word();
		if
		:: h == me -> asked[me] = true
		:: else -> goto waiter
		fi
	}

	/* turn_holder_ask() */
	atomic {
		step();
		if
		:: !s -> goto submit
		:: s && !begun && !broken(NO_BEGIN) -> goto sleep_until_begin
		:: s && (begun || broken(NO_BEGIN)) && !others_are_present(me) ->
			asked[me] = false;
			goto unshare
		:: s && (begun || broken(NO_BEGIN)) && others_are_present(me) && over &&
			others_want(me) -> goto use_up
		:: else
		fi
	}

submit:
	atomic {
		step();
#if SLICES > 2
		assert(me == 0 || !work[0] || excused[me] || excused[0]);
		assert(me == 1 || !work[1] || excused[me] || excused[1]);
		assert(me == 2 || !work[2] || excused[me] || excused[2]);
#else
		assert(me == 0 || !work[0] || excused[me] || excused[0]);
		assert(me == 1 || !work[1] || excused[me] || excused[1]);
#endif
		work[me] = true;
		wish = wish && me != GANG;
		seen = seen || holder == me;
		asked[me] = false
	}
	if
	:: me == 0 ->
progress:	skip
	:: else
	fi;
	if
	:: goto ask
	:: broken(WORD_ONCE) -> goto submit
	:: true
	fi;

	/* turn_idle() */
	atomic { !work[me] -> step(); if :: broken(LOOK_BEFORE) -> see_word() :: else fi }
	atomic { step(); idle[me] = true }
	atomic {
		step();
		if
		:: !broken(LOOK_BEFORE) -> see_word()
		:: else
		fi;
		if
		:: h != me || !s || !others_want(me) -> goto rested
		:: else -> find_next()
		fi
	}
	if
	:: goto offer_wake
	:: true
	fi;
	atomic {
		step();
		if
		:: next != me && is_same() -> grant_pass()
		:: else -> goto rested
		fi
	}
offer_wake:
	atomic { step(); if :: next != me -> grant_wake(next) :: else fi }
rested:
	atomic { step(); h = 0; s = false; next = 0 }
	if
	:: goto again
	:: goto away
	:: me == GANG -> goto shut
	fi;

unshare: /* grant_unshare() */
	atomic {
		step();
		if
		:: is_same() ->
			is_shared = false;
			asked[me] = true;
			change();
			changed[me] = false
		:: else -> goto ask
		fi
	}
	atomic {
		step();
		if
		:: others_are_present(me) && !broken(NO_SECOND_LOOK) ->
			if
			:: is_same() -> is_shared = true; change()
			:: else
			fi;
			goto ask
		:: else -> goto submit
		fi
	}

use_up: /* and take(): the word that was seen goes to the next one */
	atomic { step(); asked[me] = false; find_next() }
	if
	:: broken(BELL_BEFORE) -> atomic { step(); if :: next != me -> grant_wake(next) :: else fi }
	:: else
	fi;
	atomic { step(); grant_pass() }
	if
	:: !broken(BELL_BEFORE) -> atomic { step(); if :: next != me -> grant_wake(next) :: else fi }
	:: else
	fi;
	goto ask;

waiter: /* turn_waiter_ask() */
	atomic {
		step();
		if
		:: h == NOBODY -> goto use_up
		:: h != NOBODY && !broken(NO_TAKE) && (!present[h] || !alive[h]) -> goto use_up
		:: h != NOBODY && !broken(NO_TAKE) && present[h] && alive[h] && s && idle[h] &&
			!wishes(h) -> goto use_up
		:: h != NOBODY && present[h] && alive[h] && !s && !broken(NO_SHARE) -> goto share
		:: h != NOBODY && present[h] && alive[h] && s && !idle[h] && over && may_time_out &&
			!broken(NO_TAKE) && !broken(NO_OVERDUE) -> goto use_up
		:: else
		fi
	}

	/* turn_sleep() */
	atomic {
		step();
		if
		:: broken(BELL_AFTER_WORD) -> rung[me] = false
		:: else
		fi
	}
	atomic {
		step();
		if
		:: !rung[me] -> asleep[me] = true
		:: else -> goto ask
		fi
	}
	if
	:: atomic { !asleep[me] -> goto ask }
	:: atomic { asleep[me] && may_time_out -> asleep[me] = false; goto ask }
	fi;

share: /* grant_share() */
	atomic {
		step();
		if
		:: is_same() ->
			is_shared = true;
			change();
			over = false;
			begun = true
		:: else
		fi;
		goto ask
	}

sleep_until_begin: /* time ends this sleep, or the bell does */
	atomic { begun || changed[me] -> asked[me] = false; goto ask }

shut: /* turn_wish(); the date ends this sleep */
	atomic { step(); wish = true }
	atomic { step(); present[me] = true; goto again }

away: /* it wants nothing; after a second, it is not present */
	atomic { step(); present[me] = false }
	if
	:: goto again
	:: me != 0 -> goto gone
	fi;

stopped:
	atomic { stops++; halted[me] = true; goto gone }
died:
	atomic {
		deaths++;
		halted[me] = true;
		alive[me] = false;
		asleep[me] = false;
		asked[me] = false;
		work[me] = false;
		excused[me] = false
	}
gone:
end:
	false
}

/* -- the device and the clock ----------------------------------------------------------------- */

#define end_work(slice) atomic { work[slice] -> work[slice] = false; excused[slice] = asked[slice] && excused[slice] }

proctype device()
{
end:
	do
	:: end_work(0)
	:: end_work(1)
#if SLICES > 2
	:: end_work(2)
#endif
	od
}

#define excuse(slice) \
	if \
	:: slice != holder && work[slice] -> excused[slice] = true \
	:: else \
	fi

proctype clock()
{
end:
	do
	:: atomic { holder != NOBODY && begun && !over && (seen || halted[holder]) -> over = true }
	:: atomic { holder != NOBODY && !begun && !others_work(holder) -> begun = true }
	:: atomic { /* SOFT_NS after it was due */
		holder != NOBODY && !begun && others_work(holder) ->
		begun = true;
		excuse(0);
		excuse(1)
#if SLICES > 2
		;
		excuse(2)
#endif
	   }
	od
}

/* The clock, for wishes. */
proctype voids()
{
end:
	do
	:: atomic { wish && !broken(NO_VOID) -> wish = false }
	od
}

init
{
	atomic {
		alive[0] = true;
		alive[1] = true;
		idle[0] = true;
		idle[1] = true;
#if SLICES > 2
		alive[2] = true;
		idle[2] = true;
		run slice(2);
#endif
		run slice(0);
		run slice(1);
		run device();
#if GANG < SLICES
		run voids();
#endif
		run clock()
	}
}
