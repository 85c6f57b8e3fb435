/*
 * The shared state file.
 *
 * Layout: struct machine, mapped by every process. A process that uses CUDA has a slot in it with
 * what it holds of each GPU; what a GPU has in use is always the sum over the slots and is stored
 * nowhere, so there is nothing that could disagree.
 *
 * Locks, all of them open-file-description locks on bytes of the file. The kernel drops them when
 * the last descriptor of the description is closed, so at death, whatever kills the process:
 *
 *   LOCK_MUTEX       exclusive, while slots and objects are claimed, summed up, changed or reaped.
 *                    In a process the pthread mutex goes first: its threads share the description
 *   LOCK_USERS       shared, as long as a process is attached, or an exported descriptor open
 *   LOCK_SLOT + i    exclusive, as long as the owner of slot i lives
 *   LOCK_OBJECT + i  shared, as long as a descriptor is open that object i was exported by
 *
 * Memory that several processes may hold is an object. It is in no slot: one of its holders, the
 * payer, has it in its figure, at first who shared it, and when that one lets go or dies another.
 * Without holders it is there as long as somebody has a descriptor to it, in nobody's figure. Such
 * a descriptor is the file itself opened once more, so that its lock tells everybody that it is
 * open somewhere, and its offset says of which object it is: both go wherever it is passed to.
 *
 * Who attaches and can have LOCK_USERS exclusively is alone, and initialises the file: whatever an
 * earlier crowd, another version, or a crash in the middle of this left there is gone. A process
 * that dies while others live leaves its slot behind; whoever next needs memory, claims a slot or
 * asks NVML finds its byte unlocked and frees it (reap). Every change is a store of one word, so a
 * process killed between two of them leaves at worst a slot that is about to be reaped anyway, or
 * an object without a payer, which gets one then too.
 *
 * busy_until_ns needs no lock: it only grows, by compare-exchange. Work of a dead process goes when
 * it is reaped, unless somebody has queued behind it.
 *
 * After fork the child has a copy of the parent's descriptor, which would keep the parent's slot
 * alive: state_forked closes it. vfork and posix_spawn run no fork handlers; there close-on-exec
 * does it.
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pids.h"

enum {
	SLOTS = 1024,
	OBJECTS = 4096,
	LOCK_MUTEX = 0,
	LOCK_USERS = 1,
	LOCK_SLOT = 16,
	LOCK_OBJECT = LOCK_SLOT + SLOTS,
	HOLDER_WORDS = SLOTS / 64,
};

#define NOBODY      UINT32_MAX
#define MAGIC       0x33656e6968636d76u /* changes with the layout */
#define EXPORT_MARK ((uint64_t)1 << 42) /* in a descriptor's offset, beside the object's id */

struct share {
	_Atomic uint64_t memory_bytes, managed_bytes, hidden_bytes, contexts;
	_Atomic uint64_t queued_until_ns; /* end of the last work that the process queued */
};

struct slot {
	_Atomic uint32_t pid; /* 0: free. Set last when a slot is claimed, cleared first */
	_Atomic uint64_t pid_namespace; /* that it is of */
	struct share shares[SIM_GPUS_MAX];
};

struct object {
	_Atomic uint64_t id;    /* 0: free. Set last, cleared first. A number times OBJECTS, plus
				   its place */
	_Atomic uint32_t payer; /* a slot that holds it, or NOBODY */
	struct state_object is;
	_Atomic uint64_t holders[HOLDER_WORDS]; /* a bit a slot */
};

struct machine {
	_Atomic uint64_t magic;             /* set last */
	uint64_t total_bytes[SIM_GPUS_MAX]; /* 0 for those that do not exist */
	_Atomic uint64_t busy_until_ns[SIM_GPUS_MAX];
	_Atomic uint64_t slots_seen; /* slots from here on have never been used */
	struct slot slots[SLOTS];
	_Atomic uint64_t objects_made; /* since the file was initialised */
	_Atomic uint64_t objects_seen; /* as slots_seen */
	struct object objects[OBJECTS];
};

/* Written by attach, detach, claim and the fork handler, under mutex; read by whoever is attached.
 */
