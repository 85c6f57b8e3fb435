/*
 * File descriptors that keep memory: a file of the test's stands for the driver's, and a descriptor
 * of it for exported memory.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region_internal.h"
#include "region_share_fixture.h"

static char driver_path[256];

/* As the driver exports: an open file of its own. */
static int new_descriptor(void)
{
	int fd = open(driver_path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* The driver's file, which every process has open. */
static int begin(void)
{
	int fd;

	snprintf(driver_path, sizeof(driver_path), "%s.driver", here.path);
	fd = open(driver_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	make_slots();
	return fd;
}

static void clock_step(void)
{
	sys_sleep_ns(NS_PER_S + 20 * NS_PER_MS);
}

static void end(int driver)
{
	assert_int_equal(unlink(driver_path), 0);
	close(driver);
	close_slots();
}

UNIT_TEST(test_left)
{
	struct region_descriptors first = {0}, second = {0};
	int driver = begin(), fd = new_descriptor(), again = new_descriptor(), copy, other;

	assert_int_equal(region_descriptor_mark(fd, &first), 0);
	assert_true(region_is_descriptor_key(first.key));
	other = new_descriptor();
	assert_int_equal(region_descriptor_mark(other, &second), 0);
	assert_true(second.key != first.key);
	assert_int_equal(region_descriptor_mark(again, &first), 0);
	copy = dup(fd);
	assert_int_equal(region_descriptors_left(&regions[0], &first), 1);
	close(fd);
	assert_int_equal(region_descriptors_left(&regions[0], &first), 1);
	close(again);
	assert_int_equal(region_descriptors_left(&regions[0], &first), 1);
	close(copy);
	assert_int_equal(region_descriptors_left(&regions[0], &first), 0);
	assert_int_equal(region_descriptors_left(&regions[0], &second), 1);
	close(other);
	assert_int_equal(region_descriptors_left(&regions[0], &second), 0);
	end(driver);
}

static long refused; /* the number of a system call */

static long refuse(long number)
{
	return number == refused ? -EINVAL : 0;
}

/* What cannot be learnt is no "no". */
UNIT_TEST(test_in_doubt)
{
	struct region_descriptors key = {0}, none = {0};
	int driver = begin(), fd = new_descriptor();

	refused = SYS_fcntl;
	sys_fault = refuse;
	assert_int_equal(region_descriptor_mark(fd, &none), -EINVAL);
	sys_fault = NULL;
	assert_int_equal(none.key, 0);
	assert_int_equal(region_descriptor_mark(fd, &key), 0);
	sys_fault = refuse;
	assert_true(region_descriptors_left(&regions[0], &key) < 0);
	refused = SYS_getdents64;
	assert_true(region_descriptors_left(&regions[0], &key) < 0);
	sys_fault = NULL;
	close(fd);
	close(driver);
	assert_true(region_descriptors_left(&regions[0], &key) < 0); /* nobody has the file */
	end(-1);
}

/* A descriptor is known by itself, not by its number or its file. */
UNIT_TEST(test_key)
{
	struct region_descriptors keys[3] = {0};
	int driver = begin(), fds[3], stranger = new_descriptor(), copy;

	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, 3 * UNIT, 0), 0);
	for (unsigned i = 0; i < 3; i++) {
		fds[i] = new_descriptor();
		assert_int_equal(region_descriptor_mark(fds[i], &keys[i]), 0);
		assert_int_equal(region_share_export_descriptors(&regions[0], 1, &keys[i], UNIT),
				 0);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_true(region_descriptor_key(&regions[1], fds[i]) == keys[i].key);
	copy = dup(fds[1]);
	close(fds[1]);
	assert_true(region_descriptor_key(&regions[1], copy) == keys[1].key);
	assert_int_equal(region_descriptor_key(&regions[1], stranger), 0);
	assert_int_equal(sys_mark_file(stranger, 5), 0);
	assert_int_equal(region_descriptor_key(&regions[1], stranger), 0);
	close(copy);
	close(stranger);
	close(fds[0]);
	close(fds[2]);
	end(driver);
}

/* A program can mark a pipe. Opening the pipe again must not wait for a writer. */
UNIT_TEST(test_marked_pipe)
{
	int driver = begin(), fd;
	char path[sizeof(driver_path) + 8];

	snprintf(path, sizeof(path), "%s.pipe", driver_path);
	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(sys_mark_file(fd, 5), 0);
	alarm(60); /* ends the test if it waits */
	assert_int_equal(region_descriptor_key(&regions[1], fd), 0);
	alarm(0);
	close(fd);
	assert_int_equal(unlink(path), 0);
	end(driver);
}

/* A pipe is not opened again in a search for a file: its writer could see a new reader. */
UNIT_TEST(test_search_leaves_pipes)
{
	struct region_descriptors key = {0};
	int driver = begin(), fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(region_descriptor_mark(fds[0], &key), 0);
	assert_int_equal(region_descriptors_left(&regions[0], &key), -ENOENT);
	close(fds[0]);
	close(fds[1]);
	end(driver);
}

/* The driver's files are devices. */
UNIT_TEST(test_device)
{
	struct region_descriptors key = {0};
	int driver = begin(), device = open("/dev/null", O_RDONLY | O_CLOEXEC),
	    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_int_equal(region_descriptor_mark(fd, &key), 0);
	assert_int_equal(region_descriptors_left(&regions[0], &key), 1);
	close(fd);
	assert_int_equal(region_descriptors_left(&regions[0], &key), 0);
	close(device);
	end(driver);
}

/* Kept when it is withdrawn, and by the next slot when its own is over. */
UNIT_TEST(test_kept)
{
	struct region_descriptors key = {0};
	int driver = begin(), fd = new_descriptor();
	unsigned device;
	uint64_t bytes;

	assert_int_equal(region_descriptor_mark(fd, &key), 0);
	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, UNIT, 0), 0);
	assert_int_equal(region_share_export_descriptors(&regions[0], 1, &key, UNIT), 0);
	assert_int_equal(region_share_withdraw(&regions[0], key.key, UNIT), 1);
	assert_int_equal(entries(VGPU_SHARE_KEPT), 1);
	assert_int_equal(region_own_usage(&regions[0], 1).data, 0);
	assert_int_equal(region_own_usage(&regions[0], 1).offset, UNIT);
	assert_false(region_share_look(&regions[0]));
	assert_int_equal(count_wrong(&regions[0]), 0);
	region_forget(&regions[0]);
	assert_false(region_share_look(&regions[1]));
	assert_int_equal(region_own_usage(&regions[1], 1).offset, UNIT);
	assert_int_equal(region_used(&regions[1], 1), UNIT);
	assert_int_equal(count_wrong(&regions[1]), 0);
	assert_int_equal(region_share_import(&regions[2], key.key, &device, &bytes), 1);
	close(fd);
	assert_false(region_share_look(&regions[1]));
	region_share_import_end(&regions[2], key.key);
	assert_true(region_share_look(&regions[1]));
	assert_int_equal(region_used(&regions[1], 1), 0);
	assert_int_equal(entries(VGPU_SHARE_FREE), VGPU_SHARES_MAX);
	end(driver);
}

