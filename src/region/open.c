/*
 * A path becomes a struct region, and back.
 *
 * How it works. The file is opened. A missing one is created only with a setup, exclusively. So
 * exactly one process has created it and gives it its mode (the umask is not touched). Links are
 * refused: the usual path is in /tmp, where any user may make one. An onlooker, such as a tool of
 * root's that reads tenants' files, opens regular files only. If there is no region yet, /proc says
 * whether processes use an earlier region of that path (orphan.c). Then each opener takes the
 * open-file-description lock on the byte VGPU_INIT_LOCK_OFFSET, and looks at the file under it:
 *
 *     the file has                                  it is
 *     no byte; or zeros, and less than a region;    not made, or its maker has died: it is made, if
 *     or a region's size, HAMi's magic 0, and       no process uses an earlier one (orphan.c)
 *     zeros or our mark
 *     a region's size and both magics               a region: it is reset, appended to, or left
 *     anything else                                 another file: it is left, and a fault says so
 *
 * A region is made by writing zeros over its whole size, which allocates its blocks. A file of
 * holes on a full disk would kill its users with SIGBUS later. Then the fields are written, our
 * magic, and HAMi's magic (setup.c).
 *
 * What always holds. No process maps a file before it has its full size. No file that is mapped is
 * truncated, replaced or unlinked by vgpu: only a file that failed to get its size is emptied. A
 * region that may only be read, or must be left as it is, is read without the byte, which cannot be
 * locked then. Such a region is complete as soon as it has both magics.
 *
 * If the process is killed on any line, the kernel unlocks the byte, and the next opener finds one
 * of the rows above. If the process is stopped, others wait for INIT_PATIENCE_NS at most.
 *
 * What it is not: protection from the tenant itself, who may write the file. Figures of the file
 * are kept within bounds where they are used as an index.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "region_internal.h"
#include "sys.h"
#include "trace.h"

#define REGION_SIZE      sizeof(struct vgpu_region_file)
#define HAMI_SIZE        sizeof(struct vgpu_hami_region)
#define INIT_PATIENCE_NS (2 * NS_PER_S)
#define INIT_POLL_NS     NS_PER_MS
#define DIRECTORY        "it is a directory; name a file in it"
#define NOT_REGULAR      "it is not a regular file; name another path"

_Static_assert(REGION_SIZE == 2097152, "layout");
_Static_assert(REGION_SIZE % 4096 == 0, "zeros are written by the page");

/* -- what went wrong, in words ---------------------------------------------------------------- */

struct reason {
	int error;
	const char *cause, *cure;
};

static const struct reason reasons[] = {
	{-ENOENT, "there is no such file", "is the slice set up, and its directory mounted?"},
	{-ENOTDIR, "part of the path is no directory", "correct the path"},
	{-EISDIR, "it is a directory", "name a file in it"},
	{-ENAMETOOLONG, "the path is too long", "use a shorter one"},
	{-EACCES, "permission denied",
	 "let this user write it: by the group of the slice (vgpu set --group), or by mode 0666 of "
	 "the file and 0777 of its directory"},
	{-EPERM, "permission denied",
	 "let this user write it: by the group of the slice (vgpu set --group), or by mode 0666 of "
	 "the file and 0777 of its directory"},
	{-EROFS, "the file system is read-only", "mount the slice's directory read-write"},
	{-ELOOP, "it is a symbolic link", "name the file itself; a link there is not followed"},
	{-ENOSPC, "the file system is full", "a region needs 2 MiB there"},
	{-EDQUOT, "the disk quota is exhausted", "a region needs 2 MiB there"},
	{-EFBIG, "the file size limit is too low", "a region needs 2 MiB: see ulimit -f"},
	{-EMFILE, "this process has too many open files", "raise ulimit -n"},
	{-ENFILE, "the system has too many open files", "raise fs.file-max"},
	{-ENOMEM, "no memory to map it", "see ulimit -v"},
	{-ENOLCK, "its file system has no file locks left", "use a local file system"},
	{-EOPNOTSUPP, "its file system has no file locks", "use a local file system"},
	{-ENOSYS, "there are no open-file-description locks here",
	 "Linux 3.15 has them; a seccomp filter must let fcntl through"},
	{-ETIMEDOUT, "a process that set it up does not finish",
	 "is it stopped? Continue or end it"},
};

static int fail(struct fault *fault, int error, const char *doing, const char *path)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (reasons[i].error == error)
			return fault_set(fault, error, "cannot %s region %s: %s; %s", doing, path,
					 reasons[i].cause, reasons[i].cure);
	return fault_set(fault, error, "cannot %s region %s: error %d", doing, path, -error);
}

static int refuse(struct fault *fault, const char *path, const char *what)
{
	return fault_set(fault, -EINVAL, "%s is no region of vgpu: %s", path, what);
}

