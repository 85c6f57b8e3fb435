/*
 * How it works. A missing file is created exclusively. Each opener, and each process that takes a
 * seat, has the byte VGPU_TURNS_INIT_OFFSET locked for some microseconds. An opener that finds an
 * empty file or zeros makes the file: zeros first, so that it has its blocks, then the fields, and
 * the magic last. So nobody sees a file that is not whole.
 *
 * What always holds. A seat belongs to the process whose open file has the seat's byte of the
 * seat's slice locked. The process stores the seat's `owner` after it has the byte, and sets the
 * seat's bit in its slice last. To free a seat is one compare-and-swap of `owner`: so a process
 * that frees the seat of a dead owner cannot free that of the next owner.
 *
 * If the process is killed on any line, the kernel unlocks its bytes. The next opener makes a file
 * without the magic once more. A seat with an owner whose byte is not locked is taken by the next
 * process that finds no free one.
 *
 * What a hostile user can do. One that stores owners in all seats, or has all bytes or the init
 * byte locked, keeps others from joining: they get an error after 0.1 s at most, and have no turns.
 * One that truncates the file kills a process that touches the mapping before turn_file_watch has
 * seen it (SIGBUS); from then on there are zeros in its place. Only a file that no tenant can open
 * by a path, such as a sealed one that a daemon hands out, prevents that.
 */
#include "turn_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "sys.h"
#include "turn_internal.h"

#define FILE_SIZE        sizeof(struct vgpu_turns_file)
#define OPEN_FLAGS       (O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_APPEND)
#define INIT_PATIENCE_NS (100 * NS_PER_MS)
#define OWNER_BITS       7 /* of VGPU_TURNS_HOLDER */

/* -- what went wrong, in words ---------------------------------------------------------------- */

static const struct {
	int error;
	const char *cause, *cure;
} reasons[] = {
	{-ENOENT, "its directory is not there", "make it or mount it"},
	{-ENOTDIR, "part of the path is no directory", "make it a directory"},
	{-ENAMETOOLONG, "the path is too long", "use a shorter one"},
	{-EACCES, "permission denied", "let all slices read and write it (mode 0666)"},
	{-EPERM, "permission denied", "let all slices read and write it (mode 0666)"},
	{-EROFS, "the file system is read-only", "mount the directory read-write"},
	{-ELOOP, "it is a symbolic link", "remove it; a link there is not followed"},
	{-EISDIR, "it is a directory", "remove it"},
	{-ENOSPC, "the file system is full", "the file needs 324 KiB there"},
	{-EDQUOT, "the disk quota is exhausted", "the file needs 324 KiB there"},
	{-EMFILE, "this process has too many open files", "raise ulimit -n"},
	{-ENFILE, "the system has too many open files", "raise fs.file-max"},
	{-ENOMEM, "no memory to map it", "see ulimit -v"},
	{-ENOLCK, "its file system has no file locks left", "use a local file system"},
	{-EOPNOTSUPP, "its file system has no file locks", "use a local file system"},
	{-ETIMEDOUT, "a process that joins it does not finish", "is it stopped? End it"},
	{-ESTALE, "it was deleted meanwhile", "leave it there while programs use it"},
	{-EUCLEAN, "it was truncated or overwritten", "remove it"},
};

static int fail(struct fault *fault, int error, const char *path)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (reasons[i].error == error)
			return fault_set(fault, error, "cannot use the turns %.300s: %s; %s", path,
					 reasons[i].cause, reasons[i].cure);
	return fault_set(fault, error, "cannot use the turns %.300s: error %d", path, -error);
}

static int refuse(struct fault *fault, const char *path, const char *what)
{
	return fault_set(fault, -EINVAL, "%.300s is no file of turns: %s; remove it", path, what);
}

/* -- the file --------------------------------------------------------------------------------- */

/* Existing first: with fs.protected_regular, O_CREAT fails for another user's file in a sticky
 * directory. The mode is set once more, as the umask may have taken from it. */
static int open_or_create(const char *path)
{
	int fd = -ENOENT;

	for (int tries = 0; tries < 3; tries++) { /* it may come and go between the two */
		fd = sys_open(path, OPEN_FLAGS, 0);
		if (fd != -ENOENT)
			break;
		fd = sys_open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0666);
		if (fd >= 0)
			sys_fchmod(fd, 0666);
		if (fd != -EEXIST)
			break;
	}
	return fd < 0 ? fd : sys_raise_fd(fd);
}

static int check_kind(const char *path, const struct stat *st, struct fault *fault)
{
	if (!S_ISREG(st->st_mode))
		return refuse(fault, path, "it is not a regular file");
	if (st->st_nlink > 1)
		return refuse(fault, path, "it has another name besides");
	return 0;
}