static struct machine *machine;
static int file = -1;
static struct slot *own;
static uint32_t joins[OBJECTS]; /* how often this process holds each; mutex */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int lock_try(int fd, short type, off_t byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

static int lock_wait(int fd, short type, off_t byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	while (fcntl(fd, F_OFD_SETLKW, &lock)) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static bool lock_held_by_other(int fd, off_t byte)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	/* In doubt the process lives. */
	return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

static void machine_lock(void)
{
	pthread_mutex_lock(&mutex);
	lock_wait(file, F_WRLCK, LOCK_MUTEX);
}

static void machine_unlock(void)
{
	lock_try(file, F_UNLCK, LOCK_MUTEX);
	pthread_mutex_unlock(&mutex);
}

/* The caller is alone with the file, or maps one that others have made for the same GPUs. */
static int machine_open_locked(int fd, const struct sim_config *config)
{
	bool alone = !lock_try(fd, F_WRLCK, LOCK_USERS);
	struct stat status;

	if (alone && (ftruncate(fd, 0) || ftruncate(fd, sizeof *machine)))
		return -errno;
	if (fstat(fd, &status))
		return -errno;
	if (status.st_size != sizeof *machine)
		return -EBUSY;
	struct machine *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (alone) {
		memcpy(map->total_bytes, config->total_bytes, sizeof map->total_bytes);
		atomic_store(&map->magic, MAGIC);
	}
	if (atomic_load(&map->magic) != MAGIC ||
	    memcmp(map->total_bytes, config->total_bytes, sizeof map->total_bytes)) {
		munmap(map, sizeof *map);
		return -EBUSY;
	}
	machine = map;
	return lock_try(fd, F_RDLCK, LOCK_USERS); /* replaces the exclusive one at a stroke */
}

static int attach_locked(const struct sim_config *config)
{
	int fd = pids_file_open(config->state_path);

	if (fd < 0)
		return fd;
	int result = lock_wait(fd, F_WRLCK, LOCK_MUTEX);
	if (!result)
		result = machine_open_locked(fd, config);
	if (result) {
		close(fd); /* drops what was locked */
		return result;
	}
	lock_try(fd, F_UNLCK, LOCK_MUTEX);
	file = fd;
	return 0;
}

int state_attach(void)
{
	const struct sim_config *config = config_get();
	int result = 0;

	if (!config)
		return -EINVAL;
	pthread_mutex_lock(&mutex);
	if (file < 0)
		result = attach_locked(config);
	pthread_mutex_unlock(&mutex);
	if (result == -EBUSY)
		fprintf(stderr,
			"vgpu-sim: %s is in use for other GPUs; set VGPU_SIM_STATE to another "
			"path\n",
			config->state_path);
	else if (result)
		fprintf(stderr, "vgpu-sim: %s: %s\n", config->state_path, strerror(-result));
	return result;
}

void state_detach(void)
{
	pthread_mutex_lock(&mutex);
	if (file >= 0) {
		munmap(machine, sizeof *machine);
		close(file);
	}
	machine = NULL;
	file = -1;
	own = NULL;
	memset(joins, 0, sizeof joins);
	pthread_mutex_unlock(&mutex);
}

void state_forked(void)
{
	/* Another thread of the parent may have held it. */
	pthread_mutex_init(&mutex, NULL);
	if (file >= 0)
		close(file);
	if (machine)
		munmap(machine, sizeof *machine);
	pids_forked();
	machine = NULL;
	file = -1;
	own = NULL;
	memset(joins, 0, sizeof joins);
}

static unsigned slots_seen(void)
{
	return (unsigned)atomic_load(&machine->slots_seen);
}

static bool slot_used(const struct slot *slot)
{
	return atomic_load(&slot->pid) != 0;
}

/* Takes back queued work that nobody living has queued, where nobody has queued behind it. */
static void queues_cut_locked(void)
{
	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		/* Pairs with state_queue, which stores its slot's word before busy_until_ns. */
		uint64_t busy = atomic_load(&machine->busy_until_ns[gpu]), latest = 0;

		for (unsigned i = 0; i < slots_seen(); i++) {
			const struct slot *slot = &machine->slots[i];
			uint64_t queued = atomic_load(&slot->shares[gpu].queued_until_ns);

			if (slot_used(slot) && queued > latest)
				latest = queued;
		}
		if (latest < busy)
			atomic_compare_exchange_strong(&machine->busy_until_ns[gpu], &busy, latest);
	}
}

static bool holds(const struct object *object, unsigned slot)
{
	return atomic_load(&object->holders[slot / 64]) >> slot % 64 & 1;
}

static void holder_set(struct object *object, unsigned slot)
{
	atomic_fetch_or(&object->holders[slot / 64], (uint64_t)1 << slot % 64);
}

static void holder_clear(struct object *object, unsigned slot)
{
	atomic_fetch_and(&object->holders[slot / 64], ~((uint64_t)1 << slot % 64));
}

static unsigned objects_seen(void)
{
	return (unsigned)atomic_load(&machine->objects_seen);
}

/* Finds it another payer if it has none, and lets it go if nobody has it any more. */
static void object_settle_locked(struct object *object)
{
	unsigned payer = atomic_load(&object->payer), i = (unsigned)(object - machine->objects);

	if (payer != NOBODY && holds(object, payer))
		return;
	for (payer = 0; payer < slots_seen(); payer++) {
		if (holds(object, payer)) {
			atomic_store(&object->payer, payer);
			return;
		}
	}
	atomic_store(&object->payer, NOBODY);
	if (!lock_held_by_other(file, LOCK_OBJECT + (off_t)i))
		atomic_store(&object->id, 0);
}

static void objects_settle_locked(void)
{
	for (unsigned i = 0; i < objects_seen(); i++) {
		if (atomic_load(&machine->objects[i].id))
			object_settle_locked(&machine->objects[i]);
	}
}

/* The slot's owner is dead. */
static void objects_leave_locked(unsigned slot)
{
	for (unsigned i = 0; i < objects_seen(); i++)
		holder_clear(&machine->objects[i], slot);
}

static void reap_locked(void)
{
	bool reaped = false;

	for (unsigned i = 0; i < slots_seen(); i++) {
		struct slot *slot = &machine->slots[i];

		if (slot == own || !slot_used(slot) ||
		    lock_held_by_other(file, LOCK_SLOT + (off_t)i))
			continue;
		objects_leave_locked(i);
		atomic_store(&slot->pid, 0);
		reaped = true;
	}
	if (reaped)
		queues_cut_locked();
	objects_settle_locked();
}

static void shares_clear(struct slot *slot)
{
	for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
		struct share *share = &slot->shares[gpu];

		atomic_store(&share->memory_bytes, 0);
		atomic_store(&share->managed_bytes, 0);
		atomic_store(&share->hidden_bytes, 0);
		atomic_store(&share->contexts, 0);
		atomic_store(&share->queued_until_ns, 0);
	}
}