/* -- the file --------------------------------------------------------------------------------- */

/* How a file that exists is opened: for writing; for writing, or for reading if it cannot be
 * written; or for reading, whatever figures it has. */
enum access { ACCESS_WRITE, ACCESS_VIEW, ACCESS_INSPECT };

static void give_mode(int fd, const struct region_setup *setup)
{
	if (setup->has_group && sys_fchown(fd, -1, (int)setup->group) != 0)
		return; /* the file stays the owner's only */
	/* This changes nothing if the file system has no modes. */
	sys_fchmod(fd, setup->has_group ? 0660 : 0666);
}

/*
 * An existing file is tried first: with fs.protected_regular, O_CREAT fails for another user's file
 * in /tmp, although the file exists and may be written.
 */
static int open_or_create(const char *path, const struct region_setup *setup, struct region *region)
{
	unsigned mode = setup->has_group ? 0600 : 0666;

	for (int tries = 0; tries < 3; tries++) { /* the file may come and go between the two */
		region->fd = sys_open(path, REGION_OPEN_FLAGS(true), 0);
		if (region->fd != -ENOENT)
			break;
		region->fd = sys_open(path, REGION_OPEN_FLAGS(true) | O_CREAT | O_EXCL, mode);
		if (region->fd >= 0) {
			region_step(file_created);
			give_mode(region->fd, setup);
			region_step(file_opened);
		}
		if (region->fd != -EEXIST)
			break;
	}
	return region->fd < 0 ? region->fd : 0;
}

/* Opens an existing file. */
static int open_existing(const char *path, enum access access, struct region *region)
{
	region->fd =
		access == ACCESS_INSPECT ? -EROFS : sys_open_regular(path, REGION_OPEN_FLAGS(true));
	if (access != ACCESS_WRITE &&
	    (region->fd == -EACCES || region->fd == -EPERM || region->fd == -EROFS)) {
		region->writable = false;
		region->fd = sys_open_regular(path, REGION_OPEN_FLAGS(false));
	}
	return region->fd < 0 ? region->fd : 0;
}

static int check_file(const char *path, const struct region_setup *setup, struct region *region,
		      struct fault *fault)
{
	struct stat st, root;
	int error = sys_fstat(region->fd, &st);

	if (error)
		return fail(fault, error, "open", path);
	if (S_ISDIR(st.st_mode))
		return refuse(fault, path, DIRECTORY);
	if (!S_ISREG(st.st_mode))
		return refuse(fault, path, NOT_REGULAR);
	region->device = st.st_dev;
	region->inode = st.st_ino;
	if (path[0] == '/' && sys_stat("/", &root) == 0) {
		region->root_device = root.st_dev;
		region->root_inode = root.st_ino;
	}
	return setup && st.st_size != REGION_SIZE ? region_check_deleted(path, fault) : 0;
}

static int lock_init_byte(const char *path, const struct region *region, struct fault *fault)
{
	uint64_t deadline_ns = clock_now_ns() + INIT_PATIENCE_NS;
	int error;

	while ((error = sys_lock_byte(region->fd, VGPU_INIT_LOCK_OFFSET)) == -EAGAIN) {
		if (clock_now_ns() >= deadline_ns) {
			error = -ETIMEDOUT;
			break;
		}
		sys_sleep_ns(INIT_POLL_NS);
	}
	if (!error)
		region_step(init_locked);
	if (error == -EINVAL || error == -EPERM || error == -EACCES)
		error = -ENOSYS; /* the answer of kernels before 3.15, and of sandboxes */
	return error ? fail(fault, error, "lock", path) : 0;
}

/* Never fails on a local file system. After a failure, the byte would stay locked as long as this
 * process lives, and no other process could join. So the caller must close the file, which unlocks
 * the byte. */
static int unlock_init_byte(const char *path, const struct region *region, struct fault *fault)
{
	int error = sys_unlock_byte(region->fd, VGPU_INIT_LOCK_OFFSET);

	region_step(init_unlocked);
	return error ? fail(fault, error, "unlock", path) : 0;
}

static int map_file(const char *path, struct region *region, struct fault *fault)
{
	void *addr;
	int error = sys_map_shared(region->fd, REGION_SIZE, region->writable, &addr);

	if (error)
		return fail(fault, error, "map", path);
	region->file = addr;
	return 0;
}

static void unmap_file(struct region *region)
{
	if (region->file)
		sys_unmap(region->file, REGION_SIZE);
	region->file = NULL;
}

/* -- what the file contains
 * ---------------------------------------------------------------------------- */

enum content { CONTENT_REGION, CONTENT_UNMADE };

