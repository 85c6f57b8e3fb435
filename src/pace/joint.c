#include "joint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cores.h"
#include "gang_file.h"
#include "lock.h"
#include "relaxed.h"

#define AGAIN_NS       (1 * NS_PER_S)    /* from one attempt to the next */
#define AGAIN_SOON_NS  (100 * NS_PER_MS) /* while other processes of the slice change gangs */
#define QUIET_ATTEMPTS 20                /* that fail for these, before a line says so */

/* One that the process is in, or was: other threads may still look at it, so it stays open. */
struct joint {
	struct gang gang;
	struct gang_file file;
};

#define JOINTS_MAX 8

static struct joint joints[JOINTS_MAX];
static unsigned used; /* of them; the last may be the present one. Under the caller's lock,
		       * as the next four */
static struct region *joined;
static struct joint *at;  /* the present one, or NULL; atomic */
static unsigned attempts; /* that failed for other processes of the slice */
static char said[512];    /* the last line that was logged */
static struct lock naming = LOCK_INIT;
static char named[SHARED_FILE_PATH_LEN]; /* by the policy, or ""; under `naming` */
static uint32_t asked, settled;          /* how often a name was given, and was seen to; atomic */
static bool is_lost;                     /* the file of `at` is; atomic */
static uint64_t again_ns;                /* when the next attempt is due; 0: none is. Atomic */

/* -- what the policy says --------------------------------------------------------------------- */

void joint_name(const char *path)
{
	size_t len = path ? strlen(path) : 0;

	if (len >= sizeof(named))
		len = sizeof(named) - 1; /* gang_file_open says that it is too long */
	lock_acquire(&naming);
	memcpy(named, path ? path : "", len);
	named[len] = '\0';
	lock_release(&naming);
	RELAXED_ADD(asked, 1);
}

void joint_forked(void)
{
	for (unsigned i = 0; i < used; i++)
		gang_file_forget(&joints[i].file);
	used = attempts = 0;
	at = NULL;
	joined = NULL;
	said[0] = named[0] = '\0';
	asked = settled = 0;
	is_lost = false;
	again_ns = 0;
	lock_init(&naming);
}

bool joint_is_due(void)
{
	uint64_t due_ns = RELAXED_LOAD(again_ns);

	return RELAXED_LOAD(asked) != RELAXED_LOAD(settled) || RELAXED_LOAD(is_lost) ||
	       (due_ns && clock_coarse_ns() >= due_ns);
}

/* -- joining ---------------------------------------------------------------------------------- */

static struct joint *joint_of(const struct gang *gang)
{
	return (struct joint *)((char *)(uintptr_t)gang - offsetof(struct joint, gang));
}

static bool lives(const struct gang *gang, uint32_t owner)
{
	return gang_file_lives(&joint_of(gang)->file, owner);
}

/* The gang that this process is in, for the others of the slice to see. */
static void show(uint64_t number)
{
	__atomic_store_n(&joined->file->own.slots[joined->slot].joint_gang, number,
			 __ATOMIC_SEQ_CST);
}

/* Whether another process of the slice is in another gang. After `show`: of two that join at once,
 * one sees the other at least. */
static bool is_slice_elsewhere(uint64_t number)
{
	for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++) {
		uint64_t other = __atomic_load_n(&joined->file->own.slots[slot].joint_gang,
						 __ATOMIC_SEQ_CST);

		if (other && other != number && (int)slot != joined->slot &&
		    region_slot_alive(joined, slot))
			return true;
	}
	return false;
}

static void say_once(const struct fault *fault)
{
	char line[sizeof(said)];

	snprintf(line, sizeof(line), "%.420s; until then its slice is throttled by itself",
		 fault->text);
	if (strcmp(line, said) == 0)
		return;
	memcpy(said, line, sizeof(said));
	pace_driver->say(line);
}

