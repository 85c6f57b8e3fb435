/*
 * How it works. A missing file is created exclusively, mode 0600. Then each opener, and each
 * process that takes an entry, has the byte VGPU_INIT_LOCK_OFFSET locked for some microseconds. An
 * opener that finds an empty file or zeros makes the file: zeros first, so that it has its blocks,
 * then the fields, and the magic last. So nobody sees a file that is not whole.
 *
 * What always holds. An entry belongs to the process whose open file has the entry's byte locked.
 * The process stores the entry's `owner` after it has the byte, and a number that the entry did not
 * have before: so another process that is about to free the entry of a dead owner, by an exchange
 * of that word, fails.
 *
 * A file that nobody is in may be removed, under the same byte. A process that had opened it by
 * then sees that when it takes an entry, and opens the file at the path once more.
 *
 * If the process is killed on any line, the kernel unlocks its bytes. The next opener makes a file
 * without the magic once more.
 *
 * The mapping of a file that is truncated is replaced by zeros when that is seen, as of a region
 * (watch.c).
 */
#include "gang_file.h"

#include <errno.h>
#include <string.h>

#include "region_internal.h"
#include "sys.h"

#define FILE_SIZE        sizeof(struct vgpu_gang_file)
#define OWNER_MASK       ((1u << VGPU_GANG_OWNER_SLOTS) - 1)
#define INIT_PATIENCE_NS (100 * NS_PER_MS)
#define OPEN_FLAGS       (O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_APPEND)
#define WRITABLE_BY_MANY 022
#define MADE_LAST        offsetof(struct vgpu_gang_file, spare_word) /* zeros until it is made */

/* -- what went wrong, in words ---------------------------------------------------------------- */

static const struct {
	int error;
	const char *cause, *cure;
} reasons[] = {
	{-ENOENT, "its directory is not there", "make or mount it, or set VGPU_GANGS to another"},
	{-ENOTDIR, "part of the path is no directory", "set VGPU_GANGS to a directory"},
	{-ENAMETOOLONG, "the path is too long", "set VGPU_GANGS to a shorter one"},
	{-EACCES, "permission denied", "all programs of a gang run as one user"},
	{-EPERM, "permission denied", "all programs of a gang run as one user"},
	{-EROFS, "the file system is read-only", "mount the directory read-write"},
	{-ELOOP, "it is a symbolic link", "remove it; a link there is not followed"},
	{-EISDIR, "it is a directory", "remove it"},
	{-ENOSPC, "the file system is full", "a gang needs 4 KiB there"},
	{-EDQUOT, "the disk quota is exhausted", "a gang needs 4 KiB there"},
	{-EMFILE, "this process has too many open files", "raise ulimit -n"},
	{-ENFILE, "the system has too many open files", "raise fs.file-max"},
	{-ENOMEM, "no memory to map it", "see ulimit -v"},
	{-ENOLCK, "its file system has no file locks left", "use a local file system"},
	{-EOPNOTSUPP, "its file system has no file locks", "use a local file system"},
	{-ETIMEDOUT, "a process that makes it does not finish",
	 "is it stopped? Continue or end it"},
	{-ESTALE, "it was deleted meanwhile", "leave it there while programs use it"},
};

static int fail(struct fault *fault, int error, const char *path)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (reasons[i].error == error)
			return fault_set(fault, error, "cannot join the gang %.300s: %s; %s", path,
					 reasons[i].cause, reasons[i].cure);
	return fault_set(fault, error, "cannot join the gang %.300s: error %d", path, -error);
}

static int refuse(struct fault *fault, const char *path, const char *what)
{
	return fault_set(fault, -EINVAL, "%.300s is no gang of vgpu: %s; remove it", path, what);
}

/* -- the file --------------------------------------------------------------------------------- */

/* Existing first: with fs.protected_regular, O_CREAT fails for another user's file in a sticky
 * directory with an error that says less. */
static int open_or_create(const char *path)
{
	int fd = -ENOENT;

	for (int tries = 0; tries < 3; tries++) { /* it may come and go between the two */
		fd = sys_open(path, OPEN_FLAGS, 0);
		if (fd != -ENOENT)
			break;
		fd = sys_open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
		if (fd != -EEXIST)
			break;
	}
	return fd < 0 ? fd : sys_raise_fd(fd);
}

