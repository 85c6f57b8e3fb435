/*
 * A seat is taken under a lock, so that one thread fills in the struct turn. Other threads find it
 * by its pointer, which is stored last.
 *
 * A turn whose file is lost stays mapped, because another thread may be at work in it, and is never
 * used again. Each file that the process joins takes one of TURNS entries for good. When all are
 * taken, a device that loses its file has no turns, and a device that has a file stays with it.
 *
 * How long a process waits for vgpud. A process that joins waits for ASK_FIRST_NS, once: vgpud may
 * be at work. After that, a process waits for ask_ns at a time. This time doubles whenever vgpud
 * did not answer within it, up to ASK_MOST_NS. The process asks again after RENEW_NS, or after
 * ASK_PART times ask_ns if that is longer. So a process comes back to a vgpud that was stopped
 * within seconds.
 */
#include "turns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cores.h"
#include "lock.h"
#include "pace.h"
#include "sys.h"
#include "turn_offer.h"

#define AGAIN_NS    (1 * NS_PER_S)   /* from one attempt to the next */
#define WATCH_NS    (20 * NS_PER_MS) /* from one look at the files to the next */
#define SPARE_TURNS 24
#define TURNS       (VGPU_DEVICES_MAX + SPARE_TURNS)
#define SOCKET_LEN  108 /* of a socket's path, as sockaddr_un has it */

#define ASK_FIRST_NS (200 * NS_PER_MS)
#define ASK_LEAST_NS (2 * NS_PER_MS)
#define ASK_MOST_NS  (8 * NS_PER_MS)
#define RENEW_NS     (2 * NS_PER_S)
#define ASK_PART     500

static struct turn turns[TURNS];
static unsigned used;                       /* of them; under `joining` */
static struct turn *at[VGPU_DEVICES_MAX];   /* by CUDA ordinal; atomic */
static uint64_t again_ns[VGPU_DEVICES_MAX]; /* when the next attempt is due; atomic */
static uint64_t watched_ns;                 /* atomic */
static uint32_t shared;   /* a bit for each device whose launches take turns; atomic */
static int seated_pid;    /* the process that took the seats; atomic */
static bool are_possible; /* atomic */
static char directory[SHARED_FILE_PATH_LEN]; /* "": none. Under `joining` */
static char socket_path[SOCKET_LEN];         /* vgpud's; "": it is not asked. Likewise */
static bool is_slow;                         /* vgpud has not answered in time. Likewise */
static uint64_t ask_ns = ASK_LEAST_NS;       /* how long it is waited for. Likewise */
static uint64_t ask_next_ns;                 /* when it is asked again; atomic */
static struct lock joining = LOCK_INIT;

/* -- seats ------------------------------------------------------------------------------------ */

static void keep(const char *path, char *ret_path, size_t most)
{
	size_t len = strlen(path);

	if (len >= most)
		len = 0;
	memcpy(ret_path, path, len);
	ret_path[len] = '\0';
}

/* A program that finds neither a directory nor vgpud pays nothing for turns, and has none. */
void pace_set_turns(const char *files, const char *socket)
{
	struct stat st;

	lock_acquire(&joining);
	keep(files, directory, sizeof(directory) - VGPU_UUID_LEN - 2);
	keep(socket, socket_path, sizeof(socket_path));
	RELAXED_STORE(are_possible,
		      directory[0] || (socket_path[0] && sys_stat(socket_path, &st) == 0));
	lock_release(&joining);
}

void turns_forked(void)
{
	for (unsigned i = 0; i < used; i++)
		turn_forget(&turns[i]);
	memset(at, 0, sizeof(at));
	memset(again_ns, 0, sizeof(again_ns));
	watched_ns = ask_next_ns = 0;
	shared = used = 0;
	is_slow = false;
	ask_ns = ASK_LEAST_NS;
	lock_init(&joining);
}

bool turns_are_possible(void)
{
	return RELAXED_LOAD(are_possible);
}