/* The members are in the slice's own gang until the next attempt. If other processes prevent it at
 * this moment, that passes by itself: the next attempt is soon, and a line is logged only after
 * many. */
static void put_off(int error, const struct fault *fault)
{
	bool passes = error == -EBUSY || error == -ESTALE;

	RELAXED_STORE(at, NULL);
	RELAXED_STORE(is_lost, false);
	show(0);
	RELAXED_STORE(again_ns, clock_coarse_ns() + (passes ? AGAIN_SOON_NS : AGAIN_NS));
	if (!passes || ++attempts > QUIET_ATTEMPTS)
		say_once(fault);
}

static int open_file(const char *path, struct fault *fault)
{
	struct joint *joint = &joints[used];
	int error;

	if (used == JOINTS_MAX)
		return fault_set(fault, -EMFILE,
				 "this program has been in %d gangs: start it again to join %.300s",
				 JOINTS_MAX, path);
	error = gang_file_open(path, &joint->file, fault);
	if (error)
		return error;
	show(gang_file_number(&joint->file));
	if (is_slice_elsewhere(gang_file_number(&joint->file))) {
		gang_file_forget(&joint->file);
		return fault_set(fault, -EBUSY,
				 "cannot join the gang %.300s: other programs of the slice are in "
				 "another gang; end them, or give them the same VGPU_GANGS",
				 path);
	}
	joint->gang = (struct gang){
		.kind = GANG_OF_SLICES,
		.words = &joint->file.file->gang.group,
		.table = &joint->file.file->gang,
		.devices = joined->file->own.device,
		.turns = joined->file->turn,
		.slice = region_key(joined),
		.lives = lives,
		.quota = cores_limit_at,
	};
	used++;
	RELAXED_STORE(is_lost, false);
	RELAXED_STORE(again_ns, 0);
	__atomic_store_n(&at, joint, __ATOMIC_RELEASE); /* pairs with joint_watch's acquire */
	return 0;
}

/* Whether the gang is the present one already. */
static bool is_at(const char *path)
{
	return at && !RELAXED_LOAD(is_lost) && strcmp(at->file.shared.path, path) == 0;
}

const struct gang *joint_settle(struct region *region)
{
	static char
		path[SHARED_FILE_PATH_LEN]; /* not on the stack, which may be a small thread's */
	struct fault fault = {""};
	int error;

	if (!joint_is_due())
		return at ? &at->gang : NULL;
	joined = region;
	RELAXED_STORE(settled, RELAXED_LOAD(asked));
	lock_acquire(&naming);
	memcpy(path, named, sizeof(path));
	lock_release(&naming);
	RELAXED_STORE(again_ns, 0);
	if (is_at(path))
		return &at->gang;
	RELAXED_STORE(at, NULL);
	RELAXED_STORE(is_lost, false);
	show(0);
	if (!*path)
		return NULL;
	error = open_file(path, &fault);
	if (!error)
		return &at->gang;
	put_off(error, &fault);
	return NULL;
}

bool joint_join(const struct gang *gang, struct gang_member *self, uint32_t device)
{
	struct joint *joint = joint_of(gang);
	struct fault fault = {""};
	uint32_t owner;
	int entry = gang_file_claim(&joint->file, &owner, &fault);

	if (entry >= 0) {
		gang_join_at(gang, self, (unsigned)entry, owner, device);
		attempts = 0;
		return true;
	}
	put_off(entry, &fault);
	return false;
}

void joint_leave(const struct gang *gang, struct gang_member *self)
{
	unsigned entry = (unsigned)(self->entry - gang->table->member);

	gang_leave(self);
	gang_file_release(&joint_of(gang)->file, entry);
}

void joint_watch(void)
{
	struct joint *joint = __atomic_load_n(&at, __ATOMIC_ACQUIRE);

	if (joint && gang_file_watch(&joint->file) != 0)
		RELAXED_STORE(is_lost, true);
}