static int lock_init_byte(const struct turn_file *file)
{
	uint64_t deadline_ns = clock_now_ns() + INIT_PATIENCE_NS;
	int error;

	while ((error = sys_lock_byte(file->fd, VGPU_TURNS_INIT_OFFSET)) == -EAGAIN) {
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sys_sleep_ns(NS_PER_MS);
	}
	return error;
}

/* 0, and whether it was never made, or not to its end; or what is wrong with it. */
static int look(const struct turn_file *file, const struct stat *st, bool *ret_unmade,
		struct fault *fault)
{
	struct vgpu_turns_header found;
	long len;

	memset(&found, 0, sizeof(found));
	len = sys_read(file->fd, &found, offsetof(struct vgpu_turns_header, spare));
	if (len < 0)
		return fail(fault, (int)len, file->path);
	*ret_unmade = (uint64_t)st->st_size <= FILE_SIZE && found.magic == 0;
	if (*ret_unmade)
		return 0;
	if ((uint64_t)st->st_size != FILE_SIZE || found.magic != VGPU_TURNS_MAGIC)
		return refuse(fault, file->path, "it holds something else");
	if (found.version != VGPU_TURNS_VERSION || found.size != FILE_SIZE)
		return refuse(fault, file->path, "another version made it");
	return 0;
}

/* A file that has its size keeps it: a process that has it mapped would be killed. */
static int write_zeros(const struct turn_file *file, const struct stat *st)
{
	static const char zeros[4096];
	int error = 0;

	_Static_assert(FILE_SIZE % sizeof(zeros) == 0, "whole pages");
	if ((uint64_t)st->st_size == FILE_SIZE)
		return 0;
	if (st->st_size > 0)
		error = sys_ftruncate(file->fd, 0);
	for (size_t done = 0; !error && done < FILE_SIZE; done += sizeof(zeros))
		error = sys_write_all(file->fd, zeros, sizeof(zeros));
	return error;
}

static void make(struct vgpu_turns_header *header)
{
	TURN_STORE(header->version, VGPU_TURNS_VERSION);
	TURN_STORE(header->size, (uint32_t)FILE_SIZE);
	TURN_STORE(header->made, (uint32_t)(clock_now_ns() >> 10) | 1);
	__atomic_store_n(&header->magic, VGPU_TURNS_MAGIC, __ATOMIC_RELEASE); /* others wait for
										 the init byte */
}

/* Under the init byte. */
static int settle(struct turn_file *file, struct fault *fault)
{
	bool unmade = false;
	struct stat st;
	void *addr;
	int error = sys_fstat(file->fd, &st);

	if (error)
		return fail(fault, error, file->path);
	error = look(file, &st, &unmade, fault);
	if (error)
		return error;
	if (unmade)
		error = write_zeros(file, &st);
	if (!error)
		error = sys_map_shared(file->fd, FILE_SIZE, true, &addr);
	if (error)
		return fail(fault, error, file->path);
	file->file = addr;
	if (unmade)
		make(&file->file->header);
	return 0;
}

static int open_checked(struct turn_file *file, struct fault *fault)
{
	struct stat st;
	int error;

	file->fd = open_or_create(file->path);
	if (file->fd < 0)
		return fail(fault, file->fd, file->path);
	error = sys_fstat(file->fd, &st);
	if (error)
		return fail(fault, error, file->path);
	file->device = st.st_dev;
	file->inode = st.st_ino;
	error = check_kind(file->path, &st, fault);
	if (error)
		return error;
	error = lock_init_byte(file);
	if (error)
		return fail(fault, error, file->path);
	error = settle(file, fault);
	sys_unlock_byte(file->fd, VGPU_TURNS_INIT_OFFSET);
	return error;
}

int turn_file_open(const char *path, struct turn_file *ret_file, struct fault *fault)
{
	size_t len = strlen(path);
	int error;

	memset(ret_file, 0, sizeof(*ret_file));
	ret_file->fd = -1;
	if (len >= sizeof(ret_file->path))
		return fail(fault, -ENAMETOOLONG, path);
	memcpy(ret_file->path, path, len + 1);
	error = open_checked(ret_file, fault);
	if (error) {
		if (ret_file->fd >= 0)
			sys_close(ret_file->fd);
		ret_file->fd = -1;
	}
	return error;
}

/* -- whether it is still there ---------------------------------------------------------------- */

static bool is_same(const struct turn_file *file, const struct stat *st)
{
	return st->st_dev == file->device && st->st_ino == file->inode;
}

