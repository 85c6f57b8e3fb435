/*
 * What always holds. A seat belongs to the process whose open file has the seat's byte of the
 * seat's slice locked. The process stores the seat's `owner` after it has the byte, and sets the
 * seat's bit in its slice last, both under the file's lock. One compare-and-swap of `owner` frees a
 * seat. So a process that frees the seat of a dead owner cannot free that of the next owner.
 *
 * If the process is killed on any line, the kernel unlocks its bytes. A seat with an owner whose
 * byte is not locked is taken by the next process that finds no free one.
 *
 * What a hostile user can do. A user that stores owners in all seats, or locks all bytes or the
 * init byte, keeps others from joining. They get an error after 0.1 s at most, and have no turns. A
 * user that truncates the file kills a process that touches the mapping before turn_file_watch has
 * seen it (SIGBUS). From then on, zeros are mapped there. A file that vgpud hands over is sealed,
 * and cannot be truncated.
 */
#include "turn_file.h"

#include <errno.h>
#include <string.h>

#include "sys.h"
#include "turn_internal.h"

#define OWNER_BITS 7 /* of VGPU_TURNS_HOLDER */

static const struct shared_file_reason reasons[] = {
	{-ENOENT, "its directory is not there", "make it or mount it"},
	{-ENOTDIR, "part of the path is no directory", "make it a directory"},
	{-ENAMETOOLONG, "the path is too long", "use a shorter one"},
	{-EACCES, "permission denied", "let all slices read and write it (mode 0666)"},
	{-EPERM, "permission denied", "let all slices read and write it (mode 0666)"},
	{-ENOSPC, "the file system is full", "the file needs 324 KiB there"},
	{-EDQUOT, "the disk quota is exhausted", "the file needs 324 KiB there"},
	{-ETIMEDOUT, "a process that joins it does not finish", "is it stopped? End it"},
	{0, NULL, NULL},
};

static const struct shared_file_kind kind = {
	.magic = VGPU_TURNS_MAGIC,
	.version = VGPU_TURNS_VERSION,
	.size_bytes = sizeof(struct vgpu_turns_file),
	.mode = 0666,
	.cannot = "cannot use the turns",
	.not_one = "is no file of turns",
	.reasons = reasons,
};

_Static_assert(offsetof(struct vgpu_turns_header, made) ==
		       offsetof(struct shared_file_header, made),
	       "layout");
_Static_assert(VGPU_TURNS_INIT_OFFSET == 0, "as shared_file.c has it");

int turn_file_open(const char *path, struct turn_file *ret_file, struct fault *fault)
{
	int error;

	memset(ret_file, 0, sizeof(*ret_file));
	error = shared_file_open(path, &kind, &ret_file->shared, fault);
	ret_file->file = ret_file->shared.at;
	return error;
}

int turn_file_take(int fd, struct turn_file *ret_file, struct fault *fault)
{
	int error;

	memset(ret_file, 0, sizeof(*ret_file));
	error = shared_file_take(fd, "that vgpud handed over", &kind, &ret_file->shared, fault);
	ret_file->file = ret_file->shared.at;
	return error;
}

int turn_file_watch(struct turn_file *file)
{
	return shared_file_watch(&file->shared);
}

/* -- slices and seats ------------------------------------------------------------------------- */

static uint64_t byte_of(unsigned slice, unsigned seat)
{
	return VGPU_TURNS_LOCK_OFFSET + (uint64_t)slice * VGPU_TURNS_SEATS + seat;
}

/* Whether a byte of them is locked by a process other than this one. */
static bool are_locked(const struct turn_file *file, uint64_t offset, uint64_t count)
{
	int fd = shared_file_fd(&file->shared);

	return fd < 0 || sys_bytes_are_locked(fd, offset, count) != 0;
}

bool turn_file_slice_lives(const struct turn_file *file, unsigned slice)
{
	if (slice >= VGPU_TURNS_SLICES)
		return false;
	if (file->owner && slice == file->slice)
		return true;
	return are_locked(file, byte_of(slice, 0), VGPU_TURNS_SEATS);
}