void turns_set(const struct meter *meter, struct turn *turn, unsigned limit_pct,
	       uint64_t closing_ns)
{
	unsigned weight = cores_assured(meter);
	bool weighs =
		weight ? !RELAXED_LOAD(turn->takes_rest) && RELAXED_LOAD(turn->weight) == weight
		       : RELAXED_LOAD(turn->takes_rest);

	if (!weighs || RELAXED_LOAD(turn->limit_pct) != limit_pct)
		turn_set(turn, weight, limit_pct);
	turn_set_gang(turn, closing_ns);
}

struct vgpu_region_turn *turns_account(const struct meter *meter)
{
	struct region *region = cores_region();

	return region ? &region->file->turn[meter->quota.index] : NULL;
}

/* Where the waits of the slice for its turns are counted. */
static struct vgpu_region_waits *waits_of(const struct meter *meter)
{
	return &cores_region()->file->own.waits[meter->quota.index];
}

static bool is_name(const char *uuid)
{
	return uuid[0] != '\0' && uuid[0] != '.' && !memchr(uuid, '/', VGPU_UUID_LEN);
}

/* struct turn_account, which src/turn/ uses, has the first words of the account in the region. */
#define SAME(field)                                                      \
	_Static_assert(offsetof(struct turn_account, field) ==           \
			       offsetof(struct vgpu_region_turn, field), \
		       "layout")
SAME(held_from);
SAME(ready_at);
SAME(busy_until);
SAME(paid_until);
SAME(paid_ns);

/* -- vgpud ------------------------------------------------------------------------------------ */

/* Sets from vgpud's answer when it is asked next, and how long the process waits then. */
static void note_answer(int answer)
{
	is_slow = answer == -ETIMEDOUT;
	if (!is_slow)
		ask_ns = ASK_LEAST_NS;
	else if (ask_ns < ASK_MOST_NS)
		ask_ns *= 2;
	RELAXED_STORE(ask_next_ns,
		      clock_coarse_ns() +
			      (ASK_PART * ask_ns > RENEW_NS ? ASK_PART * ask_ns : RENEW_NS));
}

/* vgpud's file, for a process that has that one, or NULL: as turn_offer_ask. Under `joining`. */
static int ask_vgpud(const struct region *region, const char *uuid, const struct turn_file *have)
{
	uint64_t patience_ns = is_slow || have ? ask_ns : ASK_FIRST_NS;
	int answer = -ENOENT, region_fd;

	if (!socket_path[0] || (is_slow && clock_coarse_ns() < RELAXED_LOAD(ask_next_ns)))
		return answer;
	region_fd = sys_open_regular(region->path, O_RDWR);
	if (region_fd >= 0) {
		answer = turn_offer_ask(socket_path, uuid, region_fd, have, patience_ns);
		sys_close(region_fd);
	}
	note_answer(answer);
	return answer;
}

/* -- seats ------------------------------------------------------------------------------------ */

/* The device's name in the slice's region; NULL: there is none. */
static const char *uuid_of(const struct meter *meter, const struct region *region)
{
	const char *uuid = region ? region->file->hami.uuids[meter->quota.index] : "";

	return is_name(uuid) ? uuid : NULL;
}

/* Takes a seat in the file that vgpud has handed over, or in that of the directory. */
static bool join(const struct meter *meter, struct turn *turn, const char *uuid, int offered)
{
	static char
		path[SHARED_FILE_PATH_LEN]; /* not on the stack, which may be a small thread's */
	struct vgpu_region_turn *account = turns_account(meter);
	struct fault fault = {""};
	unsigned pct = cores_limit(meter);
	const struct turn_slice slice = {.key = region_key(cores_region()),
					 .weight = cores_assured(meter),
					 .limit_pct = pct ? pct : 100,
					 .account = (struct turn_account *)(void *)account,
					 .waits = waits_of(meter)};
	int error;

	snprintf(path, sizeof(path), "%.3900s/%.95s", directory, uuid);
	if (offered >= 0)
		error = turn_join_offered(turn, offered, &slice, &fault);
	else
		error = directory[0] ? turn_join(turn, path, &slice, &fault) : -ENOENT;
	if (error)
		return false;
	if (turn->is_first)
		RELAXED_STORE(account->shared, 0);
	return true;
}

