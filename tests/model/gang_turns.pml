/*
 * Turns of a gang on all its GPUs at once, as a model for spin(1): the protocol of dated wishes of
 * docs/design/gang_turns.md, which no code follows. gang_turns.sh runs it. turns.pml has what a file
 * of turns is by itself: processes that come and go, shared and unshared words.
 *
 * How it works. There are two GPUs, and each has a file. A slice wants one GPU: slice 0 wants GPU 0,
 * slice 1 wants GPU 1. Two gangs want both. A gang writes its wish into both files; the wish is a
 * date. Givers leave the GPU free from that date on. When the date has come, the gang looks at both
 * words. It submits if it has both; it gives all back if it does not have both in time. A ticket,
 * the first date, is the order of gangs: a gang keeps it until it submits, and a gang that sees an
 * earlier one gives all back and dates no wish.
 * An atomic block is one access to what is shared, or one system call, but for the first look of a
 * gang at the wishes, which is a hint. At the beginning of each, the process may be killed, which
 * ends its work, or stopped for good, which does not: step(). Time is what the clock makes true:
 *
 *     over[f]    the turn on GPU f has lasted for its length; its holder submitted once, or cannot
 *     begun[f]   the turn on GPU f begins; at the latest SOFT_NS after the turn before was over
 *     near[g]    the date of gang g's wish is so near that no other turn fits in before it
 *     due[g]     the date has come
 *     late[g]    so has the date + the bound: the wish is void
 *     ripe[g]    the time of the gang's ticket has come
 *
 * What must hold, by its asserts:
 *     a slice or gang that submits to a GPU finds no work of another there, but for the exceptions
 *     of turns.pml; a gang has the words of both GPUs then, with the same exceptions
 * by the search for states from which nothing goes on, with NO_TIMEOUTS, DEATHS=0 and STOPS=0:
 *     nobody sleeps for ever while all live: no grant is lost, and no two gangs wait for each other
 * and by the search for cycles without progress that are (weakly) fair, with WHO:
 *     slice 0, or the gang beside it, gets its turns, whether the other has died or has stopped
 *     the first of two gangs gets its turns, whether the other one lives, has died or has stopped
 *     (COARSE)
 *
 * What it is not. It has no memory orders, no times, and no shares. Only the dead and the stopped are
 * overdue. The formula of the date is here that a slice which waits has a turn after each turn of a
 * gang (owed). A gang is one process, and its ticket is one word in place of one a file.
 *
 * BREAK is one of the mistakes below; gang_turns.sh demands that spin finds each of them.
 */

#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef GANGS
#define GANGS 2 /* or 1 */
#endif
#ifndef SLICES
#define SLICES 1 /* or 0; or 2, which is more than a search comes to the end of */
#endif
#ifndef WHO
#define WHO 0 /* neither dies nor stops: 0 and 1 are the slices, 2 and 3 the gangs, 4 is nobody */
#endif

#define NO_COUNT     1 /* withdraws a wish, and leaves the word's count as it is */
#define HALF         2 /* submits with the word of one GPU */
#define KEEPS        3 /* keeps what it has until it has all */
#define RING_BEFORE  4 /* looks for sleepers before it changes the word */
#define NO_WISH      5 /* gives to the slice whatever wishes there are */
#define NO_BEGIN     6 /* submits as soon as it has the words */
#define NO_TICKET    7 /* dates its wish whatever tickets there are */
#define NEW_TICKET   8 /* draws another ticket when it was late */
#ifndef BREAK
#define BREAK 0
#endif
#define broken(mistake) (BREAK == mistake)

#ifdef NO_TIMEOUTS
#define may_time_out false
#else
#define may_time_out true
#endif

/* In the search for progress, time does what the bounds are made for: a bound is longer than what a
 * living process takes to answer. */
#ifdef PATIENT
#define is_patient true
#else
#define is_patient false
#endif

#define NOBODY 3 /* in a file: 0 is its slice, 1 and 2 are the gangs */
#define at(f, k) ((f) * 3 + (k))
/* The number of a file's k: as WHO has it. */
#define number(f, k) ((k) == 0 -> (f) : (k) + 1)

