/*
 * A file is made in this order: all of its pages as zeros, the header, and the seals last. So
 * vgpud's memory is charged for the pages, and no client can run out of memory in the file.
 *
 * A lock belongs to an open file (fcntl(2), open-file-description locks), and a descriptor that
 * is sent to a client refers to the sender's open file. So vgpud opens the file again for each
 * client.
 */
#include "turns_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "clock.h"
#include "say.h"
#include "shared_file.h"
#include "sys.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 8U
#endif

#define BYTES sizeof(struct vgpu_turns_file)

/* -- one file ---------------------------------------------------------------------------------- */

static int remember(struct turns_file *file, const char *uuid, int fd)
{
	struct stat st;
	void *at;
	int error = sys_fstat(fd, &st);

	if (!error)
		error = sys_map_shared(fd, BYTES, true, &at);
	if (error)
		return error;
	memset(file, 0, sizeof(*file));
	snprintf(file->uuid, sizeof(file->uuid), "%s", uuid);
	file->device = st.st_dev;
	file->inode = st.st_ino;
	file->fd = fd;
	file->at = at;
	return 0;
}

static void drop(struct turns_file *file)
{
	sys_unmap(file->at, BYTES);
	sys_close(file->fd);
}

/* Fills and seals a new file. The header is for people and tools; clients check the seals and
 * the size. */
static int fill(int fd)
{
	static const char zeros[4096];
	struct vgpu_turns_header header = {.magic = VGPU_TURNS_MAGIC,
					   .version = VGPU_TURNS_VERSION,
					   .size = BYTES,
					   .made = (uint32_t)(clock_now_ns() >> 10) | 1};
	int error = 0;

	for (size_t at = 0; !error && at < BYTES; at += sizeof(zeros))
		error = sys_write_all(fd, zeros, sizeof(zeros));
	if (!error && pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		error = -EIO;
	if (!error && fcntl(fd, F_ADD_SEALS, SHARED_FILE_SEALS) < 0)
		error = -errno;
	return error;
}

static int make(const char *uuid)
{
	char name[VGPU_UUID_LEN + 16];
	int fd, error;

	snprintf(name, sizeof(name), "vgpu-turns-%s", uuid);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	error = fill(fd);
	if (error)
		close(fd);
	return error ? error : fd;
}

void turns_store_keep(const char *name, int fd)
{
	char state[VGPU_UUID_LEN + 64];

	sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
	snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s", name);
	sd_pid_notify_with_fds(0, 0, state, &fd, 1);
}

static void keep_file(const struct turns_file *file)
{
	char name[sizeof(TURNS_KEPT_NAME) + VGPU_UUID_LEN];

	snprintf(name, sizeof(name), TURNS_KEPT_NAME "%s", file->uuid);
	turns_store_keep(name, file->fd);
}

static int make_file(struct turns_file *file, const char *uuid, uint64_t maker)
{
	int fd = make(uuid), error = fd < 0 ? fd : remember(file, uuid, fd);

	if (error && fd >= 0)
		sys_close(fd);
	if (error)
		return error;
	file->maker = maker;
	keep_file(file);
	return 0;
}

/* -- all of them ------------------------------------------------------------------------------- */

struct turns_file *turns_store_find(struct turns_store *store, const char *uuid)
{
	for (unsigned i = 0; i < store->count; i++)
		if (strcmp(store->file[i].uuid, uuid) == 0)
			return &store->file[i];
	return NULL;
}

unsigned turns_store_made_by(const struct turns_store *store, uint64_t maker)
{
	unsigned count = 0;

	for (unsigned i = 0; i < store->count; i++)
		count += store->file[i].maker == maker;
	return count;
}

/* Whether the descriptor is a file of turns of this version; another vgpud may have made it. */
static bool is_file_of_turns(int fd)
{
	struct vgpu_turns_header header;
	struct stat st;
	int seals = sys_seals(fd);

	return seals >= 0 && (seals & SHARED_FILE_SEALS) == SHARED_FILE_SEALS &&
	       sys_fstat(fd, &st) == 0 && (size_t)st.st_size == BYTES &&
	       pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
	       header.version == VGPU_TURNS_VERSION;
}

bool turns_store_take(struct turns_store *store, const char *uuid, int fd)
{
	if (!*uuid || strlen(uuid) >= VGPU_UUID_LEN || store->count == TURNS_FILES_MAX ||
	    turns_store_find(store, uuid) || !is_file_of_turns(fd) ||
	    remember(&store->file[store->count], uuid, fd) != 0)
		return false;
	store->count++;
	return true;
}

struct turns_file *turns_store_get(struct turns_store *store, const char *uuid, uint64_t maker,
				   struct fault *fault)
{
	struct turns_file *file = turns_store_find(store, uuid);
	int error;

	if (file)
		return file;
	error = store->count < TURNS_FILES_MAX ? make_file(&store->file[store->count], uuid, maker)
					       : -ENOSPC;
	if (error) {
		fault_set(fault, error, "a file of turns for %s cannot be made: %s", uuid,
			  strerror(-error));
		return NULL;
	}
	return &store->file[store->count++];
}

static int open_own(const struct turns_file *file)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	return sys_open(path, O_RDWR, 0);
}

int turns_store_replace(struct turns_file *file)
{
	struct turns_file other;
	int error = make_file(&other, file->uuid, file->maker);

	if (error)
		return error;
	other.moves = file->moves + 1;
	other.moved_ns = clock_now_ns();
	other.corrections = file->corrections;
	drop(file);
	*file = other;
	return 0;
}

int turns_store_open(struct turns_file *file)
{
	int fd = open_own(file);

	if (fd != -EACCES && fd != -EPERM)
		return fd;
	sys_fchmod(file->fd, 0600);
	fd = open_own(file);
	if ((fd != -EACCES && fd != -EPERM) || turns_store_replace(file) != 0)
		return fd;
	say(LOG_WARNING,
	    "a program has made the file of turns of %s unusable: vgpud has replaced it",
	    file->uuid);
	return open_own(file);
}

void turns_store_close(struct turns_store *store)
{
	for (unsigned i = 0; i < store->count; i++)
		drop(&store->file[i]);
	store->count = 0;
}
