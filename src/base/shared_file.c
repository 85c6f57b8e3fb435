/*
 * The mapping of a file that is truncated is replaced by zeros when that is seen. A process that
 * touches the mapping before is killed (SIGBUS). Only a file that no other user can open prevents
 * that.
 */
#include "shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "sys.h"

#define OPEN_FLAGS       (O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_APPEND)
#define INIT_OFFSET      0
#define INIT_PATIENCE_NS (100 * NS_PER_MS)
#define PAGE_BYTES       4096

/* -- what went wrong, in words ---------------------------------------------------------------- */

static const struct shared_file_reason common[] = {
	{-ELOOP, "it is a symbolic link", "remove it; a link there is not followed"},
	{-EISDIR, "it is a directory", "remove it"},
	{-EROFS, "the file system is read-only", "mount the directory read-write"},
	{-EMFILE, "this process has too many open files", "raise ulimit -n"},
	{-ENFILE, "the system has too many open files", "raise fs.file-max"},
	{-ENOMEM, "no memory to map it", "see ulimit -v"},
	{-ENOLCK, "its file system has no file locks left", "use a local file system"},
	{-EOPNOTSUPP, "its file system has no file locks", "use a local file system"},
	{-ETIMEDOUT, "a process that makes it does not finish",
	 "is it stopped? Continue or end it"},
	{-ESTALE, "it was deleted meanwhile", "leave it there while programs use it"},
	{-EUCLEAN, "it was truncated or overwritten", "remove it"},
	{0, NULL, NULL},
};

static const struct shared_file_reason *find(const struct shared_file_reason *reason, int error)
{
	while (reason->error && reason->error != error)
		reason++;
	return reason->error ? reason : NULL;
}

int shared_file_fail(const struct shared_file *file, int error, struct fault *fault)
{
	const struct shared_file_reason *reason = find(file->kind->reasons, error);

	if (!reason)
		reason = find(common, error);
	if (!reason)
		return fault_set(fault, error, "%s %.300s: error %d", file->kind->cannot,
				 file->path, -error);
	return fault_set(fault, error, "%s %.300s: %s; %s", file->kind->cannot, file->path,
			 reason->cause, reason->cure);
}

int shared_file_refuse(const struct shared_file_kind *kind, const char *path, const char *what,
		       struct fault *fault)
{
	return fault_set(fault, -EINVAL, "%.300s %s: %s; remove it", path, kind->not_one, what);
}

/* -- the file --------------------------------------------------------------------------------- */

int shared_file_open_existing(const char *path)
{
	return sys_open(path, OPEN_FLAGS, 0);
}

/* Existing first: with fs.protected_regular, O_CREAT fails for another user's file in a sticky
 * directory with an error that says less. */
static int open_or_create(const char *path, unsigned mode)
{
	int fd = -ENOENT;

	for (int tries = 0; tries < 3; tries++) { /* it may come and go between the two */
		fd = shared_file_open_existing(path);
		if (fd != -ENOENT)
			break;
		fd = sys_open(path, OPEN_FLAGS | O_CREAT | O_EXCL, mode);
		if (fd >= 0)
			sys_fchmod(fd, mode); /* the umask may have taken from it */
		if (fd != -EEXIST)
			break;
	}
	return fd < 0 ? fd : sys_raise_fd(fd);
}

static int check(const struct shared_file *file, const struct stat *st, struct fault *fault)
{
	int error = 0;

	if (!S_ISREG(st->st_mode))
		return shared_file_refuse(file->kind, file->path, "it is not a regular file",
					  fault);
	if (file->kind->check)
		error = file->kind->check(file->path, st, fault);
	if (!error && st->st_nlink > 1)
		return shared_file_refuse(file->kind, file->path, "it has another name besides",
					  fault);
	return error;
}

int shared_file_lock(const struct shared_file *file)
{
	uint64_t deadline_ns = clock_now_ns() + INIT_PATIENCE_NS;
	int error;

	while ((error = sys_lock_byte(file->fd, INIT_OFFSET)) == -EAGAIN) {
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sys_sleep_ns(NS_PER_MS);
	}
	return error;
}

void shared_file_unlock(const struct shared_file *file)
{
	sys_unlock_byte(file->fd, INIT_OFFSET);
}