bool turn_file_seat_lives(const struct turn_file *file, unsigned slice, unsigned seat)
{
	if (slice >= VGPU_TURNS_SLICES || seat >= VGPU_TURNS_SEATS)
		return false;
	if (file->owner && slice == file->slice && seat == file->seat)
		return true;
	return are_locked(file, byte_of(slice, seat), 1);
}

/* Under the lock. The entry with the key; else one that is free; else one whose processes all
 * are dead. */
static int find_slice(const struct turn_file *file, uint64_t key)
{
	const struct vgpu_turns_slice *slice = file->file->slice;
	int found = -ENOSPC;

	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++)
		if (TURN_LOAD(slice[i].key) == key)
			return (int)i;
	for (unsigned i = 0; i < VGPU_TURNS_SLICES && found < 0; i++)
		if (TURN_LOAD(slice[i].key) == 0 && !turn_file_slice_lives(file, i))
			found = (int)i;
	for (unsigned i = 0; i < VGPU_TURNS_SLICES && found < 0; i++)
		if (!turn_file_slice_lives(file, i))
			found = (int)i;
	return found;
}

/* A number that the seat did not have before. */
static uint32_t new_owner(uint32_t old, unsigned slice)
{
	return ((old >> OWNER_BITS) + 1) << OWNER_BITS | (slice + 1);
}

static bool is_free(const struct turn_file *file, unsigned seat, bool or_dead)
{
	uint32_t owner = TURN_LOAD(file->file->seat[seat].owner);
	unsigned of = owner & VGPU_TURNS_HOLDER;

	return of == 0 || of > VGPU_TURNS_SLICES ||
	       (or_dead && !turn_file_seat_lives(file, of - 1, seat));
}

/* Under the lock. The first look is where the pid says, as many processes join at once. */
static int take_seat(struct turn_file *file, unsigned slice, bool or_dead)
{
	unsigned first = (unsigned)sys_getpid() % VGPU_TURNS_SEATS;

	for (unsigned i = 0; i < VGPU_TURNS_SEATS; i++) {
		unsigned seat = (first + i) % VGPU_TURNS_SEATS;
		int error;

		if (!is_free(file, seat, or_dead))
			continue;
		error = sys_lock_byte(file->shared.fd, byte_of(slice, seat));
		if (error == 0)
			return (int)seat;
		if (error != -EAGAIN)
			return error;
	}
	return -ENOSPC;
}

static void set_bit(struct vgpu_turns_slice *slice, unsigned seat)
{
	__atomic_fetch_or(&slice->seats[seat / 64], (uint64_t)1 << seat % 64, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&slice->words, (uint64_t)1 << seat / 64, __ATOMIC_SEQ_CST);
}

