/*
 * A container that starts again over its region: what the dead left counts for nothing, whatever
 * their pids are now, and new limits hold as soon as nobody lives; while somebody does, nobody's
 * slot is moved and no limit lifted.
 */
#include "cuda_api.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spaces.h"

#define PROCESSES 6
#define UNSEEN    (9 * MIB) /* of a first context, in no process's figure */
#define PIECE     (16 * MIB)

/* What all of a container's processes have together. */
#define PIECES   (PIECE * (PROCESSES * (PROCESSES + 1) / 2))
#define CONTEXTS (PROCESSES * (CONTEXT + HIDDEN))

static uint32_t *ready; /* in shared memory: processes that hold their piece */

/* -- a container ------------------------------------------------------------------------------ */

static void hold_piece(void)
{
	cuda_start(0);
	take((uint64_t)getpid() * PIECE); /* pids from 1: another for each */
	__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
}

/* Its pid 1, with children as pids 2 and up. Says what limit it sees when all have their piece;
 * they end with it. */
static void container(int wire)
{
	size_t available, total;

	CHECK_EQUAL(getpid(), 1);
	for (int i = 2; i <= PROCESSES; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			hold_piece();
			for (;;)
				pause();
		}
		CHECK_EQUAL(pid, i);
	}
	hold_piece();
	while (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < PROCESSES)
		usleep(200);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	refused(available + GRANULE);
	tell(wire, total);
	hear(wire);
}

static struct member container_start(void)
{
	struct member member;

	*ready = 0;
	space_begin();
	member = member_start(container);
	space_end();
	return member;
}

static void begin(void)
{
	ready = mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(ready != MAP_FAILED);
	env_set("VGPU_SIM_GPUS", "2x80G");
}

/* -- its region ------------------------------------------------------------------------------- */

static unsigned slots_counted(void)
{
	unsigned count = 0;

	for (int i = 0; i < ledger()->hami.slot_count; i++)
		count += ledger()->hami.slots[i].status != VGPU_SLOT_FREE;
	return count;
}

static ino_t region_inode(void)
{
	struct stat st;

	CHECK(stat(scene_path("slice.cache"), &st) == 0);
	return st.st_ino;
}

/* One container of the GPU lives in the region, and nobody else counts in it. */
static void only_one(unsigned gpu, uint64_t limit)
{
	CHECK_EQUAL(ledger()->hami.device_count, 1);
	CHECK_EQUAL(ledger_index(gpu), 0);
	CHECK_EQUAL(ledger()->hami.limit[0], limit);
	CHECK_EQUAL(ledger_used(gpu), CONTEXTS + PIECES);
	CHECK_EQUAL(slots_counted(), PROCESSES);
	CHECK_SOON_EQUAL(outside_used(gpu), PROCESSES * (CONTEXT + UNSEEN) + PIECES);
	CHECK_SOON_EQUAL(outside_used(!gpu), 0);
	CHECK_SOON_EQUAL(ledger_reap(), PROCESSES);
	CHECK_EQUAL(slots_counted(), PROCESSES);
}

/* -- scenes ----------------------------------------------------------------------------------- */

TEST(over_the_dead)
{
	static const struct {
		const char *limit, *visible;
		uint64_t bytes;
		unsigned gpu;
	} starts[] = {
		{"8g", "0", 8 * GIB, 0},   {"8g", "0", 8 * GIB, 0}, {"20g", "0", 20 * GIB, 0},
		{"4g", "0", 4 * GIB, 0},   {"6g", "1", 6 * GIB, 1}, {"5g", "1", 5 * GIB, 1},
		{"30g", "0", 30 * GIB, 0},
	};
	ino_t inode = 0;

	begin();
	for (unsigned i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		struct member member;

		env_set("CUDA_DEVICE_MEMORY_LIMIT", starts[i].limit);
		env_set("CUDA_VISIBLE_DEVICES", starts[i].visible);
		if (i > 0) /* nobody has cleared what the dead left */
			CHECK_EQUAL(slots_counted(), PROCESSES);
		member = container_start();
		CHECK_EQUAL(hear(member.wire), starts[i].bytes);
		only_one(starts[i].gpu, starts[i].bytes);
		inode = inode ? inode : region_inode();
		CHECK_EQUAL(region_inode(), inode);
		member_kill(&member);
	}
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
}