/* Whether the rest of the file is zeros, from there on: 1, 0, or a negative errno. */
static int rest_is_zero(int fd)
{
	static const char zeros[PAGE_BYTES];
	char bytes[PAGE_BYTES];
	long len;

	while ((len = sys_read(fd, bytes, sizeof(bytes))) > 0)
		if (memcmp(bytes, zeros, (size_t)len) != 0)
			return 0;
	return len < 0 ? (int)len : 1;
}

/* 0, and whether it was never made, or not to its end; or what is wrong with it. */
static int look(const struct shared_file *file, const struct stat *st, bool *ret_unmade,
		struct fault *fault)
{
	const struct shared_file_kind *kind = file->kind;
	struct shared_file_header found = {.magic = 0};
	long len = sys_read(file->fd, &found,
			    offsetof(struct shared_file_header, made) + sizeof(found.made));
	int zero = len < 0 ? (int)len : 0;

	if (len >= 0 && found.magic == 0 && (uint64_t)st->st_size <= kind->size_bytes)
		zero = rest_is_zero(file->fd);
	if (zero < 0)
		return shared_file_fail(file, zero, fault);
	*ret_unmade = zero;
	if (zero)
		return 0;
	if ((uint64_t)st->st_size != kind->size_bytes || found.magic != kind->magic)
		return shared_file_refuse(kind, file->path, "it holds something else", fault);
	if (found.version != kind->version || found.size != kind->size_bytes)
		return shared_file_refuse(kind, file->path, "another version made it", fault);
	return 0;
}

/* A file that has its size keeps it: a process that has it mapped would be killed. */
static int write_zeros(const struct shared_file *file, const struct stat *st)
{
	static const char zeros[PAGE_BYTES];
	size_t left = file->kind->size_bytes;
	int error = 0;

	if ((uint64_t)st->st_size == left)
		return 0;
	if (st->st_size > 0)
		error = sys_ftruncate(file->fd, 0);
	while (!error && left > 0) {
		size_t len = left < sizeof(zeros) ? left : sizeof(zeros);

		error = sys_write_all(file->fd, zeros, len);
		left -= len;
	}
	return error;
}

static void make(const struct shared_file *file)
{
	struct shared_file_header *header = file->at;

	__atomic_store_n(&header->version, file->kind->version, __ATOMIC_RELAXED);
	__atomic_store_n(&header->size, (uint32_t)file->kind->size_bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&header->made, (uint32_t)(clock_now_ns() >> 10) | 1, __ATOMIC_RELAXED);
	/* Other openers wait for the lock; a process that is killed here has made nothing. */
	__atomic_store_n(&header->magic, file->kind->magic, __ATOMIC_RELEASE);
}

/* Under the lock. */
static int settle(struct shared_file *file, struct fault *fault)
{
	bool unmade = false;
	struct stat st;
	void *at;
	int error = sys_fstat(file->fd, &st);

	if (error)
		return shared_file_fail(file, error, fault);
	error = look(file, &st, &unmade, fault);
	if (error)
		return error;
	if (unmade)
		error = write_zeros(file, &st);
	if (!error)
		error = sys_map_shared(file->fd, file->kind->size_bytes, true, &at);
	if (error)
		return shared_file_fail(file, error, fault);
	file->at = at;
	if (unmade)
		make(file);
	return 0;
}

static int open_checked(struct shared_file *file, struct fault *fault)
{
	struct stat st;
	int error;

	file->fd = open_or_create(file->path, file->kind->mode);
	if (file->fd < 0)
		return shared_file_fail(file, file->fd, fault);
	error = sys_fstat(file->fd, &st);
	if (error)
		return shared_file_fail(file, error, fault);
	file->device = st.st_dev;
	file->inode = st.st_ino;
	error = check(file, &st, fault);
	if (error)
		return error;
	error = shared_file_lock(file);
	if (error)
		return shared_file_fail(file, error, fault);
	error = settle(file, fault);
	shared_file_unlock(file);
	return error;
}

static int begin(const char *path, const struct shared_file_kind *kind, struct shared_file *file,
		 struct fault *fault)
{
	size_t len = strlen(path), most = sizeof(file->path) - 1;

	memset(file, 0, sizeof(*file));
	file->kind = kind;
	file->fd = -1;
	memcpy(file->path, path, len < most ? len : most);
	return len > most ? shared_file_fail(file, -ENAMETOOLONG, fault) : 0;
}

