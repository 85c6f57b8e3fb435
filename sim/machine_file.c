/*
 * Attaches a process to the shared state file, and locks it.
 *
 * A process that attaches and gets LOCK_USERS exclusively is alone, and initialises the file. The
 * contents that earlier processes, another version, or a crash in the middle of this have left are
 * overwritten.
 *
 * After fork the child has a copy of the parent's descriptor, which would keep the parent's slot
 * alive. machine_forked closes it. vfork and posix_spawn run no fork handlers; there, close-on-exec
 * closes it.
 */
#include "machine_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pids.h"

#define MAGIC 0x37656e6968636d76u /* changes with the layout */

struct machine *machine;
int machine_fd = -1;
struct slot *machine_own;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int machine_byte_lock(int fd, short type, off_t byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

static int lock_wait(int fd, short type, off_t byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	while (fcntl(fd, F_OFD_SETLKW, &lock)) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

bool machine_byte_held_by_other(int fd, off_t byte)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	/* If the kernel does not say, the process counts as living. */
	return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

void machine_lock(void)
{
	pthread_mutex_lock(&mutex);
	lock_wait(machine_fd, F_WRLCK, LOCK_MUTEX);
}

void machine_unlock(void)
{
	machine_byte_lock(machine_fd, F_UNLCK, LOCK_MUTEX);
	pthread_mutex_unlock(&mutex);
}

/* Maps the file. The caller is alone with it, or other processes have made it for the same GPUs. */
static int open_locked(int fd, const struct sim_config *config)
{
	bool alone = !machine_byte_lock(fd, F_WRLCK, LOCK_USERS);
	struct stat status;

	if (alone && (ftruncate(fd, 0) || ftruncate(fd, sizeof *machine)))
		return -errno;
	if (fstat(fd, &status))
		return -errno;
	if (status.st_size != sizeof *machine)
		return -EBUSY;
	struct machine *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (alone) {
		memcpy(map->total_bytes, config->total_bytes, sizeof map->total_bytes);
		atomic_store(&map->magic, MAGIC);
	}
	if (atomic_load(&map->magic) != MAGIC ||
	    memcmp(map->total_bytes, config->total_bytes, sizeof map->total_bytes)) {
		munmap(map, sizeof *map);
		return -EBUSY;
	}
	machine = map;
	/* This replaces the exclusive lock in one step. */
	return machine_byte_lock(fd, F_RDLCK, LOCK_USERS);
}

static int attach_locked(const struct sim_config *config)
{
	int fd = pids_file_open(config->state_path);

	if (fd < 0)
		return fd;
	int result = lock_wait(fd, F_WRLCK, LOCK_MUTEX);
	if (!result)
		result = open_locked(fd, config);
	if (result) {
		close(fd); /* drops its locks */
		return result;
	}
	machine_byte_lock(fd, F_UNLCK, LOCK_MUTEX);
	machine_fd = fd;
	return 0;
}

int machine_attach(void)
{
	const struct sim_config *config = config_get();
	int result = 0;

	if (!config)
		return -EINVAL;
	pthread_mutex_lock(&mutex);
	if (machine_fd < 0)
		result = attach_locked(config);
	pthread_mutex_unlock(&mutex);
	if (result == -EBUSY)
		fprintf(stderr,
			"vgpu-sim: %s is in use for other GPUs; set VGPU_SIM_STATE to another "
			"path\n",
			config->state_path);
	else if (result && result != -EMFILE) /* the program's own limit: a driver prints nothing */
		fprintf(stderr, "vgpu-sim: %s: %s\n", config->state_path, strerror(-result));
	return result;
}

void machine_detach(void)
{
	pthread_mutex_lock(&mutex);
	if (machine_fd >= 0) {
		munmap(machine, sizeof *machine);
		close(machine_fd);
	}
	machine = NULL;
	machine_fd = -1;
	machine_own = NULL;
	machine_objects_forget();
	pthread_mutex_unlock(&mutex);
}

void machine_forked(void)
{
	/* Another thread of the parent may have held the mutex. */
	pthread_mutex_init(&mutex, NULL);
	if (machine_fd >= 0)
		close(machine_fd);
	if (machine)
		munmap(machine, sizeof *machine);
	pids_forked();
	machine = NULL;
	machine_fd = -1;
	machine_own = NULL;
	machine_objects_forget();
}