/* The descriptor, if it still is of the file: programs close descriptors that are not theirs. */
static int own_fd(const struct turn_file *file, struct stat *ret_st)
{
	int fd = TURN_LOAD(file->fd);

	return sys_fstat(fd, ret_st) == 0 && is_same(file, ret_st) ? fd : -EBADF;
}

/* The same, after the file was opened once more if need be. The byte of this process's seat stays
 * locked meanwhile, as the mapping holds on to the open file. */
static int have_fd(struct turn_file *file, struct stat *ret_st)
{
	int was = TURN_LOAD(file->fd), fd = own_fd(file, ret_st);

	if (fd >= 0)
		return fd;
	fd = sys_open(file->path, OPEN_FLAGS, 0);
	if (fd < 0)
		return fd;
	fd = sys_raise_fd(fd);
	if (sys_fstat(fd, ret_st) != 0 || !is_same(file, ret_st)) {
		sys_close(fd);
		return -ESTALE;
	}
	/* The file that has the old number now is not this room's. */
	if (__atomic_compare_exchange_n(&file->fd, &was, fd, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		return fd;
	sys_close(fd); /* another thread was first */
	return own_fd(file, ret_st);
}

int turn_file_watch(struct turn_file *file)
{
	struct stat st;
	int fd = have_fd(file, &st);

	if (fd == -ESTALE)
		return fd;
	if (fd >= 0 && (uint64_t)st.st_size != FILE_SIZE) {
		sys_map_zeros_over(file->file, FILE_SIZE);
		return -EUCLEAN;
	}
	if (TURN_LOAD(file->file->header.magic) != VGPU_TURNS_MAGIC)
		return -EUCLEAN;
	if (fd >= 0 && st.st_nlink == 0)
		return -ESTALE;
	if (sys_stat(file->path, &st) == 0 && !is_same(file, &st))
		return -ESTALE;
	return 0;
}

/* -- slices and seats ------------------------------------------------------------------------- */

static uint64_t byte_of(unsigned slice, unsigned seat)
{
	return VGPU_TURNS_LOCK_OFFSET + (uint64_t)slice * VGPU_TURNS_SEATS + seat;
}

/* Whether a byte of them is locked by a process other than this one. */
static bool are_locked(const struct turn_file *file, uint64_t offset, uint64_t count)
{
	struct stat st;
	int fd = own_fd(file, &st);

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

/* Under the init byte. The entry with the key; else one that is free; else one whose processes all
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

/* Under the init byte. The first look is where the pid says, as many processes join at once. */
static int take_seat(struct turn_file *file, unsigned slice, bool or_dead)
{
	unsigned first = (unsigned)sys_getpid() % VGPU_TURNS_SEATS;

	for (unsigned i = 0; i < VGPU_TURNS_SEATS; i++) {
		unsigned seat = (first + i) % VGPU_TURNS_SEATS;
		int error;

		if (!is_free(file, seat, or_dead))
			continue;
		error = sys_lock_byte(file->fd, byte_of(slice, seat));
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

/* Under the init byte, with the byte of the seat. */
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
				 file->path, VGPU_TURNS_SLICES);
	first = !turn_file_slice_lives(file, (unsigned)slice);
	seat = take_seat(file, (unsigned)slice, false);
	if (seat == -ENOSPC)
		seat = take_seat(file, (unsigned)slice, true);
	if (seat == -ENOSPC)
		return fault_set(fault, seat,
				 "the turns %.300s are full: %d processes use the GPU; end some",
				 file->path, VGPU_TURNS_SEATS);
	if (seat < 0)
		return fail(fault, seat, file->path);
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
		error = lock_init_byte(file);
	if (error)
		return fail(fault, error, file->path);
	error = turn_file_watch(file);
	error = error ? fail(fault, error, file->path) : join_locked(file, key, ret_first, fault);
	sys_unlock_byte(file->fd, VGPU_TURNS_INIT_OFFSET);
	return error;
}

void turn_file_leave(struct turn_file *file)
{
	struct stat st;
	int fd = own_fd(file, &st);

	if (!file->owner)
		return;
	turn_file_clear_seat(file, file->slice, file->seat);
	if (fd >= 0)
		sys_unlock_byte(fd, byte_of(file->slice, file->seat));
	file->owner = 0;
}

void turn_file_forget(struct turn_file *file)
{
	struct stat st;
	int fd = file->file ? own_fd(file, &st) : -EBADF;

	if (file->file)
		sys_unmap(file->file, FILE_SIZE);
	if (fd >= 0)
		sys_close(fd);
	memset(file, 0, sizeof(*file));
	file->fd = -1;
}