int state_claim(void)
{
	int result = -EAGAIN;

	machine_lock();
	reap_locked();
	for (unsigned i = 0; i < SLOTS && !own; i++) {
		struct slot *slot = &machine->slots[i];

		if (slot_used(slot) || lock_try(file, F_WRLCK, LOCK_SLOT + (off_t)i))
			continue;
		shares_clear(slot);
		if (i >= slots_seen())
			atomic_store(&machine->slots_seen, i + 1);
		pids_record(config_get()->state_path, i);
		atomic_store(&slot->pid_namespace, pids_namespace());
		atomic_store(&slot->pid, (uint32_t)getpid());
		own = slot;
	}
	if (own)
		result = 0;
	machine_unlock();
	return result;
}

static uint64_t used_locked(unsigned gpu)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < slots_seen(); i++) {
		const struct slot *slot = &machine->slots[i];
		const struct share *share = &slot->shares[gpu];

		if (slot_used(slot))
			used += atomic_load(&share->memory_bytes) +
				atomic_load(&share->managed_bytes) +
				atomic_load(&share->hidden_bytes);
	}
	for (unsigned i = 0; i < objects_seen(); i++) {
		const struct object *object = &machine->objects[i];

		if (atomic_load(&object->id) && object->is.gpu == gpu)
			used += object->is.bytes;
	}
	return used;
}

