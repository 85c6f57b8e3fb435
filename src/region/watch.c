/*
 * Finds out whether the file is still the region that was opened, and whether the kernel can still
 * be asked about it.
 *
 * How it works. A region in use can be deleted, renamed, replaced by another file, truncated or
 * written over. Then other processes keep another ledger, or there is none, and the quota would not
 * be enforced. So each use of a region first looks at the file, if the last look is older than
 * REGION_WATCH_NS. The file must have its size and a name, and the file at our path must be this
 * file. And a thread that has taken the lock checks that the mapping still has the region that was
 * opened (region_is_as_opened). A loss is final: `lost` has the error, and the lock cannot be taken
 * any more. If there is no file at the path, the file or its directory was renamed. The exception
 * is a process that sees other files than before, as after a chroot, when "/" is another directory.
 *
 * When a file is truncated, its mapped pages are gone, and a process that touches one is killed
 * (SIGBUS). Once that is noticed, zeros are mapped over the pages, so this library does not touch
 * them again. Before that, for REGION_WATCH_NS at most, a process may touch them. Linux offers only
 * a signal handler against that, and signal handlers belong to the application.
 *
 * An application may close our descriptor, or open another file under its number. The byte of our
 * slot stays locked, as the mapping keeps the open file, but the kernel cannot be asked about other
 * slots' bytes. So the file is opened again by its path, if the file there is still this one.
 *
 * What it is not: a check of the figures in the region, which the slice's processes must be able to
 * write.
 */
#include <errno.h>

#include "clock.h"
#include "region_internal.h"
#include "sys.h"
#include "trace.h"

static bool is_same_file(const struct region *region, const struct stat *st)
{
	return st->st_dev == region->device && st->st_ino == region->inode;
}

/* Asks the kernel about our descriptor: 0 if it is ours, -EBADF if it is closed or of another file.
 */
static int look_at_fd(const struct region *region)
{
	struct stat st;
	int error = sys_fstat(REGION_LOAD(region->fd), &st);

	return error || is_same_file(region, &st) ? error : -EBADF;
}

bool region_fd_is_ours(const struct region *region)
{
	return look_at_fd(region) == 0;
}

/* Opens the file at our path, if it is still this file. */
static int open_again(const struct region *region)
{
	struct stat st;
	int fd = sys_open(region->path, REGION_OPEN_FLAGS(region->writable), 0);

	if (fd < 0)
		return fd;
	fd = sys_raise_fd(fd);
	if (sys_fstat(fd, &st) == 0 && is_same_file(region, &st))
		return fd;
	sys_close(fd);
	return -ESTALE;
}

bool region_has_fd(struct region *region)
{
	int was = REGION_LOAD(region->fd), error = look_at_fd(region), fd;

	if (error != -EBADF)
		return error == 0;
	fd = open_again(region);
	if (fd < 0)
		return false;
	/* The descriptor with the old number is the application's, and stays open. */
	if (!__atomic_compare_exchange_n(&region->fd, &was, fd, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		sys_close(fd); /* another thread was first */
	return true;
}

int region_mark_lost(struct region *region, int error)
{
	if (trace_wants(TRACE_REGION) && !REGION_LOAD(region->lost))
		trace_add(TRACE_LOST, -1, error, 0);
	REGION_STORE(region->lost, error);
	return error;
}

/* Whether the process has the same root directory as when it opened the region. */
static bool has_its_root(const struct region *region)
{
	struct stat st;

	return region->root_inode != 0 && sys_stat("/", &st) == 0 &&
	       st.st_dev == region->root_device && st.st_ino == region->root_inode;
}

/* Looks at the file: 0, -ESTALE or -EUCLEAN. 0 also if nothing can be found out, as after a chroot.
 */
static int look(struct region *region)
{
	struct stat st;
	int error;

	if (region_has_fd(region) && sys_fstat(REGION_LOAD(region->fd), &st) == 0 &&
	    is_same_file(region, &st)) {
		if ((uint64_t)st.st_size != sizeof(*region->file))
			return -EUCLEAN;
		if (st.st_nlink == 0)
			return -ESTALE;
	}
	error = sys_stat(region->path, &st);
	if (error == -ENOENT || error == -ENOTDIR)
		return has_its_root(region) ? -ESTALE : 0;
	return error || is_same_file(region, &st) ? 0 : -ESTALE;
}

static int look_and_lose(struct region *region)
{
	int error = look(region);

	if (error == -EUCLEAN)
		sys_map_zeros_over(region->file, sizeof(*region->file));
	return error ? region_mark_lost(region, error) : 0;
}

int region_watch_now(struct region *region)
{
	uint64_t next_ns = REGION_LOAD(region->watch_next_ns), now_ns = clock_coarse_ns();

	if (now_ns < next_ns ||
	    !__atomic_compare_exchange_n(&region->watch_next_ns, &next_ns, now_ns + REGION_WATCH_NS,
					 false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return REGION_LOAD(region->lost);
	return look_and_lose(region);
}

bool region_is_there(struct region *region)
{
	return region_watch(region) == 0;
}

bool region_is_as_opened(const struct region *region)
{
	const struct vgpu_region_own *own = &region->file->own;

	return REGION_LOAD(own->magic) == VGPU_REGION_MAGIC &&
	       REGION_LOAD(own->made) == region->made;
}

int region_examine(struct region *region)
{
	int error = REGION_LOAD(region->lost);

	if (!error)
		error = look_and_lose(region);
	if (!error && !region_is_as_opened(region))
		error = region_mark_lost(region, -EUCLEAN);
	return error;
}

int region_why_lost(const struct region *region, struct fault *fault)
{
	int error = REGION_LOAD(region->lost);

	return fault_set(fault, error,
			 "region %s was %s while this process used it: end the programs of the "
			 "slice and start them again",
			 region->path,
			 error == -ESTALE ? "deleted, renamed or replaced"
					  : "truncated or overwritten");
}