/* -- what is shared: two files ---------------------------------------------------------------- */

byte holder[2] = NOBODY;
bool changed[6]; /* at(f, k): the word of f, since k has seen it */
bool wish[6];    /* at(f, gang): its wish is in the file */
bool wants[2];   /* the slice */
bool rung[2], asleep[2];

/* The dates. Those of a gang are the same in both files. */
bool near[3], due[3], late[3];
bool runs[3]; /* the gang is open, or closes */

/* The tickets, likewise: a gang draws one, writes it into both files, and has it until it opens. */
#define DRAWN   1
#define WRITTEN 2
byte ticket[3];
bool ripe[3];   /* the ticket's time has come: whoever draws after that draws a later one */
byte first = 1; /* which gang's ticket is the earlier one, if both have one */

/* The kernel's, the devices' and the clock's. */
bool work[6];
bool over[2], begun[2], seen[2], owed[2];
bool alive[4] = true;
bool halted[4]; /* it is dead or stopped */

/* The asserts': between the question and the launch; whose launch or work is excused. The bounds'.
 */
bool asked[4];
bool excused[6];
byte deaths, stops;

/* The search for cycles leaves out what only the asserts need. */
#ifdef PATIENT
#define set_asked(i, is)   skip
#define set_excused(i, is) skip
#define check(what)        skip
#else
#define set_asked(i, is)   asked[i] = is
#define set_excused(i, is) excused[i] = is
#define check(what)        assert(what)
#endif

#define step() \
	if \
	:: me != WHO && deaths < DEATHS -> goto died \
	:: me != WHO && stops < STOPS -> goto stopped \
	:: true \
	fi

/* Where other processes may come between, and this one may die. COARSE: they may not. */
#ifdef COARSE
#define split
#else
#define split } atomic { step();
#endif

#define is_halted(f, k) (halted[number(f, k)])
#define lives(f, k)     (alive[number(f, k)])
#define others_work(f, k) \
	((k != 0 && work[at(f, 0)]) || (k != 1 && work[at(f, 1)]) || (k != 2 && work[at(f, 2)]))
#define others_excused(f, k) \
	((k == 0 || !work[at(f, 0)] || excused[at(f, 0)]) && \
	 (k == 1 || !work[at(f, 1)] || excused[at(f, 1)]) && \
	 (k == 2 || !work[at(f, 2)] || excused[at(f, 2)]))

/* -- the word --------------------------------------------------------------------------------- */

#define see(f, k) h = holder[f]; changed[at(f, k)] = false
#define is_same(f, k) (!changed[at(f, k)])
#define change(f) changed[at(f, 0)] = true; changed[at(f, 1)] = true; changed[at(f, 2)] = true

/* The word is another's: a launch that was asked for before comes late. */
#define lose(f) \
	if \
	:: holder[f] != NOBODY && asked[number(f, holder[f])] -> set_excused(at(f, holder[f]), true) \
	:: else \
	fi

#define pass(f) \
	lose(f); \
	holder[f] = next; \
	change(f); \
	over[f] = false; \
	begun[f] = false; \
	seen[f] = false

#define is_wish(f, g) \
	(wish[at(f, g)] && near[g] && !late[g] && \
	 alive[(g) + 1] && !broken(NO_WISH))

/* Who is next on the GPU, other than `except`; or NOBODY. */
#define find_next(f, except) \
	if \
	:: is_wish(f, 1) && except != 1 && \
		(!is_wish(f, 2) || except == 2 || first == 1) -> next = 1 \
	:: is_wish(f, 2) && except != 2 && \
		(!is_wish(f, 1) || except == 1 || first == 2) -> next = 2 \
	:: else -> next = (wants[f] && alive[f] && except != 0 -> 0 : NOBODY) \
	fi

/* Whether a process may take the word from `h`. */
#define is_to_be_had(f) \
	(h == NOBODY || !lives(f, h) || (h == 0 && !wants[f]) || (over[f] && is_halted(f, h)))