/* All at once, in the middle of whatever they do. */
TEST(killed_while_starting)
{
	static const char *const limits[] = {"8g", "20g", "5g"};
	struct member member;
	unsigned seed = 8;

	begin();
	env_set("CUDA_VISIBLE_DEVICES", "0");
	for (unsigned round = 0; round < 45; round++) {
		env_set("CUDA_DEVICE_MEMORY_LIMIT", limits[round % 3]);
		member = container_start();
		usleep((unsigned)rand_r(&seed) % 15000);
		member_kill(&member);
	}
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "6g");
	member = container_start();
	CHECK_EQUAL(hear(member.wire), 6 * GIB);
	only_one(0, 6 * GIB);
	member_kill(&member);
}

static void sidecar(int wire)
{
	cuda_start(0);
	take(PIECE);
	say_ready(wire);
	CHECK_EQUAL(ledger_own(0).data, PIECE);
}

/* A sidecar lives on over the restart: its limit, its slot and its GPU's index stay. */
TEST(beside_the_living)
{
	struct member lives, member;
	int slot;

	begin();
	env_set("CUDA_VISIBLE_DEVICES", "0");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	lives = member_begin(sidecar);
	slot = ledger_slot(lives.pid);
	for (unsigned round = 0; round < 3; round++) {
		env_set("CUDA_DEVICE_MEMORY_LIMIT", round == 1 ? "6g" : "20g");
		member = container_start();
		CHECK_EQUAL(hear(member.wire), (round == 1 ? 6 : 8) * GIB);
		CHECK_EQUAL(ledger()->hami.limit[0], 8 * GIB);
		member_kill(&member);
		CHECK_SOON_EQUAL(ledger_reap(), 1);
		CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + PIECE);
		CHECK_EQUAL(ledger_slot(lives.pid), slot);
	}
	env_set("CUDA_VISIBLE_DEVICES", "1");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "7g");
	member = container_start();
	CHECK_EQUAL(hear(member.wire), 7 * GIB);
	CHECK_EQUAL(ledger()->hami.device_count, 2);
	CHECK_EQUAL(ledger_index(0), 0);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + PIECE);
	CHECK_EQUAL(ledger_used(1), CONTEXTS + PIECES);
	member_kill(&member);
	member_finish(&lives);
}

#define RESIDENTS 3
#define AT_ONCE   10
#define COMERS    400

static void visitor(int wire)
{
	CHECK_OK(cuInit(0));
	say_ready(wire);
}

/* A second look by the resident itself: it may still allocate, and is charged in its slot. */
static void resident(int wire)
{
	CUdeviceptr address;

	cuda_start(0);
	take(PIECE);
	tell(wire, 1);
	while (hear(wire)) {
		address = take(PIECE);
		CHECK_EQUAL(ledger_own(0).data, 2 * PIECE);
		give(address);
		tell(wire, 1);
	}
}

static void residents_stay(const struct member members[RESIDENTS], const int slots[RESIDENTS])
{
	for (unsigned i = 0; i < RESIDENTS; i++) {
		member_ask(&members[i], 1);
		CHECK_EQUAL(ledger_slot(members[i].pid), slots[i]);
		CHECK_EQUAL(ledger_of(members[i].pid, 0).data, PIECE);
		CHECK_EQUAL(ledger_of(members[i].pid, 0).total, CONTEXT + HIDDEN + PIECE);
	}
}

/* Hundreds come and go, some of them killed: what the living have stays where it is. */
TEST(nobody_is_moved)
{
	struct member residents[RESIDENTS], visitors[AT_ONCE];
	int slots[RESIDENTS];
	unsigned seed = 6;

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	for (unsigned i = 0; i < AT_ONCE;
	     i++) { /* so that the residents' slots are not the first */
		visitors[i] = member_begin(visitor);
		if (i < RESIDENTS) {
			residents[i] = member_begin(resident);
			slots[i] = ledger_slot(residents[i].pid);
		}
	}
	for (unsigned round = 0; round < COMERS; round++) {
		struct member *leaves = &visitors[(unsigned)rand_r(&seed) % AT_ONCE];

		if (rand_r(&seed) % 2) {
			member_kill(leaves);
		} else {
			member_finish(leaves);
		}
		*leaves = member_start(visitor);
		hear(leaves->wire);
		if (round % 20 == 0)
			residents_stay(residents, slots);
		if (round % 100 == 99)
			CHECK_SOON_EQUAL(ledger_reap(), RESIDENTS + AT_ONCE);
	}
	printf("nobody_is_moved: at most %d slots were in use\n", ledger()->hami.slot_count);
	CHECK(ledger()->hami.slot_count >= RESIDENTS + AT_ONCE);
	for (unsigned i = 0; i < AT_ONCE; i++)
		member_kill(&visitors[i]);
	residents_stay(residents, slots);
	for (unsigned i = 0; i < RESIDENTS; i++)
		member_finish(&residents[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
}

int main(int argc, char **argv)
{
	return spaces_main(harness_main, argc, argv);
}