/* As DMA-BUFs are: of an inode of its own, that nobody can open again. */
static int new_dma_buf(void)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	close(pair[1]);
	return pair[0];
}

/* Two of one piece of memory: /proc/locks tells, once a second. */
UNIT_TEST(test_listed)
{
	struct region_descriptors key = {0};
	int driver = begin(), fds[] = {new_dma_buf(), new_dma_buf()};

	assert_int_equal(region_descriptor_mark(fds[0], &key), 0);
	assert_int_equal(region_charge(&regions[0], 1, REGION_DATA, UNIT, 0), 0);
	assert_int_equal(region_share_export_descriptors(&regions[0], 1, &key, UNIT), 0);
	assert_int_equal(region_descriptor_mark(fds[1], &key), 0);
	assert_int_equal(region_share_export_descriptors(&regions[0], 1, &key, UNIT), 0);
	assert_true(region_descriptors_left(&regions[0], &key) < 0);
	assert_int_equal(region_share_withdraw(&regions[0], key.key, UNIT), 1);
	for (unsigned i = 0; i < 2; i++) {
		clock_step();
		assert_false(region_share_look(&regions[0]));
		assert_int_equal(region_own_usage(&regions[0], 1).offset, UNIT);
		close(fds[i]);
		assert_false(region_share_look(&regions[0])); /* too soon */
	}
	clock_step();
	refused = SYS_read;
	sys_fault = refuse;
	assert_false(region_share_look(&regions[0]));
	sys_fault = NULL;
	clock_step();
	assert_true(region_share_look(&regions[0]));
	assert_int_equal(region_used(&regions[0], 1), 0);
	end(driver);
}