int state_take(unsigned gpu, const struct state_holding *more)
{
	uint64_t total = machine->total_bytes[gpu];
	uint64_t bytes = more->memory_bytes + more->managed_bytes + more->hidden_bytes;
	int result = -ENOMEM;

	machine_lock();
	uint64_t used = used_locked(gpu);
	if (used > total || bytes > total - used) {
		reap_locked();
		used = used_locked(gpu);
	}
	if (used <= total && bytes <= total - used) {
		struct share *share = &own->shares[gpu];

		atomic_fetch_add(&share->memory_bytes, more->memory_bytes);
		atomic_fetch_add(&share->managed_bytes, more->managed_bytes);
		atomic_fetch_add(&share->hidden_bytes, more->hidden_bytes);
		atomic_fetch_add(&share->contexts, more->contexts);
		result = 0;
	}
	machine_unlock();
	return result;
}

uint64_t state_take_managed(unsigned gpu, uint64_t bytes)
{
	uint64_t total = machine->total_bytes[gpu];

	machine_lock();
	reap_locked();
	uint64_t used = used_locked(gpu), left = used < total ? total - used : 0;
	if (bytes > left)
		bytes = left;
	atomic_fetch_add(&own->shares[gpu].managed_bytes, bytes);
	machine_unlock();
	return bytes;
}

void state_give(unsigned gpu, const struct state_holding *less)
{
	machine_lock();
	struct share *share = &own->shares[gpu];
	atomic_fetch_sub(&share->memory_bytes, less->memory_bytes);
	atomic_fetch_sub(&share->managed_bytes, less->managed_bytes);
	atomic_fetch_sub(&share->hidden_bytes, less->hidden_bytes);
	atomic_fetch_sub(&share->contexts, less->contexts);
	machine_unlock();
}

uint64_t state_used_bytes(unsigned gpu)
{
	machine_lock();
	reap_locked();
	uint64_t used = used_locked(gpu);
	machine_unlock();
	return used;
}

/* What the owner of the slot pays for. */
static uint64_t paid_locked(unsigned gpu, unsigned slot)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < objects_seen(); i++) {
		const struct object *object = &machine->objects[i];

		if (atomic_load(&object->id) && object->is.gpu == gpu &&
		    atomic_load(&object->payer) == slot)
			bytes += object->is.bytes;
	}
	return bytes;
}

unsigned state_processes(unsigned gpu, struct state_process *ret_processes, unsigned max)
{
	unsigned count = 0;

	machine_lock();
	reap_locked();
	for (unsigned i = 0; i < slots_seen(); i++) {
		const struct slot *slot = &machine->slots[i];
		const struct share *share = &slot->shares[gpu];

		if (!slot_used(slot) || !atomic_load(&share->contexts))
			continue;
		unsigned pid = pids_of(config_get()->state_path, i, atomic_load(&slot->pid),
				       atomic_load(&slot->pid_namespace));
		if (!pid)
			continue;
		if (count < max) {
			ret_processes[count].pid = pid;
			ret_processes[count].memory_bytes =
				atomic_load(&share->memory_bytes) + paid_locked(gpu, i);
		}
		count++;
	}
	machine_unlock();
	return count;
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
	uint64_t seen = atomic_load(word);

	while (seen < value && !atomic_compare_exchange_weak(word, &seen, value))
		;
}

uint64_t state_queue(unsigned gpu, uint64_t not_before_ns, uint64_t duration_ns)
{
	_Atomic uint64_t *busy = &machine->busy_until_ns[gpu];
	uint64_t seen = atomic_load(busy), end;

	do {
		end = (seen > not_before_ns ? seen : not_before_ns) + duration_ns;
		if (!duration_ns)
			return end;
		raise_to(&own->shares[gpu].queued_until_ns, end);
	} while (!atomic_compare_exchange_weak(busy, &seen, end));
	return end;
}

static unsigned own_slot(void)
{
	return (unsigned)(own - machine->slots);
}

static struct object *object_find_locked(uint64_t id)
{
	struct object *object = &machine->objects[id % OBJECTS];

	return id && atomic_load(&object->id) == id ? object : NULL;
}

