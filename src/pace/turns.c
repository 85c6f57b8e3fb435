/*
 * How a seat is taken: under a lock, as the struct turn is filled in by one thread; others find its
 * pointer, which is stored last.
 *
 * A turn whose file is lost stays mapped, as another thread may be at work in it, and is never used
 * again. So a process can lose SPARE_TURNS files, and then goes without turns.
 */
#include "turns.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cores.h"
#include "lock.h"
#include "pace.h"

#define AGAIN_NS    (1 * NS_PER_S)   /* from one attempt to the next */
#define WATCH_NS    (20 * NS_PER_MS) /* from one look at the files to the next */
#define SPARE_TURNS 8
#define TURNS       (VGPU_DEVICES_MAX + SPARE_TURNS)

static struct turn turns[TURNS];
static unsigned used;                        /* of them; under `joining` */
static struct turn *at[VGPU_DEVICES_MAX];    /* by CUDA ordinal; atomic */
static uint64_t again_ns[VGPU_DEVICES_MAX];  /* when the next attempt is due; atomic */
static uint64_t watched_ns;                  /* atomic */
static uint32_t shared;                      /* a bit for each device that goes by turns; atomic */
static bool are_possible;                    /* atomic */
static char directory[SHARED_FILE_PATH_LEN]; /* "": none. Under `joining` */
static struct lock joining = LOCK_INIT;

/* -- seats ------------------------------------------------------------------------------------ */

void pace_set_turns(const char *path)
{
	size_t len = path ? strlen(path) : 0;

	lock_acquire(&joining);
	if (len + VGPU_UUID_LEN + 2 > sizeof(directory))
		len = 0;
	memcpy(directory, path ? path : "", len);
	directory[len] = '\0';
	STORE(are_possible, len != 0);
	lock_release(&joining);
}

void turns_forget(void)
{
	for (unsigned i = 0; i < used; i++)
		turn_forget(&turns[i]);
	memset(at, 0, sizeof(at));
	memset(again_ns, 0, sizeof(again_ns));
	watched_ns = 0;
	shared = used = 0;
	lock_init(&joining);
}

bool turns_are_possible(void)
{
	return LOAD(are_possible);
}

struct vgpu_region_turn *turns_account(const struct meter *meter)
{
	struct region *region = cores_region();

	return region ? &region->file->turn[meter->quota.index] : NULL;
}

/* Tells the slice from others, on this machine. */
static uint64_t key_of(const struct region *region)
{
	uint64_t key = (region->inode ^ region->device << 40 ^ (uint64_t)region->made << 32) *
		       0x9e3779b97f4a7c15u;

	return key ? key : 1;
}

static bool is_name(const char *uuid)
{
	return uuid[0] != '\0' && uuid[0] != '.' && !memchr(uuid, '/', VGPU_UUID_LEN);
}

/* What src/turn/ knows of the account is its first words. */
#define SAME(field)                                                      \
	_Static_assert(offsetof(struct turn_account, field) ==           \
			       offsetof(struct vgpu_region_turn, field), \
		       "layout")
SAME(held_from);
SAME(ready_at);
SAME(busy_until);
SAME(paid_until);
SAME(paid_ns);

static bool join(const struct meter *meter, struct turn *turn)
{
	static char
		path[SHARED_FILE_PATH_LEN]; /* not on the stack, which may be a small thread's */
	struct vgpu_region_turn *account = turns_account(meter);
	struct region *region = cores_region();
	struct fault fault = {""};
	unsigned pct = cores_limit(meter);
	const char *uuid;

	if (!region || !account)
		return false;
	uuid = region->file->hami.uuids[meter->quota.index];
	if (!is_name(uuid))
		return false;
	snprintf(path, sizeof(path), "%.3900s/%.95s", directory, uuid);
	const struct turn_slice slice = {.key = key_of(region),
					 .weight = pct,
					 .limit_pct = pct ? pct : 100,
					 .account = (struct turn_account *)(void *)account};

	if (turn_join(turn, path, &slice, &fault) != 0)
		return false;
	if (turn->is_first)
		STORE(account->shared, 0);
	return true;
}

static struct turn *take_seat(const struct meter *meter, int device)
{
	lock_acquire(&joining);
	if (!at[device] && clock_coarse_ns() >= LOAD(again_ns[device]) && used < TURNS) {
		STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
		if (join(meter, &turns[used]))
			__atomic_store_n(&at[device], &turns[used++], __ATOMIC_RELEASE);
	}
	lock_release(&joining);
	return at[device];
}

struct turn *turns_of(const struct meter *meter, int device)
{
	struct turn *turn;

	if (!LOAD(are_possible) || device < 0 || device >= VGPU_DEVICES_MAX)
		return NULL;
	turn = __atomic_load_n(&at[device], __ATOMIC_ACQUIRE); /* pairs with take_seat's release */
	if (turn || clock_coarse_ns() < LOAD(again_ns[device]))
		return turn;
	return take_seat(meter, device);
}

void turns_watch(uint64_t now_ns)
{
	uint64_t then_ns = LOAD(watched_ns);

	if (!LOAD(are_possible) || meter_since(now_ns, then_ns) < WATCH_NS ||
	    !SWAP(watched_ns, then_ns, now_ns))
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct turn *turn = __atomic_load_n(&at[device], __ATOMIC_ACQUIRE);

		if (turn && !turn_watch(turn)) {
			STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
			__atomic_store_n(&at[device], NULL, __ATOMIC_RELEASE);
		}
	}
}

/* -- which devices go by turns ----------------------------------------------------------------- */

bool turns_note(int device, bool are_shared)
{
	uint32_t bit = (uint32_t)1 << device;
	uint32_t before = are_shared ? __atomic_fetch_or(&shared, bit, __ATOMIC_RELAXED)
				     : __atomic_fetch_and(&shared, ~bit, __ATOMIC_RELAXED);

	return ((before & bit) != 0) != are_shared;
}

bool turns_any_shared(void)
{
	return LOAD(shared) != 0;
}