void turn_file_clear_seat(struct turn_file *file, unsigned slice, unsigned seat)
{
	struct vgpu_turns_seat *it = &file->file->seat[seat];
	uint32_t owner = TURN_LOAD(it->owner);

	__atomic_fetch_and(&file->file->slice[slice].seats[seat / 64], ~((uint64_t)1 << seat % 64),
			   __ATOMIC_SEQ_CST);
	if ((owner & VGPU_TURNS_HOLDER) == slice + 1)
		__atomic_compare_exchange_n(&it->owner, &owner, owner & ~VGPU_TURNS_HOLDER, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Under the lock, with the byte of the seat. */
static void fill_seat(struct turn_file *file, unsigned slice, unsigned seat)
{
	struct vgpu_turns_seat *it = &file->file->seat[seat];

	file->owner = new_owner(TURN_LOAD(it->owner), slice);
	file->slice = slice;
	file->seat = seat;
	TURN_STORE(it->active, 0);
	__atomic_store_n(&it->owner, file->owner, __ATOMIC_SEQ_CST);
	set_bit(&file->file->slice[slice], seat);
}

static int join_locked(struct turn_file *file, uint64_t key, bool *ret_first, struct fault *fault)
{
	int slice = find_slice(file, key), seat;
	bool first;

	if (slice < 0)
		return fault_set(fault, slice,
				 "the turns %.300s are full: %d slices use the GPU; end some",
				 file->shared.path, VGPU_TURNS_SLICES);
	first = !turn_file_slice_lives(file, (unsigned)slice);
	seat = take_seat(file, (unsigned)slice, false);
	if (seat == -ENOSPC)
		seat = take_seat(file, (unsigned)slice, true);
	if (seat == -ENOSPC)
		return fault_set(fault, seat,
				 "the turns %.300s are full: %d processes use the GPU; end some",
				 file->shared.path, VGPU_TURNS_SEATS);
	if (seat < 0)
		return shared_file_fail(&file->shared, seat, fault);
	if (first) { /* the seats of the dead mean nothing */
		memset(file->file->slice[slice].seats, 0, sizeof(file->file->slice[slice].seats));
		TURN_STORE(file->file->slice[slice].words, 0);
	}
	fill_seat(file, (unsigned)slice, (unsigned)seat);
	TURN_STORE(file->file->slice[slice].key, key);
	*ret_first = first;
	return 0;
}

int turn_file_join(struct turn_file *file, uint64_t key, bool *ret_first, struct fault *fault)
{
	int error = turn_file_watch(file);

	if (!error)
		error = shared_file_lock(&file->shared);
	if (error)
		return shared_file_fail(&file->shared, error, fault);
	error = turn_file_watch(file);
	error = error ? shared_file_fail(&file->shared, error, fault)
		      : join_locked(file, key, ret_first, fault);
	shared_file_unlock(&file->shared);
	return error;
}

void turn_file_leave(struct turn_file *file)
{
	int fd = shared_file_fd(&file->shared);

	if (!file->owner)
		return;
	turn_file_clear_seat(file, file->slice, file->seat);
	if (fd >= 0)
		sys_unlock_byte(fd, byte_of(file->slice, file->seat));
	file->owner = 0;
}

void turn_file_forget(struct turn_file *file)
{
	shared_file_forget(&file->shared);
	file->file = NULL;
	file->owner = 0;
}

/* -- validity --------------------------------------------------------------------------------- */

static bool header_is_valid(const struct vgpu_turns_header *header)
{
	return header->magic == VGPU_TURNS_MAGIC && header->version == VGPU_TURNS_VERSION &&
	       header->size == sizeof(struct vgpu_turns_file) && TURN_LOAD(header->made) != 0 &&
	       (TURN_SEE(header->turn) & VGPU_TURNS_HOLDER) <= VGPU_TURNS_SLICES;
}

/* A key that two entries have is found at the second. */
static bool slice_is_valid(const struct turn_file *file, unsigned slice)
{
	uint64_t key = TURN_LOAD(file->file->slice[slice].key);

	for (unsigned i = 0; key && i < slice; i++)
		if (TURN_LOAD(file->file->slice[i].key) == key && turn_file_slice_lives(file, i) &&
		    turn_file_slice_lives(file, slice))
			return false;
	return true;
}

static bool seat_is_valid(const struct turn_file *file, unsigned seat)
{
	uint32_t owner = TURN_LOAD(file->file->seat[seat].owner);
	unsigned of = owner & VGPU_TURNS_HOLDER;
	const struct vgpu_turns_slice *slice;

	if (file->owner && seat == file->seat && owner != file->owner)
		return false;
	if (of == 0 || of > VGPU_TURNS_SLICES)
		return of == 0;
	if (!turn_file_seat_lives(file, of - 1, seat))
		return true; /* the entries of a dead process mean nothing */
	slice = &file->file->slice[of - 1];
	return TURN_LOAD(slice->key) != 0 && (TURN_LOAD(slice->words) >> seat / 64 & 1) &&
	       (TURN_LOAD(slice->seats[seat / 64]) >> seat % 64 & 1);
}

bool turn_file_is_valid(const struct turn_file *file)
{
	bool is_valid = file->file && header_is_valid(&file->file->header);

	for (unsigned i = 0; is_valid && i < VGPU_TURNS_SLICES; i++)
		is_valid = slice_is_valid(file, i);
	for (unsigned i = 0; is_valid && i < VGPU_TURNS_SEATS; i++)
		is_valid = seat_is_valid(file, i);
	return is_valid;
}
