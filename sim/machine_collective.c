/*
 * Collectives of ranks in any processes: the communicators of the shared state file.
 *
 * A communicator has its place in the file from the first use of its number on. Its collectives are
 * rounds, which every rank counts for itself. Round k has the words rounds[k % ROUNDS], which are
 * never reset: `begun` only counts up, and `latest_ns` is the latest begin of all rounds. So
 *
 *     all ranks have begun round k  <=>  begun >= ranks * (k / ROUNDS + 1)
 *
 * A rank begins a round when its last round is over, and a round is over only when all ranks have
 * begun it. So at most two rounds are in use, and ROUNDS could be 2.
 *
 * A rank stores its time before it counts itself. If it is killed before it has counted itself, it
 * is missing, and the others wait for ever. A rank cannot come back: a number is used once, as
 * NCCL's unique identifiers are.
 *
 * The last rank to begin rings the bells of all others: a futex word in each process's slot.
 */
#include "machine_file.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The place of the communicator, which it gets at first use; COMMUNICATORS: there is none left. */
static unsigned place_of(uint64_t number)
{
	for (unsigned i = 0; i < COMMUNICATORS; i++) {
		unsigned place =
			(unsigned)((number * 0x9e3779b97f4a7c15u >> 32) + i) % COMMUNICATORS;
		_Atomic uint64_t *word = &machine->communicators[place].number;
		uint64_t seen = 0;

		if (atomic_compare_exchange_strong(word, &seen, number) || seen == number)
			return place;
	}
	return COMMUNICATORS;
}

int machine_communicator_join(uint64_t number, unsigned *ret_place)
{
	if (!number)
		return -EINVAL;
	unsigned place = place_of(number);
	if (place == COMMUNICATORS)
		return -ENOSPC;
	struct communicator *communicator = &machine->communicators[place];
	uint64_t rank = atomic_fetch_add(&communicator->joined, 1);
	if (rank >= MACHINE_RANKS_MAX)
		return -ENOSPC;
	atomic_store(&communicator->slots[rank], (uint32_t)(machine_own - machine->slots) + 1);
	*ret_place = place;
	return 0;
}

static void bell_ring(struct slot *slot)
{
	atomic_fetch_add(&slot->bell, 1);
	syscall(SYS_futex, &slot->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void machine_bell_ring(void)
{
	bell_ring(machine_own);
}

uint32_t machine_bell(void)
{
	return atomic_load(&machine_own->bell);
}

void machine_bell_wait(uint32_t seen, uint64_t span_ns)
{
	struct timespec span = {.tv_sec = (time_t)(span_ns / 1000000000),
				.tv_nsec = (long)(span_ns % 1000000000)};

	syscall(SYS_futex, &machine_own->bell, FUTEX_WAIT, seen,
		span_ns == UINT64_MAX ? NULL : &span, NULL, 0);
}

/* Rings the bells of the ranks' processes, except this one, whose thread goes on by itself. */
static void bells_ring(const struct communicator *communicator)
{
	for (unsigned i = 0; i < MACHINE_RANKS_MAX; i++) {
		uint32_t member = atomic_load(&communicator->slots[i]);

		if (!member)
			return;
		if (&machine->slots[member - 1] != machine_own)
			bell_ring(&machine->slots[member - 1]);
	}
}

static uint64_t begun_when_all(unsigned ranks, uint64_t round)
{
	return ranks * (round / ROUNDS + 1);
}

void machine_collective_begin(unsigned place, unsigned ranks, uint64_t round, uint64_t begin_ns)
{
	struct communicator *communicator = &machine->communicators[place];
	struct round *words = &communicator->rounds[round % ROUNDS];

	machine_raise(&words->latest_ns, begin_ns);
	if (atomic_fetch_add(&words->begun, 1) + 1 == begun_when_all(ranks, round))
		bells_ring(communicator);
}

uint64_t machine_collective_begun(unsigned place, unsigned ranks, uint64_t round)
{
	struct round *words = &machine->communicators[place].rounds[round % ROUNDS];

	return atomic_load(&words->begun) < begun_when_all(ranks, round)
		       ? UINT64_MAX
		       : atomic_load(&words->latest_ns);
}
