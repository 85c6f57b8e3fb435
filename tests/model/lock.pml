/*
 * The region's lock as a model for spin(1): src/region/lock.c, with what it needs of slot.c, in
 * their names, over bytes and a futex as the kernel has them. check.sh runs it.
 *
 * How it works. A process comes, locks a slot's byte, counts the claim, and takes the lock: to
 * publish its status, then to charge for as long as it likes, at last to close; or as an onlooker,
 * who reaps or looks, and gives the byte back. An atomic block is one access to what is shared, or
 * one system call, and at the beginning of each the process may be killed, which frees its byte:
 * region_step(). LIVES processes come in all, as many at a time as there are SLOTS. Who has no byte
 * has nothing that others see; so all those of one slot are one process here, from life to life.
 *
 * What must hold, by its asserts:
 *     one living process at most has the lock, and its word is there    take_lock, region_unlock
 *     what a dead holder left half done is repaired before it is used   begin_change
 *     others empty a slot only when its owner is dead                   region_clear_dead_locked
 * by the search for states from which nothing goes on, with NO_TIMEOUTS and DEATHS=0:
 *     nobody sleeps for ever while all live: no wake-up is lost
 * and by the search for cycles without progress that are (weakly) fair:
 *     while anybody wants the lock somebody gets it, whoever has died
 *
 * What it is not. It has no memory orders: all see every access at once. It has no threads that
 * share a slot, no process that cannot ask about the others, and no table of shares; its data is
 * one bit. lock.c assumes that claims do not come round between a taker's look at a word and his
 * swap; here they cannot, for a claim has more values than there are LIVES. With CLAIMS=2 they do,
 * and the lock breaks.
 *
 * BREAK is one of the mistakes below; check.sh demands that spin finds each of them.
 */

#ifndef SLOTS
#define SLOTS 3 /* or 2 */
#endif
#ifndef LIVES
#define LIVES 4
#endif
#ifndef CLAIMS
#define CLAIMS 8 /* how many values a claim has in the word; 1: it is not counted */
#endif

#define NO_COMPARE         1 /* takes over by a store, whatever the word is by now */
#define NO_REPAIR          2
#define NO_BIT_TO_SLEEP    3 /* sleeps without setting the waiters' bit */
#define NO_BIT_AFTER_SLEEP 4 /* takes the lock without it after having slept */
#define NO_EXCHANGE        5 /* unlocks by a load and a store */
#define NO_QUESTION        6 /* takes every holder for alive */
#define OWN_BYTE           7 /* takes its own byte for its predecessor's */
#define BYTE_BEFORE_WORD   8 /* gives its byte back before it unlocks the word */
#define STATUS_BEFORE_LOCK 9 /* publishes its status before it has the lock */
#ifndef BREAK
#define BREAK 0
#endif
#define broken(mistake) (BREAK == mistake)

#ifdef DEATHS
#define may_die (deaths < DEATHS)
#else
#define may_die true
#endif
#ifdef NO_TIMEOUTS
#define may_time_out false
#else
#define may_time_out true
#endif

/* -- what is shared --------------------------------------------------------------------------- */

#define SLOT_MASK         3
#define CLAIM_MASK        28
#define VGPU_LOCK_WAITERS 32
#define region_owner_word(slot) ((slot + 1) | ((claims[slot] % CLAIMS) << 2))

#define FREE    0
#define RUNNING 1
#define LEFT    2 /* RUNNING to all who look; that its owner is dead only the asserts know */

byte lock;
byte claims[SLOTS];
byte status[SLOTS];
bool half_done; /* slots or totals are being changed, or somebody died over it */

/* The kernel's. */
bool byte_locked[SLOTS];
bool asleep[SLOTS];

/* The asserts': who lives and has the lock. The bounds': how many came, how many were killed. */
#define NOBODY 255
byte holder = NOBODY;
byte lives, deaths;

/* Names are those of steps.h, at the first thing that comes after them. */
#define region_step(name) if :: may_die -> goto died :: true fi

#define take_lock(word) assert(holder == NOBODY); holder = slot; lock = word; seen = 0

/* Of take_or_wait(), which is tried again, unless REGION_LOCK_PATIENCE_NS are over. */
#define return_false seen = 0; if :: goto take_or_wait :: may_time_out -> goto given_up fi

#define begin_change() assert(!half_done); half_done = true

/* -- slot.c ----------------------------------------------------------------------------------- */

/* And counts the claim: who dies between the two leaves nothing. */
inline take_byte()
{
	atomic {
		lives < LIVES -> lives++;
		byte_locked[slot] = true;
		claims[slot]++;
		owner = region_owner_word(slot);
		if
		:: broken(STATUS_BEFORE_LOCK) -> status[slot] = RUNNING
		:: else
		fi
	}
}

#define give_byte() byte_locked[slot] = false; owner = 0

#define region_slot_alive(slot) byte_locked[slot]

#define is_dead(slot) (status[slot] != FREE && !region_slot_alive(slot))

/* One of them: the next one would be found as this one was. */
inline region_clear_dead_locked()
{
	atomic {
		region_step(lock_taken_over);
		half_done = true;
		if
		:: is_dead(0) -> dead = 0
		:: is_dead(1) -> dead = 1
#if SLOTS > 2
		:: is_dead(2) -> dead = 2
#endif
		:: else -> goto cleared
		fi
	}
	atomic {
		region_step();
		assert(status[dead] != RUNNING);
		status[dead] = FREE;
		dead = 0
	}
}