#define wake(f) if :: wants[f] -> rung[f] = true; asleep[f] = false :: else fi

#define unask_at(f, k) set_excused(at(f, k), excused[at(f, k)] && work[at(f, k)])

/* -- a slice ---------------------------------------------------------------------------------- */

proctype slice(byte f)
{
	byte h, next;
#define me f

again:
	atomic { step(); wants[f] = true }

ask:
	atomic {
		step();
		next = 0;
		rung[f] = false;
		see(f, 0);
		if
		:: h == 0 -> set_asked(f, true)
		:: else -> goto waiter
		fi
	}

	/* The holder looks at the wishes after it has read the word. */
	atomic {
		step();
		if
		:: !begun[f] -> set_asked(f, false); unask_at(f, 0); h = 0; goto sleep_until_begin
		:: else
		fi;
		find_next(f, 0);
		if
		:: over[f] && next != NOBODY -> set_asked(f, false); unask_at(f, 0); goto hand_over
		:: else
		fi
	}

	atomic { /* submit */
		step();
		check(excused[at(f, 0)] || others_excused(f, 0));
		work[at(f, 0)] = true;
		seen[f] = seen[f] || holder[f] == 0;
		owed[f] = false;
		set_asked(f, false);
		h = 0;
		next = 0
	}
	if
	:: f == WHO ->
progress:	skip
	:: else
	fi;
	if
	:: goto ask
	:: true
	fi;

	/* The slice is idle. A gang needs no wake-up: it knows its date. */
	atomic { !work[at(f, 0)] -> step(); wants[f] = false; owed[f] = false }
	if
	:: goto again
	:: f != WHO -> goto gone
	fi;

hand_over:
	atomic { step(); if :: is_same(f, 0) -> pass(f) :: else fi; h = 0; next = 0; goto ask }

waiter:
	atomic {
		step();
		if
		:: is_to_be_had(f) ->
			find_next(f, h);
			if
			:: next == NOBODY -> next = 0
			:: else
			fi;
			goto hand_over
		:: else -> h = 0
		fi
	}
	atomic {
		step();
		if
		:: !rung[f] -> asleep[f] = true
		:: else -> goto ask
		fi
	}
	if
	:: atomic { !asleep[f] -> goto ask }
	:: atomic { asleep[f] && may_time_out -> asleep[f] = false; goto ask }
	fi;

sleep_until_begin:
	atomic { begun[f] || changed[at(f, 0)] -> goto ask }

stopped:
	atomic { stops++; halted[f] = true; owed[f] = false; goto gone }
died:
	atomic {
		deaths++;
		halted[f] = true;
		alive[f] = false;
		asleep[f] = false;
		set_asked(f, false);
		owed[f] = false;
		work[at(f, 0)] = false;
		set_excused(at(f, 0), false)
	}
gone:
end:
	false
#undef me
}

/* -- a gang ----------------------------------------------------------------------------------- */

#define unask(k) unask_at(0, k); unask_at(1, k)
/* The other holder of the word has lost its claim since the gang looked. */
#define may_take(f) \
	(holder[f] != k && (holder[f] == NOBODY || !lives(f, holder[f]) || \
			    (holder[f] == 0 && !wants[f]) || (over[f] && is_halted(f, holder[f]))))
#define wake_next() if :: next == 0 -> wake(f) :: else fi

/* Another gang is to be first. A gang that was not seen for long is dead or stopped. */
#define is_behind(g) \
	(ticket[3 - (g)] == WRITTEN && first == 3 - (g) && !halted[4 - (g)] && !broken(NO_TICKET))