/* Closes what cannot be used, and hands the error on. */
static int end(struct shared_file *file, int error)
{
	if (error && file->fd >= 0)
		sys_close(file->fd);
	if (error)
		file->fd = -1;
	return error;
}

int shared_file_open(const char *path, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault)
{
	int error = begin(path, kind, ret_file, fault);

	return error ? error : end(ret_file, open_checked(ret_file, fault));
}

/* -- one that is handed over ------------------------------------------------------------------ */

static int check_sealed(struct shared_file *file, struct fault *fault)
{
	struct stat st;
	int error = sys_fstat(file->fd, &st), seals;

	if (error)
		return shared_file_fail(file, error, fault);
	seals = sys_seals(file->fd);
	if (seals < 0 || (seals & SHARED_FILE_SEALS) != SHARED_FILE_SEALS)
		return fault_set(fault, -EINVAL, "%.300s %s: it is not sealed", file->path,
				 file->kind->not_one);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->kind->size_bytes)
		return fault_set(fault, -EINVAL, "%.300s %s: it has another size", file->path,
				 file->kind->not_one);
	file->device = st.st_dev;
	file->inode = st.st_ino;
	return 0;
}

int shared_file_take(int fd, const char *name, const struct shared_file_kind *kind,
		     struct shared_file *ret_file, struct fault *fault)
{
	int error = begin(name, kind, ret_file, fault);

	ret_file->is_sealed = true;
	ret_file->fd = sys_raise_fd(fd);
	if (!error && ret_file->fd < 0)
		error = shared_file_fail(ret_file, ret_file->fd, fault);
	if (!error)
		error = check_sealed(ret_file, fault);
	if (!error) {
		error = sys_map_shared(ret_file->fd, kind->size_bytes, true, &ret_file->at);
		if (error)
			shared_file_fail(ret_file, error, fault);
	}
	return end(ret_file, error);
}

/* -- whether it is still there ---------------------------------------------------------------- */

static bool is_same(const struct shared_file *file, const struct stat *st)
{
	return st->st_dev == file->device && st->st_ino == file->inode;
}

static int own_fd(const struct shared_file *file, struct stat *ret_st)
{
	int fd = __atomic_load_n(&file->fd, __ATOMIC_RELAXED);

	return sys_fstat(fd, ret_st) == 0 && is_same(file, ret_st) ? fd : -EBADF;
}

int shared_file_fd(const struct shared_file *file)
{
	struct stat st;

	return own_fd(file, &st);
}

/* The same, after the file was opened once more if need be. Bytes that this process has locked stay
 * locked meanwhile, as the mapping holds on to the open file. */
static int have_fd(struct shared_file *file, struct stat *ret_st)
{
	int was = __atomic_load_n(&file->fd, __ATOMIC_RELAXED), fd = own_fd(file, ret_st);

	if (fd >= 0)
		return fd;
	fd = shared_file_open_existing(file->path);
	if (fd < 0)
		return fd;
	fd = sys_raise_fd(fd);
	if (sys_fstat(fd, ret_st) != 0 || !is_same(file, ret_st)) {
		sys_close(fd);
		return -ESTALE;
	}
	/* The file that has the old number now is not ours. */
	if (__atomic_compare_exchange_n(&file->fd, &was, fd, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		return fd;
	sys_close(fd); /* another thread was first */
	return own_fd(file, ret_st);
}

int shared_file_watch(struct shared_file *file)
{
	const struct shared_file_header *header = file->at;
	struct stat st;
	int fd;

	if (file->is_sealed)
		return 0;
	fd = have_fd(file, &st);
	if (fd == -ESTALE)
		return fd;
	if (fd >= 0 && (uint64_t)st.st_size != file->kind->size_bytes) {
		sys_map_zeros_over(file->at, file->kind->size_bytes);
		return -EUCLEAN;
	}
	if (__atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) != file->kind->magic)
		return -EUCLEAN;
	if (fd >= 0 && st.st_nlink == 0)
		return -ESTALE;
	if (sys_stat(file->path, &st) == 0 && !is_same(file, &st))
		return -ESTALE;
	return 0;
}

void shared_file_forget(struct shared_file *file)
{
	int fd = file->at ? shared_file_fd(file) : -EBADF;

	if (file->at)
		sys_unmap(file->at, file->kind->size_bytes);
	if (fd >= 0)
		sys_close(fd);
	memset(file, 0, sizeof(*file));
	file->fd = -1;
}