/* What it says is true before it is there. 0 if there is no room. */
static uint64_t object_make_locked(const struct state_object *like)
{
	uint64_t number = atomic_load(&machine->objects_made) + 1;
	unsigned i = 0;

	while (i < OBJECTS && atomic_load(&machine->objects[i].id))
		i++;
	if (i == OBJECTS)
		return 0;
	struct object *object = &machine->objects[i];
	for (unsigned word = 0; word < HOLDER_WORDS; word++)
		atomic_store(&object->holders[word], 0);
	object->is = *like;
	atomic_store(&object->payer, own_slot());
	holder_set(object, own_slot());
	if (i >= objects_seen())
		atomic_store(&machine->objects_seen, i + 1);
	atomic_store(&machine->objects_made, number);
	atomic_store(&object->id, number * OBJECTS + i);
	joins[i] = 1;
	return number * OBJECTS + i;
}

int state_share(const struct state_object *object, uint64_t *ret_id)
{
	machine_lock();
	objects_settle_locked();
	uint64_t id = object_make_locked(object);
	if (id)
		atomic_fetch_sub(&own->shares[object->gpu].memory_bytes, object->bytes);
	machine_unlock();
	if (!id)
		return -EAGAIN;
	*ret_id = id;
	return 0;
}

int state_join(uint64_t id, struct state_object *ret_object)
{
	machine_lock();
	reap_locked();
	struct object *object = object_find_locked(id);
	if (object) {
		joins[id % OBJECTS]++;
		holder_set(object, own_slot());
		object_settle_locked(object);
		*ret_object = object->is;
	}
	machine_unlock();
	return object ? 0 : -ENOENT;
}

void state_leave(uint64_t id)
{
	machine_lock();
	struct object *object = object_find_locked(id);
	if (object && !--joins[id % OBJECTS]) {
		holder_clear(object, own_slot());
		reap_locked(); /* or one who is dead might have to pay */
	}
	machine_unlock();
}

static bool held_elsewhere(const struct object *object)
{
	unsigned mine = own_slot();

	for (unsigned word = 0; word < HOLDER_WORDS; word++) {
		uint64_t others = atomic_load(&object->holders[word]);

		if (word == mine / 64)
			others &= ~((uint64_t)1 << mine % 64);
		if (others)
			return true;
	}
	return joins[object - machine->objects] > 1;
}

int state_resize(uint64_t id, uint64_t bytes)
{
	int result = -ENOENT;

	machine_lock();
	reap_locked();
	struct object *object = object_find_locked(id);
	if (object && bytes <= object->is.bytes) {
		result = bytes < object->is.bytes && held_elsewhere(object) ? -EBUSY : 0;
	} else if (object) {
		uint64_t total = machine->total_bytes[object->is.gpu];
		uint64_t others = used_locked(object->is.gpu) - object->is.bytes;

		result = others <= total && bytes <= total - others ? 0 : -ENOMEM;
	}
	if (!result)
		object->is.bytes = bytes;
	machine_unlock();
	return result;
}

/* Opened anew, for locks and an offset of its own. */
static int export_open(uint64_t id)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int result = lock_try(fd, F_RDLCK, LOCK_USERS);
	if (!result)
		result = lock_try(fd, F_RDLCK, LOCK_OBJECT + (off_t)(id % OBJECTS));
	if (!result && lseek(fd, (off_t)(EXPORT_MARK | id), SEEK_SET) < 0)
		result = -errno;
	if (!result)
		return fd;
	close(fd);
	return result;
}

int state_export(uint64_t id)
{
	machine_lock();
	int fd = object_find_locked(id) ? export_open(id) : -ENOENT;
	machine_unlock();
	return fd;
}

int state_imported(int fd, uint64_t *ret_id)
{
	struct stat theirs, ours;

	if (fstat(fd, &theirs) || fstat(file, &ours))
		return -errno;
	off_t offset = lseek(fd, 0, SEEK_CUR);
	if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino || offset < 0 ||
	    !((uint64_t)offset & EXPORT_MARK))
		return -EINVAL;
	*ret_id = (uint64_t)offset & ~EXPORT_MARK;
	return 0;
}