static bool all_zero(const void *start, size_t len)
{
	const uint64_t *words = start;

	for (size_t i = 0; i < len / sizeof(*words); i++)
		if (words[i])
			return false;
	return true;
}

/* Looks at a file of another size than a region's. Its maker may have died while it was being
 * filled with zeros; otherwise it is another program's file. */
static int look_at_stranger(const char *path, const struct region *region, uint64_t size,
			    enum content *ret_content, struct fault *fault)
{
	_Alignas(uint64_t) char buf[4096];
	bool zero = size < REGION_SIZE;
	int32_t magic = 0;
	long len;

	for (bool first = true; (len = sys_read(region->fd, buf, sizeof(buf))) > 0; first = false) {
		memset(buf + len, 0, sizeof(buf) - (size_t)len);
		if (first)
			memcpy(&magic, buf, sizeof(magic));
		zero = zero && all_zero(buf, sizeof(buf));
		if (!zero)
			break;
	}
	if (len < 0)
		return fail(fault, (int)len, "read", path);
	if (zero) {
		*ret_content = CONTENT_UNMADE;
		return 0;
	}
	if (magic != VGPU_HAMI_MAGIC)
		return refuse(fault, path,
			      "it holds something else; move it away, or name another path");
	if (size == HAMI_SIZE)
		return refuse(fault, path,
			      "HAMi-core made it; remove it when nothing uses it any more");
	return refuse(fault, path,
		      "another version made it; remove it when nothing uses it any more");
}

/* Checks a mapped file of a region's size that has HAMi's magic. */
static int check_region(const char *path, const struct vgpu_region_file *file, struct fault *fault)
{
	if (REGION_SEE(file->own.magic) != VGPU_REGION_MAGIC)
		return refuse(fault, path,
			      "another program made it; remove it when nothing uses it any more");
	if (file->own.version != VGPU_REGION_VERSION || file->own.size != REGION_SIZE ||
	    file->hami.version_major != VGPU_HAMI_VERSION_MAJOR ||
	    file->hami.version_minor != VGPU_HAMI_VERSION_MINOR)
		return fault_set(fault, -EINVAL,
				 "region %s is of version %u (HAMi %u.%u), and this is version %d "
				 "(HAMi %d.%d); remove it when nothing uses it any more",
				 path, file->own.version, file->hami.version_major,
				 file->hami.version_minor, VGPU_REGION_VERSION,
				 VGPU_HAMI_VERSION_MAJOR, VGPU_HAMI_VERSION_MINOR);
	return 0;
}

static int check_bounds(const char *path, const struct vgpu_region_file *file, struct fault *fault)
{
	if (REGION_LOAD(file->hami.device_count) > VGPU_DEVICES_MAX ||
	    REGION_LOAD(file->hami.slot_count) < 0 ||
	    REGION_LOAD(file->hami.slot_count) > VGPU_SLOTS_MAX)
		return fault_set(fault, -EINVAL,
				 "region %s is damaged: %llu devices, %d slots; remove it when "
				 "nothing uses it any more",
				 path, (unsigned long long)REGION_LOAD(file->hami.device_count),
				 REGION_LOAD(file->hami.slot_count));
	return 0;
}

/* Maps the file if it has a region's size, and finds out what it is. */
static int look_at_region(const char *path, struct region *region, enum content *ret_content,
			  struct fault *fault)
{
	struct stat st;
	int error = sys_fstat(region->fd, &st);

	if (error)
		return fail(fault, error, "open", path);
	if (st.st_size != REGION_SIZE)
		return look_at_stranger(path, region, (uint64_t)st.st_size, ret_content, fault);
	error = map_file(path, region, fault);
	if (error)
		return error;
	if (REGION_SEE(region->file->hami.magic) == VGPU_HAMI_MAGIC) {
		*ret_content = CONTENT_REGION;
		return check_region(path, region->file, fault);
	}
	if (REGION_LOAD(region->file->hami.magic) == 0 &&
	    (REGION_LOAD(region->file->own.magic) == REGION_MAKING_MAGIC ||
	     REGION_LOAD(region->file->own.magic) == VGPU_REGION_MAGIC ||
	     all_zero(region->file, REGION_SIZE))) {
		*ret_content = CONTENT_UNMADE;
		return 0;
	}
	return refuse(fault, path, "it holds something else; move it away, or name another path");
}

/* The file becomes zeros of a region's size, with all its blocks allocated. An empty file is not
 * truncated: ext4 would write it to the disk when it is first closed, which takes a tenth of a
 * second. */
static int write_zeros(int fd)
{
	static const char zeros[4096];
	struct stat st;
	int error = sys_fstat(fd, &st);

	if (!error && st.st_size > 0) {
		error = sys_ftruncate(fd, 0);
		region_step(make_emptied);
	}
	for (size_t size = 0; !error && size < REGION_SIZE; size += sizeof(zeros)) {
		if (size == REGION_SIZE / 2)
			region_step(make_half);
		error = sys_write_all(fd, zeros, sizeof(zeros)); /* at the end: O_APPEND */
	}
	return error;
}

