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
 *   LOCK_MUTEX     exclusive, while slots are claimed, summed up, changed or reaped. In a process
 * the pthread mutex goes first, because its threads share the description LOCK_USERS     shared, as
 * long as a process is attached LOCK_SLOT + i  exclusive, as long as the owner of slot i lives
 *
 * Who attaches and can have LOCK_USERS exclusively is alone, and initialises the file: whatever an
 * earlier crowd, another version, or a crash in the middle of this left there is gone. A process
 * that dies while others live leaves its slot behind; whoever next needs memory, claims a slot or
 * asks NVML finds its byte unlocked and frees it (reap). Every change is a store of one word, so a
 * process killed between two of them leaves at worst a slot that is about to be reaped anyway.
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

enum {
	SLOTS = 1024,
	LOCK_MUTEX = 0,
	LOCK_USERS = 1,
	LOCK_SLOT = 16,
};

#define MAGIC 0x31656e6968636d76u /* changes with the layout */

struct share {
	_Atomic uint64_t memory_bytes, managed_bytes, hidden_bytes, contexts;
	_Atomic uint64_t queued_until_ns; /* end of the last work that the process queued */
};

struct slot {
	_Atomic uint32_t pid; /* 0: free. Set last when a slot is claimed, cleared first */
	struct share shares[SIM_GPUS_MAX];
};

struct machine {
	_Atomic uint64_t magic;             /* set last */
	uint64_t total_bytes[SIM_GPUS_MAX]; /* 0 for those that do not exist */
	_Atomic uint64_t busy_until_ns[SIM_GPUS_MAX];
	_Atomic uint64_t slots_seen; /* slots from here on have never been used */
	struct slot slots[SLOTS];
};

/* Written by attach, detach, claim and the fork handler, under mutex; read by whoever is attached.
 */
static struct machine *machine;
static int file = -1;
static struct slot *own;

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
	int fd = open(config->state_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
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
	machine = NULL;
	file = -1;
	own = NULL;
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

static void reap_locked(void)
{
	bool reaped = false;

	for (unsigned i = 0; i < slots_seen(); i++) {
		struct slot *slot = &machine->slots[i];

		if (slot == own || !slot_used(slot) ||
		    lock_held_by_other(file, LOCK_SLOT + (off_t)i))
			continue;
		atomic_store(&slot->pid, 0);
		reaped = true;
	}
	if (reaped)
		queues_cut_locked();
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
		if (count < max) {
			ret_processes[count].pid = atomic_load(&slot->pid);
			ret_processes[count].memory_bytes = atomic_load(&share->memory_bytes);
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