static int check_owner(const char *path, const struct stat *st, struct fault *fault)
{
	unsigned user = sys_geteuid();

	if (!S_ISREG(st->st_mode))
		return refuse(fault, path, "it is not a regular file");
	if (st->st_uid != user && st->st_uid != 0)
		return fault_set(fault, -EPERM,
				 "the gang %.300s is user %u's, and this program runs as user %u: "
				 "remove it, or set VGPU_GANGS to a directory of this user's",
				 path, (unsigned)st->st_uid, user);
	if (st->st_mode & WRITABLE_BY_MANY)
		return fault_set(fault, -EPERM,
				 "others may write the gang %.300s: chmod it to 0600", path);
	if (st->st_nlink > 1)
		return refuse(fault, path, "it has another name besides");
	return 0;
}

static int lock_init_byte(const struct gang_file *file)
{
	uint64_t deadline_ns = clock_now_ns() + INIT_PATIENCE_NS;
	int error;

	while ((error = sys_lock_byte(file->fd, VGPU_INIT_LOCK_OFFSET)) == -EAGAIN) {
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sys_sleep_ns(NS_PER_MS);
	}
	return error;
}

static bool all_zero(const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

/* 0, and whether it was never made, or not to its end; or what is wrong with it. */
static int look(const struct gang_file *file, bool *ret_unmade, struct fault *fault)
{
	unsigned char bytes[FILE_SIZE + 1];
	const struct vgpu_gang_file *found = (const void *)bytes;
	long len;

	memset(bytes, 0, sizeof(bytes));
	len = sys_read(file->fd, bytes, sizeof(bytes));
	if (len < 0)
		return fail(fault, (int)len, file->path);
	*ret_unmade = (size_t)len <= FILE_SIZE && all_zero(bytes, sizeof(found->magic)) &&
		      all_zero(bytes + MADE_LAST, sizeof(bytes) - MADE_LAST);
	if (*ret_unmade)
		return 0;
	if ((size_t)len != FILE_SIZE ||
	    memcmp(&found->magic, "VPGANG01", sizeof(found->magic)) != 0)
		return refuse(fault, file->path, "it holds something else");
	if (found->version != VGPU_GANG_VERSION || found->size != FILE_SIZE)
		return refuse(fault, file->path, "another version made it");
	return 0;
}

/* One that has its size keeps it: whoever has it mapped would be killed. */
static int write_zeros(const struct gang_file *file)
{
	static const char zeros[FILE_SIZE];
	struct stat st;
	int error = sys_fstat(file->fd, &st);

	if (error || st.st_size == (off_t)FILE_SIZE)
		return error;
	if (st.st_size > 0)
		error = sys_ftruncate(file->fd, 0);
	return error ? error : sys_write_all(file->fd, zeros, sizeof(zeros));
}

static void make(struct vgpu_gang_file *file)
{
	REGION_STORE(file->version, VGPU_GANG_VERSION);
	REGION_STORE(file->size, (uint32_t)FILE_SIZE);
	REGION_STORE(file->made, (uint32_t)(clock_now_ns() >> 10) | 1);
	REGION_PUBLISH(file->magic, VGPU_GANG_MAGIC); /* other openers wait for the init byte */
}

/* Under the init byte. */
static int settle(struct gang_file *file, struct fault *fault)
{
	bool unmade = false;
	void *addr;
	int error = look(file, &unmade, fault);

	if (error)
		return error;
	if (unmade)
		error = write_zeros(file);
	if (!error)
		error = sys_map_shared(file->fd, FILE_SIZE, true, &addr);
	if (error)
		return fail(fault, error, file->path);
	file->file = addr;
	if (unmade)
		make(file->file);
	return 0;
}

static int open_checked(struct gang_file *file, struct fault *fault)
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
	error = check_owner(file->path, &st, fault);
	if (error)
		return error;
	error = lock_init_byte(file);
	if (error)
		return fail(fault, error, file->path);
	error = settle(file, fault);
	sys_unlock_byte(file->fd, VGPU_INIT_LOCK_OFFSET);
	return error;
}

int gang_file_open(const char *path, struct gang_file *ret_file, struct fault *fault)
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

static bool is_same(const struct gang_file *file, const struct stat *st)
{
	return st->st_dev == file->device && st->st_ino == file->inode;
}

/* The descriptor, if it still is of the file: programs close descriptors that are not theirs. */
static int own_fd(const struct gang_file *file, struct stat *ret_st)
{
	int fd = REGION_LOAD(file->fd);

	return sys_fstat(fd, ret_st) == 0 && is_same(file, ret_st) ? fd : -EBADF;
}

/* The same, after the file was opened once more if need be. The bytes of this process's entries
 * stay locked meanwhile, as the mapping holds on to the open file. */
