/*
 * Memory that several processes may hold is an object of the shared state file (machine_file.h).
 *
 * An object is in no slot. One of its holders, the payer, has it in its figure: at first the
 * process that shared it, and after that process has given it up or died, another holder. Without
 * holders the object exists as long as a process has a descriptor of it, and is in no figure. Such
 * a descriptor is the state file, opened once more. Its lock says that it is open in some process,
 * and its offset says which object it is of. Both stay with the open file, whichever process it is
 * passed to.
 */
#include "machine_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT_MARK ((uint64_t)1 << 42) /* in a descriptor's offset, with the object's id */

static uint32_t joins[OBJECTS]; /* how often this process holds each; mutex */

void machine_objects_forget(void)
{
	memset(joins, 0, sizeof joins);
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

/* Gives the object another payer if it has none, and frees it if it has neither holder nor
 * descriptor. */
static void object_settle_locked(struct object *object)
{
	unsigned payer = atomic_load(&object->payer), i = (unsigned)(object - machine->objects);

	if (payer != NOBODY && holds(object, payer))
		return;
	for (payer = 0; payer < machine_slots_seen(); payer++) {
		if (holds(object, payer)) {
			atomic_store(&object->payer, payer);
			return;
		}
	}
	atomic_store(&object->payer, NOBODY);
	if (!machine_byte_held_by_other(machine_fd, LOCK_OBJECT + (off_t)i))
		atomic_store(&object->id, 0);
}

void machine_objects_settle_locked(void)
{
	for (unsigned i = 0; i < objects_seen(); i++) {
		if (atomic_load(&machine->objects[i].id))
			object_settle_locked(&machine->objects[i]);
	}
}

void machine_objects_leave_locked(unsigned slot)
{
	for (unsigned i = 0; i < objects_seen(); i++)
		holder_clear(&machine->objects[i], slot);
}

uint64_t machine_objects_used_locked(unsigned gpu)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < objects_seen(); i++) {
		const struct object *object = &machine->objects[i];

		if (atomic_load(&object->id) && object->is.gpu == gpu)
			used += object->is.bytes;
	}
	return used;
}

uint64_t machine_objects_paid_locked(unsigned gpu, unsigned slot)
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

static unsigned own_slot(void)
{
	return (unsigned)(machine_own - machine->slots);
}

static struct object *object_find_locked(uint64_t id)
{
	struct object *object = &machine->objects[id % OBJECTS];

	return id && atomic_load(&object->id) == id ? object : NULL;
}

/* Makes an object, and stores its id last, so that readers see a whole object. Returns the id; 0:
 * there is no place. */
static uint64_t object_make_locked(const struct machine_object *like)
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

int machine_share(const struct machine_object *object, uint64_t *ret_id)
{
	machine_lock();
	machine_objects_settle_locked();
	uint64_t id = object_make_locked(object);
	if (id)
		atomic_fetch_sub(&machine_own->shares[object->gpu].memory_bytes, object->bytes);
	machine_unlock();
	if (!id)
		return -EAGAIN;
	*ret_id = id;
	return 0;
}

int machine_join(uint64_t id, struct machine_object *ret_object)
{
	machine_lock();
	machine_reap_locked();
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

void machine_leave(uint64_t id)
{
	machine_lock();
	struct object *object = object_find_locked(id);
	if (object && !--joins[id % OBJECTS]) {
		holder_clear(object, own_slot());
		machine_reap_locked(); /* otherwise a dead process might become the payer */
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

int machine_resize(uint64_t id, uint64_t bytes)
{
	int result = -ENOENT;

	machine_lock();
	machine_reap_locked();
	struct object *object = object_find_locked(id);
	if (object && bytes <= object->is.bytes) {
		result = bytes < object->is.bytes && held_elsewhere(object) ? -EBUSY : 0;
	} else if (object) {
		uint64_t total = machine->total_bytes[object->is.gpu];
		uint64_t others = machine_used_locked(object->is.gpu) - object->is.bytes;

		result = others <= total && bytes <= total - others ? 0 : -ENOMEM;
	}
	if (!result) {
		object->is.bytes = bytes;
		machine_note_peak_locked(object->is.gpu);
	}
	machine_unlock();
	return result;
}

/* Opens the state file again, for a lock and an offset of its own. */
static int export_open(uint64_t id)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", machine_fd);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int result = machine_byte_lock(fd, F_RDLCK, LOCK_USERS);
	if (!result)
		result = machine_byte_lock(fd, F_RDLCK, LOCK_OBJECT + (off_t)(id % OBJECTS));
	if (!result && lseek(fd, (off_t)(EXPORT_MARK | id), SEEK_SET) < 0)
		result = -errno;
	if (!result)
		return fd;
	close(fd);
	return result;
}

int machine_export(uint64_t id)
{
	machine_lock();
	int fd = object_find_locked(id) ? export_open(id) : -ENOENT;
	machine_unlock();
	return fd;
}

int machine_imported(int fd, uint64_t *ret_id)
{
	struct stat theirs, ours;

	if (fstat(fd, &theirs) || fstat(machine_fd, &ours))
		return -errno;
	off_t offset = lseek(fd, 0, SEEK_CUR);
	if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino || offset < 0 ||
	    !((uint64_t)offset & EXPORT_MARK))
		return -EINVAL;
	*ret_id = (uint64_t)offset & ~EXPORT_MARK;
	return 0;
}