static int make(const char *path, const struct region_setup *setup, struct region *region,
		struct fault *fault)
{
	int error = region_check_emptied(path, region->fd, fault);

	if (error)
		return error;
	give_mode(region->fd, setup); /* its creator may have died before that */
	if (!region->file) { /* a mapped file has its size, and zeros where region_make stores
				nothing */
		error = write_zeros(region->fd);
		if (error) {
			sys_ftruncate(region->fd, 0); /* frees the blocks that it got */
			return fail(fault, error, "create", path);
		}
		region_step(make_sized);
		error = map_file(path, region, fault);
		if (error)
			return error;
	}
	region_make(region->file, path, setup);
	region->made = REGION_LOAD(region->file->own.made);
	return 0;
}

/* -- the contract ----------------------------------------------------------------------------- */

/* Makes or adopts the region under the init byte, or looks at it read-only. */
static int settle(const char *path, const struct region_setup *setup, enum access access,
		  struct region *region, struct fault *fault)
{
	enum content content = CONTENT_REGION;
	int error = look_at_region(path, region, &content, fault);

	if (error)
		return error;
	if (content == CONTENT_UNMADE)
		return setup ? make(path, setup, region, fault)
			     : refuse(fault, path,
				      "it is empty; start a program in the slice first");
	region->made = REGION_LOAD(region->file->own.made);
	if (access != ACCESS_INSPECT)
		error = check_bounds(path, region->file, fault);
	if (error)
		return error;
	return setup ? region_adopt(path, region, setup, fault) : 0;
}

static int open_file(const char *path, const struct region_setup *setup, enum access access,
		     struct region *region, struct fault *fault)
{
	int error;

	region->path = path;
	region->writable = true;
	error = setup ? open_or_create(path, setup, region) : open_existing(path, access, region);
	if (!error)
		region->fd = sys_raise_fd(region->fd);
	if (region->fd < 0) {
		error = region->fd;
		region->fd = -1;
		if (error == -ENXIO)
			return refuse(fault, path, NOT_REGULAR);
		if (error == -EISDIR && access == ACCESS_INSPECT)
			return refuse(fault, path, DIRECTORY);
		return fail(fault, error, "open", path);
	}
	return check_file(path, setup, region, fault);
}

/* Closes a region that is not in use yet. Its descriptor is certainly ours. */
static void discard(struct region *region)
{
	unmap_file(region);
	if (region->fd >= 0)
		sys_close(region->fd);
}

static int open_region(const char *path, const struct region_setup *setup, enum access access,
		       struct region *ret_region, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	int error = setup ? region_check_setup(setup, fault) : 0;

	if (!error)
		error = open_file(path, setup, access, &region, fault);
	if (!error && region.writable)
		error = lock_init_byte(path, &region, fault);
	if (!error)
		error = settle(path, setup, access, &region, fault);
	if (!error && region.writable)
		error = unlock_init_byte(path, &region, fault);
	if (error) {
		discard(&region);
		return error;
	}
	*ret_region = region;
	return 0;
}

int region_open(const char *path, const struct region_setup *setup, struct region *ret_region,
		struct fault *fault)
{
	return open_region(path, setup, ACCESS_WRITE, ret_region, fault);
}

int region_view(const char *path, struct region *ret_region, struct fault *fault)
{
	return open_region(path, NULL, ACCESS_VIEW, ret_region, fault);
}

int region_inspect(const char *path, struct region *ret_region, struct fault *fault)
{
	return open_region(path, NULL, ACCESS_INSPECT, ret_region, fault);
}

void region_forget(struct region *region)
{
	bool ours = region_fd_is_ours(region);
	int fd = region->fd;

	if (region->slot >= 0)
		trace_forget();
	unmap_file(region);
	if (ours)
		sys_close(fd);
	*region = (struct region)REGION_CLOSED;
}

static void give_slot(struct region *region)
{
	if (region_watch(region) != 0 || region_lock(region) != 0)
		return; /* the byte is unlocked with the descriptor, and the next reaper clears the
			   slot */
	region_clear_slot_locked(region, (unsigned)region->slot);
	region_step(release_cleared);
	region_compute_totals_locked(region->file);
	region_unlock(region);
	region_step(release_done);
}

void region_close(struct region *region)
{
	if (region->file && region->slot >= 0) {
		give_slot(region);
		if (trace_wants(TRACE_REGION))
			trace_add(TRACE_LEFT, -1, region->slot, 0);
	}
	region_forget(region);
}