proctype gang(byte k)
{
	byte h, next, f;
	bool is_over, has_all;
#define me    (k + 1)
#define other (3 - k)

draw: /* the time of its first date, which is before or after that of the other gang */
	atomic {
		step();
		ripe[k] = false;
		if
		:: ticket[other] && (ripe[other] || broken(NO_TICKET)) -> first = other
		:: ticket[other] && !ripe[other] -> first = k
		:: ticket[other] && !ripe[other] -> first = other
		:: !ticket[other] -> first = k
		fi;
		ticket[k] = DRAWN;
		split
		ticket[k] = WRITTEN
	}

date: /* once no gang with an earlier ticket is seen */
	atomic {
		!is_behind(k) || (may_time_out && !is_patient) ->
		step();
		near[k] = false;
		due[k] = false;
		late[k] = false;
		wish[at(0, k)] = true;
		split
		wish[at(1, k)] = true
	}
	atomic { due[k] -> step() }

ask:
	do
	:: atomic {
		f < 2 ->
		step();
		if
		:: f == 0 -> is_over = false; has_all = true; set_asked(me, false); unask(k)
		:: else
		fi;
		see(f, k);
		if
		:: h == k ->
			set_asked(me, true);
			is_over = is_over || over[f];
			has_all = has_all && (begun[f] || broken(NO_BEGIN))
		:: h != k && !runs[k] && is_to_be_had(f) -> goto take
		:: h != k && (runs[k] || !is_to_be_had(f)) -> has_all = has_all && broken(HALF)
		fi;
		f++
	   }
	:: atomic {
		f == 2 ->
		f = 0;
		h = 0;
		if
		:: runs[k] && (is_over || !has_all) -> goto close
		:: !runs[k] && is_behind(k) && !broken(KEEPS) -> set_asked(me, false); unask(k); has_all = false; goto withdraw
		:: !runs[k] && !has_all && (!is_behind(k) || broken(KEEPS)) -> set_asked(me, false); unask(k); goto wait
		:: else -> has_all = false; break
		fi
	   }
	od;

	atomic { /* submit */
		step();
		runs[k] = true;
		ticket[k] = 0;
		if
		:: f = 0
		:: f = 1
		fi;
		check(excused[at(f, k)] || others_excused(f, k));
		check(holder[1 - f] == k || excused[at(1 - f, k)] || others_excused(1 - f, k));
		work[at(f, k)] = true;
		seen[f] = seen[f] || holder[f] == k;
		set_asked(me, false);
		f = 0
	}
	if
	:: me == WHO ->
progress:	skip
	:: else
	fi;
	if
	:: goto ask
	:: true
	fi;

close: /* a consistent cut: none of its work is in flight */
	atomic {
		!work[at(0, k)] && !work[at(1, k)] ->
		step();
		is_over = false;
		has_all = false;
		set_asked(me, false);
		unask(k);
		goto withdraw
	}

wait: /* for what others give, or for the bound */
	has_all = false;
	if
	:: atomic { changed[at(0, k)] || changed[at(1, k)] -> goto ask }
	:: atomic { begun[0] && begun[1] && holder[0] == k && holder[1] == k -> goto ask }
	:: atomic { may_take(0) || may_take(1) -> goto ask }
	:: atomic { (late[k] || is_behind(k)) && !broken(KEEPS) -> goto withdraw }
	fi;

take: /* the word goes to the one that is next, this gang or another */
	atomic {
		step();
		set_asked(me, false);
		has_all = false;
		unask(k);
		find_next(f, h);
		h = 0;
		split
		if
		:: next == NOBODY -> f = 0; goto withdraw /* its own wish is void */
		:: next != NOBODY && is_same(f, k) -> pass(f)
		:: else
		fi;
		split
		wake_next();
		f = 0;
		next = 0;
		goto ask
	}

withdraw: /* from each file: its wish, and the word if the gang has it */
	do
	:: f < 2 -> atomic {
		step();
		runs[k] = false;
		wish[at(f, k)] = false;
		split
see_again:
		see(f, k);
		find_next(f, k);
		split
		if
		:: broken(RING_BEFORE) -> wake(f)
		:: else
		fi;
		split
		if
		:: !is_same(f, k) -> goto see_again
		:: is_same(f, k) && h == k ->
			pass(f);
			owed[f] = wants[f] && !halted[f]
		:: is_same(f, k) && h != k && !broken(NO_COUNT) -> change(f)
		:: else
		fi;
		split
		if
		:: !broken(RING_BEFORE) -> wake(f)
		:: else
		fi;
		f++
	   }
	:: atomic {
		f == 2 ->
		f = 0;
		h = 0;
		next = 0;
		near[k] = false;
		due[k] = false;
		late[k] = false;
		break
	   }
	od;
	if
	:: ticket[k] && !broken(NEW_TICKET) -> goto date
	:: !ticket[k] || broken(NEW_TICKET) -> goto draw
	:: me != WHO -> ticket[k] = 0; goto gone
	fi;

stopped:
	atomic { stops++; halted[me] = true; goto gone }
died:
	atomic {
		deaths++;
		halted[me] = true;
		alive[me] = false;
		set_asked(me, false);
		work[at(0, k)] = false;
		work[at(1, k)] = false;
		set_excused(at(0, k), false);
		set_excused(at(1, k), false)
	}
gone:
end:
	false
#undef me
}