static int have_fd(struct gang_file *file, struct stat *ret_st)
{
	int was = REGION_LOAD(file->fd), fd = own_fd(file, ret_st);

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

int gang_file_watch(struct gang_file *file)
{
	struct stat st;
	int fd = have_fd(file, &st);

	if (fd == -ESTALE)
		return fd;
	if (fd >= 0 && (uint64_t)st.st_size != FILE_SIZE) {
		sys_map_zeros_over(file->file, FILE_SIZE);
		return -EUCLEAN;
	}
	if (REGION_SEE(file->file->magic) != VGPU_GANG_MAGIC)
		return -EUCLEAN;
	if (fd >= 0 && st.st_nlink == 0)
		return -ESTALE;
	if (sys_stat(file->path, &st) == 0 && !is_same(file, &st))
		return -ESTALE;
	return 0;
}

uint64_t gang_file_number(const struct gang_file *file)
{
	uint64_t number = file->inode ^ (uint64_t)REGION_LOAD(file->file->made) << 32;

	return number ? number : 1;
}

/* -- entries ---------------------------------------------------------------------------------- */

static uint32_t new_owner(const struct gang_file *file, unsigned entry)
{
	uint32_t old = REGION_LOAD(file->file->gang.member[entry].owner);
	uint32_t number = (uint32_t)(clock_now_ns() >> 10) << VGPU_GANG_OWNER_SLOTS;

	if ((old & ~OWNER_MASK) == number)
		number += 1u << VGPU_GANG_OWNER_SLOTS;
	return number | (entry + 1);
}

/* Under the init byte. */
static int claim_locked(struct gang_file *file, uint32_t *ret_owner)
{
	int error = -ENOSPC;

	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++) {
		if (file->owner[i])
			continue;
		error = sys_lock_byte(file->fd, VGPU_GANG_LOCK_OFFSET + i);
		if (error == -EAGAIN)
			continue;
		if (error)
			return error;
		*ret_owner = new_owner(file, i);
		REGION_STORE(file->owner[i], *ret_owner);
		return (int)i;
	}
	return -ENOSPC;
}

int gang_file_claim(struct gang_file *file, uint32_t *ret_owner, struct fault *fault)
{
	int entry = gang_file_watch(file);

	if (!entry)
		entry = lock_init_byte(file);
	if (entry)
		return fail(fault, entry, file->path);
	entry = gang_file_watch(file);
	if (!entry)
		entry = claim_locked(file, ret_owner);
	sys_unlock_byte(file->fd, VGPU_INIT_LOCK_OFFSET);
	if (entry == -ENOSPC)
		return fault_set(fault, entry,
				 "the gang %.300s is full: it has %d members at most, one for each "
				 "process and GPU; give the other slices another gang",
				 file->path, VGPU_GANG_MEMBERS_MAX);
	return entry < 0 ? fail(fault, entry, file->path) : entry;
}

void gang_file_release(struct gang_file *file, unsigned entry)
{
	struct stat st;
	int fd = own_fd(file, &st);

	if (fd >= 0)
		sys_unlock_byte(fd, VGPU_GANG_LOCK_OFFSET + entry);
	REGION_STORE(file->owner[entry], 0);
}

bool gang_file_lives(const struct gang_file *file, uint32_t owner)
{
	unsigned entry = (owner & OWNER_MASK) - 1;
	struct stat st;
	int fd;

	if (entry >= VGPU_GANG_MEMBERS_MAX)
		return false;
	if (REGION_LOAD(file->owner[entry]))
		return REGION_LOAD(file->owner[entry]) == owner;
	fd = own_fd(file, &st);
	return fd < 0 || sys_byte_is_locked(fd, VGPU_GANG_LOCK_OFFSET + entry) != 0;
}

/* Whether the file at the path is a whole one of this user's, and open as fd. */
static bool is_own_gang(const char *path, int fd)
{
	struct stat st, named;
	uint64_t magic = 0;

	return sys_fstat(fd, &st) == 0 && check_owner(path, &st, NULL) == 0 &&
	       st.st_uid == sys_geteuid() && st.st_size == (off_t)FILE_SIZE &&
	       sys_read(fd, &magic, sizeof(magic)) == sizeof(magic) && magic == VGPU_GANG_MAGIC &&
	       sys_stat(path, &named) == 0 && named.st_dev == st.st_dev &&
	       named.st_ino == st.st_ino;
}

void gang_file_sweep(const char *path)
{
	int fd = sys_open(path, OPEN_FLAGS, 0);

	if (fd < 0)
		return;
	if (sys_lock_byte(fd, VGPU_INIT_LOCK_OFFSET) == 0 && is_own_gang(path, fd) &&
	    sys_bytes_are_locked(fd, VGPU_GANG_LOCK_OFFSET, VGPU_GANG_MEMBERS_MAX) == 0)
		sys_unlink(path);
	sys_close(fd);
}

void gang_file_forget(struct gang_file *file)
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
