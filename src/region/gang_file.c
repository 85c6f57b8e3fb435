/*
 * What always holds. An entry belongs to the process whose open file has the entry's byte locked. A
 * process takes an entry under the file's lock. It first locks the byte, and then stores the
 * entry's `owner`, a number that the entry did not have before. So if another process is about to
 * free the entry of a dead owner, by a compare-and-swap of that word, the swap fails.
 *
 * A file in which no process has an entry may be removed, under the same lock. A process that had
 * opened the file before sees that when it takes an entry, and opens the file at the path again.
 */
#include "gang_file.h"

#include <errno.h>
#include <string.h>

#include "region_internal.h"
#include "sys.h"

#define OWNER_MASK       ((1u << VGPU_GANG_OWNER_SLOTS) - 1)
#define WRITABLE_BY_MANY 022

static const struct shared_file_reason reasons[] = {
	{-ENOENT, "its directory is not there", "make or mount it, or set VGPU_GANGS to another"},
	{-ENOTDIR, "part of the path is no directory", "set VGPU_GANGS to a directory"},
	{-ENAMETOOLONG, "the path is too long", "set VGPU_GANGS to a shorter one"},
	{-EACCES, "permission denied", "all programs of a gang run as one user"},
	{-EPERM, "permission denied", "all programs of a gang run as one user"},
	{-ENOSPC, "the file system is full", "a gang needs 4 KiB there"},
	{-EDQUOT, "the disk quota is exhausted", "a gang needs 4 KiB there"},
	{0, NULL, NULL},
};

static int check_owner(const char *path, const struct stat *st, struct fault *fault)
{
	unsigned user = sys_geteuid();

	if (st->st_uid != user && st->st_uid != 0)
		return fault_set(fault, -EPERM,
				 "the gang %.300s is user %u's, and this program runs as user %u: "
				 "remove it, or set VGPU_GANGS to a directory of this user's",
				 path, (unsigned)st->st_uid, user);
	if (st->st_mode & WRITABLE_BY_MANY)
		return fault_set(fault, -EPERM,
				 "others may write the gang %.300s: chmod it to 0600", path);
	return 0;
}

static const struct shared_file_kind kind = {
	.magic = VGPU_GANG_MAGIC,
	.version = VGPU_GANG_VERSION,
	.size_bytes = sizeof(struct vgpu_gang_file),
	.mode = 0600,
	.cannot = "cannot join the gang",
	.not_one = "is no gang of vgpu",
	.reasons = reasons,
	.check = check_owner,
};

_Static_assert(offsetof(struct vgpu_gang_file, made) == offsetof(struct shared_file_header, made),
	       "layout");
_Static_assert(VGPU_INIT_LOCK_OFFSET == 0, "as shared_file.c has it");

int gang_file_open(const char *path, struct gang_file *ret_file, struct fault *fault)
{
	int error;

	memset(ret_file, 0, sizeof(*ret_file));
	error = shared_file_open(path, &kind, &ret_file->shared, fault);
	ret_file->file = ret_file->shared.at;
	return error;
}

int gang_file_watch(struct gang_file *file)
{
	return shared_file_watch(&file->shared);
}

uint64_t gang_file_number(const struct gang_file *file)
{
	uint64_t number = file->shared.inode ^ (uint64_t)REGION_LOAD(file->file->made) << 32;

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

/* Under the lock. */
static int claim_locked(struct gang_file *file, uint32_t *ret_owner)
{
	int error = -ENOSPC;

	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++) {
		if (file->owner[i])
			continue;
		error = sys_lock_byte(file->shared.fd, VGPU_GANG_LOCK_OFFSET + i);
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
		entry = shared_file_lock(&file->shared);
	if (entry)
		return shared_file_fail(&file->shared, entry, fault);
	entry = gang_file_watch(file);
	if (!entry)
		entry = claim_locked(file, ret_owner);
	shared_file_unlock(&file->shared);
	if (entry == -ENOSPC)
		return fault_set(fault, entry,
				 "the gang %.300s is full: it has %d members at most, one for each "
				 "process and GPU; give the other slices another gang",
				 file->shared.path, VGPU_GANG_MEMBERS_MAX);
	return entry < 0 ? shared_file_fail(&file->shared, entry, fault) : entry;
}

void gang_file_release(struct gang_file *file, unsigned entry)
{
	int fd = shared_file_fd(&file->shared);

	if (fd >= 0)
		sys_unlock_byte(fd, VGPU_GANG_LOCK_OFFSET + entry);
	REGION_STORE(file->owner[entry], 0);
}

bool gang_file_lives(const struct gang_file *file, uint32_t owner)
{
	unsigned entry = (owner & OWNER_MASK) - 1;
	int fd;

	if (entry >= VGPU_GANG_MEMBERS_MAX)
		return false;
	if (REGION_LOAD(file->owner[entry]))
		return REGION_LOAD(file->owner[entry]) == owner;
	fd = shared_file_fd(&file->shared);
	return fd < 0 || sys_byte_is_locked(fd, VGPU_GANG_LOCK_OFFSET + entry) != 0;
}

/* Whether the file at the path is the one that is open as fd, complete, and this user's. */
static bool is_own_gang(const char *path, int fd)
{
	struct stat st, named;
	uint64_t magic = 0;

	return sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       check_owner(path, &st, NULL) == 0 && st.st_uid == sys_geteuid() &&
	       st.st_size == (off_t)sizeof(struct vgpu_gang_file) &&
	       sys_read(fd, &magic, sizeof(magic)) == sizeof(magic) && magic == VGPU_GANG_MAGIC &&
	       sys_stat(path, &named) == 0 && named.st_dev == st.st_dev &&
	       named.st_ino == st.st_ino;
}

void gang_file_sweep(const char *path)
{
	int fd = shared_file_open_existing(path);

	if (fd < 0)
		return;
	if (sys_lock_byte(fd, VGPU_INIT_LOCK_OFFSET) == 0 && is_own_gang(path, fd) &&
	    sys_bytes_are_locked(fd, VGPU_GANG_LOCK_OFFSET, VGPU_GANG_MEMBERS_MAX) == 0)
		sys_unlink(path);
	sys_close(fd);
}

void gang_file_forget(struct gang_file *file)
{
	shared_file_forget(&file->shared);
	memset(file->owner, 0, sizeof(file->owner));
	file->file = NULL;
}