/* -- the devices and the clock ---------------------------------------------------------------- */

#define end_work(f, k) \
	work[at(f, k)] = false; \
	set_excused(at(f, k), excused[at(f, k)] && asked[number(f, k)])

proctype device(byte f)
{
end:
	do
	:: atomic { work[at(f, 0)] || work[at(f, 1)] || work[at(f, 2)] ->
		end_work(f, 0);
		end_work(f, 1);
		end_work(f, 2)
	   }
	od
}

#define stopped_work(f) \
	((work[at(f, 0)] && halted[f]) || (work[at(f, 1)] && halted[2]) || \
	 (work[at(f, 2)] && halted[3]))

#define excuse(f, k) \
	if \
	:: k != holder[f] && work[at(f, k)] -> set_excused(at(f, k), true) \
	:: else \
	fi

proctype turn_clock(byte f)
{
end:
	do
	:: atomic {
		holder[f] != NOBODY && begun[f] && !over[f] &&
		(seen[f] || is_halted(f, holder[f])) -> over[f] = true
	   }
	:: atomic { holder[f] != NOBODY && !begun[f] && !others_work(f, holder[f]) -> begun[f] = true }
	:: atomic { /* SOFT_NS after it was due: the work of the stopped */
		holder[f] != NOBODY && !begun[f] && stopped_work(f) ->
		begun[f] = true;
		excuse(f, 0);
		excuse(f, 1);
		excuse(f, 2)
	   }
	od
}

#define is_stuck(f) \
	(holder[f] != NOBODY && is_halted(f, holder[f]) && lives(f, holder[f]) && !over[f])
#define is_kept(f) (holder[f] != NOBODY && !begun[f] && stopped_work(f))
/* What can make a date late: the gang is halted, another one runs, a holder is halted and its turn
 * is not over yet, or the work of one that is halted keeps a GPU. A gang that is halted runs no
 * more, although runs[] stays set. */
#define is_held(g) \
	(halted[g + 1] || (runs[3 - g] && !halted[4 - g]) || \
	 is_stuck(0) || is_stuck(1) || is_kept(0) || is_kept(1))
#define is_any_owed (owed[0] || owed[1])

proctype date_clock(byte g)
{
end:
	do
	:: atomic {
		(wish[at(0, g)] || wish[at(1, g)]) && !near[g] && !is_any_owed &&
		(!is_patient || halted[g + 1] || (wish[at(0, g)] && wish[at(1, g)])) -> near[g] = true
	   }
	:: atomic { ticket[g] && !ripe[g] -> ripe[g] = true }
	:: atomic { near[g] && !due[g] -> due[g] = true; ripe[g] = true }
	:: atomic { due[g] && !late[g] && (!is_patient || is_held(g)) -> late[g] = true }
	od
}

init
{
	atomic {
#if SLICES > 0
		run slice(0);
#endif
#if SLICES > 1
		run slice(1);
#endif
		run gang(1);
#if GANGS > 1
		run gang(2);
		run date_clock(2);
#endif
		run date_clock(1);
		run device(0);
		run device(1);
		run turn_clock(0);
		run turn_clock(1)
	}
}
