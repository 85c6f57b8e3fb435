/*
 * Whether the file is still the region that was opened, and whether we can still ask the kernel
 * about it.
 *
 * How it works. A region in use can be taken away from below: deleted, renamed, replaced by another
 * file, truncated, written over. Then others keep another ledger, or none is left; to go on would
 * be to let the quota go. So the use of a region begins with a look at the file if the last one is
 * older than REGION_WATCH_NS: it must have its size and a name, and the file at our path must be
 * it. And whoever has taken the lock looks whether what is there is still what was opened
 * (region_is_as_opened). What is found wrong is final: `lost` says it, and the lock is had no more.
 * A path at which there is nothing says that the file was renamed, or its directory, unless the
 * process sees other files by now: after a chroot, "/" is another directory than it was.
 *
 * Of a file that is truncated, the mapped pages are gone, and whoever touches one is killed
 * (SIGBUS). From when it is seen, zeros are mapped over them, so that nothing of ours touches
 * them again. Before that, for REGION_WATCH_NS at most, a process at work in the region does touch
 * them: Linux has no other protection from that than a signal handler, which is the application's.
 *
 * An application may close our descriptor, or open something else under its number. The byte of
 * our slot stays locked, as the mapping holds on to the open file, but nobody can be asked about
 * the others' bytes. So the file is opened again, by its path, if what is there is still it.
 *
 * What it is not: a watch on the figures in the region, which its own processes must be able to
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

/* What the kernel says of our descriptor: 0 for ours, -EBADF for closed or somebody else's. */
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

/* The file at our path, if it is ours. */
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
	/* What has the old number is not ours, and left alone. */
	if (!__atomic_compare_exchange_n(&region->fd, &was, fd, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		sys_close(fd); /* another thread was first */
	return true;
}

int region_lose(struct region *region, int error)
{
	if (trace_wants(TRACE_REGION) && !REGION_LOAD(region->lost))
		trace_add(TRACE_LOST, -1, error, 0);
	REGION_STORE(region->lost, error);
	return error;
}

/* Whether paths lead where they did when the region was opened. */
static bool has_its_root(const struct region *region)
{
	struct stat st;

	return region->root_inode != 0 && sys_stat("/", &st) == 0 &&
	       st.st_dev == region->root_device && st.st_ino == region->root_inode;
}

/* 0, -ESTALE or -EUCLEAN. Where nothing can be learnt, as after a chroot, nothing is wrong. */
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
	return error ? region_lose(region, error) : 0;
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
		error = region_lose(region, -EUCLEAN);
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