/* -- the futex -------------------------------------------------------------------------------- */

/* Goes on after a time-out or a signal only: take_or_wait() does nothing with other answers. */
inline sys_futex_wait()
{
	atomic {
		region_step(lock_marked);
		if
		:: lock == seen -> asleep[slot] = true
		:: else -> return_false
		fi
	}
	if
	:: atomic { !asleep[slot] -> return_false }
	:: atomic { asleep[slot] && may_time_out -> asleep[slot] = false }
	:: may_die -> goto died
	fi
}

inline sys_futex_wake()
{
	atomic {
		region_step(lock_released);
		if
		:: asleep[0] -> asleep[0] = false
		:: asleep[1] -> asleep[1] = false
#if SLOTS > 2
		:: asleep[2] -> asleep[2] = false
#endif
		:: else
		fi
	}
}

/* -- lock.c ----------------------------------------------------------------------------------- */

#define is_predecessor(word) \
	((word & SLOT_MASK) == (owner & SLOT_MASK) && ((word ^ owner) & CLAIM_MASK) != 0 && \
	 !broken(OWN_BYTE))
#define region_holder_lives(word) \
	(!is_predecessor(word) && \
	 (broken(NO_QUESTION) || region_slot_alive((word & SLOT_MASK) - 1)))

inline repair()
{
	region_clear_dead_locked();
cleared:
	atomic { region_step(clear_done); half_done = false }
}

/*
 * Where lock.c loads the word and swaps it next, that is one block: a swap that succeeds has found
 * what was loaded, and one that fails has done nothing, as if both came later. For the same reason
 * there is no spin(): its tries are the first one, made later.
 */
inline region_lock()
{
	atomic {
		region_step(claim_byte);
		if
		:: lock == 0 -> take_lock(owner); goto locked
		:: else
		fi
	}
take_or_wait:
	atomic {
		region_step();
		seen = lock;
		if
		:: seen == 0 && !broken(NO_BIT_AFTER_SLEEP) ->
			take_lock(owner | VGPU_LOCK_WAITERS);
			goto locked
		:: seen == 0 && broken(NO_BIT_AFTER_SLEEP) -> take_lock(owner); goto locked
		:: seen != 0 && is_predecessor(seen) -> goto take_over
		:: else
		fi;
		if
		:: !broken(NO_BIT_TO_SLEEP) -> seen = seen | VGPU_LOCK_WAITERS; lock = seen
		:: else
		fi
	}
	sys_futex_wait();
	atomic {
		region_step(lock_waited);
		if
		:: region_holder_lives(seen) -> return_false
		:: else
		fi
	}
take_over:
	atomic {
		region_step(lock_found_dead);
		if
		:: lock == seen || broken(NO_COMPARE) -> take_lock(owner | VGPU_LOCK_WAITERS)
		:: else -> return_false
		fi;
		if
		:: broken(NO_REPAIR) -> goto locked
		:: else
		fi
	}
reap:
	repair()
}

inline region_unlock()
{
#define was lock
#if BREAK == NO_EXCHANGE
	seen = lock;
#undef was
#define was seen
#elif BREAK == BYTE_BEFORE_WORD
	byte_locked[slot] = (status[slot] == RUNNING);
#endif
	atomic {
		region_step(lock_releasing);
		assert(holder == slot && (lock & ~VGPU_LOCK_WAITERS) == owner);
		holder = NOBODY;
		if
		:: was & VGPU_LOCK_WAITERS -> lock = 0; seen = 0
		:: else -> lock = 0; seen = 0; goto unlocked
		fi
	}
	sys_futex_wake()
}

/* -- a process, and those that have its slot after it ----------------------------------------- */

/* The kernel's part of a death, and the asserts'. */
inline bury()
{
	give_byte();
	asleep[slot] = false;
	if
	:: status[slot] == RUNNING -> status[slot] = LEFT
	:: else
	fi;
	if
	:: holder == slot -> holder = NOBODY
	:: else
	fi;
	seen = 0;
	dead = 0;
#ifdef DEATHS
	deaths++
#endif
}

proctype process(byte slot)
{
	byte owner, seen, dead;

end: /* for good, when nobody else comes */
	take_byte();
again:
	region_lock();
progress:
locked:
	atomic { region_step(lock_taken); begin_change() }
	if
	:: atomic { status[slot] == RUNNING -> /* region_charge */
		region_step(raise_used); half_done = false }
	:: atomic { status[slot] == RUNNING -> /* give_slot */
		region_step(clear_hidden); status[slot] = FREE; half_done = false }
	:: atomic { status[slot] != RUNNING -> /* fill_slot_locked */
		region_step(clear_hidden); status[slot] = FREE }
	   atomic { region_step(claim_filled); status[slot] = RUNNING; half_done = false }
	:: status[slot] != RUNNING -> /* region_reap, an onlooker's */
		goto reap
	:: atomic { status[slot] != RUNNING -> /* an onlooker's look */
		region_step(); half_done = false }
	fi;
	region_unlock();
unlocked:
given_up:
	atomic {
		region_step(borrow_over);
		if
		:: status[slot] == RUNNING -> goto again
		:: else -> give_byte(); goto end
		fi
	}
died:
	atomic { bury(); goto end }
}

init
{
	atomic {
		run process(0);
		run process(1);
#if SLOTS > 2
		run process(2)
#endif
	}
}