static bool join_any(const struct meter *meter, struct turn *turn)
{
	const char *uuid = uuid_of(meter, cores_region());
	int offered = uuid ? ask_vgpud(cores_region(), uuid, NULL) : -ENOENT;

	if (!uuid)
		return false;
	return (offered >= 0 && join(meter, turn, uuid, offered)) || join(meter, turn, uuid, -1);
}

/* The device's turn is that one from now on, or none. */
static void set_turn(int device, struct turn *turn)
{
	__atomic_store_n(&at[device], turn, __ATOMIC_RELEASE);
	__atomic_store_n(&cores_meter_at(device)->turn, turn, __ATOMIC_RELEASE);
}

static struct turn *take_seat(const struct meter *meter, int device)
{
	lock_acquire(&joining);
	if (!at[device] && clock_coarse_ns() >= RELAXED_LOAD(again_ns[device]) && used < TURNS) {
		RELAXED_STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
		RELAXED_STORE(seated_pid, sys_getpid());
		if (join_any(meter, &turns[used]))
			set_turn(device, &turns[used++]);
	}
	lock_release(&joining);
	return at[device];
}

struct turn *turns_of(const struct meter *meter, int device)
{
	struct turn *turn;

	if (!RELAXED_LOAD(are_possible) || device < 0 || device >= VGPU_DEVICES_MAX)
		return NULL;
	turn = __atomic_load_n(&at[device], __ATOMIC_ACQUIRE); /* pairs with set_turn's release */
	if (turn || clock_coarse_ns() < RELAXED_LOAD(again_ns[device]))
		return turn;
	return take_seat(meter, device);
}

/* Under `joining`: moves to vgpud's file, if that is another. */
static void renew(int device, struct turn *turn)
{
	const struct meter *meter = cores_meter(device);
	const char *uuid = meter ? uuid_of(meter, cores_region()) : NULL;
	int offered = uuid ? ask_vgpud(cores_region(), uuid, &turn->file) : -ENOENT;

	if (offered < 0)
		return;
	turn_retire(turn, clock_steady_ns());
	turn = join(meter, &turns[used], uuid, offered) ? &turns[used++] : NULL;
	RELAXED_STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
	set_turn(device, turn);
}

/* A vfork child has its parent's memory, and the seats are the parent's. */
void turns_leave(uint64_t now_ns)
{
	if (RELAXED_LOAD(seated_pid) != sys_getpid() || !lock_try(&joining))
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct turn *turn = at[device];

		if (!turn)
			continue;
		RELAXED_STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
		set_turn(device, NULL);
		turn_retire(turn, now_ns);
	}
	lock_release(&joining);
}

static void renew_all(void)
{
	if (clock_coarse_ns() < RELAXED_LOAD(ask_next_ns) || !lock_try(&joining))
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX && socket_path[0]; device++)
		if (at[device] && used < TURNS)
			renew(device, at[device]);
	lock_release(&joining);
}

void turns_watch(uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(watched_ns);

	if (!RELAXED_LOAD(are_possible) || meter_since(now_ns, then_ns) < WATCH_NS ||
	    !RELAXED_CAS(watched_ns, then_ns, now_ns))
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct turn *turn = __atomic_load_n(&at[device], __ATOMIC_ACQUIRE);

		if (turn && !turn_watch(turn)) {
			RELAXED_STORE(again_ns[device], clock_coarse_ns() + AGAIN_NS);
			set_turn(device, NULL);
		}
	}
	renew_all();
}

bool turns_are_due(const struct meter *meter, int device, uint64_t now_ns)
{
	const struct turn *turn = turns_of(meter, device);

	return turn && turn_has_rival(turn, now_ns);
}

/* -- devices whose launches take turns --------------------------------------------------------- */

bool turns_note(int device, bool are_shared)
{
	uint32_t bit = (uint32_t)1 << device;
	uint32_t before = are_shared ? __atomic_fetch_or(&shared, bit, __ATOMIC_RELAXED)
				     : __atomic_fetch_and(&shared, ~bit, __ATOMIC_RELAXED);

	return ((before & bit) != 0) != are_shared;
}

bool turns_any_shared(void)
{
	return RELAXED_LOAD(shared) != 0;
}
