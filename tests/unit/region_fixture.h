/*
 * Shared by the tests of the region: setups and child processes. Each test has a directory of
 * its own. A child never returns into cmocka: it uses CHECK, which ends it with 1.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "departure.h"
#include "note.h"
#include "place.h"
#include "region.h"
#include "size.h"
#include "sys.h"

/* A setup with the devices GPU-<first>, GPU-<first + 1> … of memory_bytes each. */
UNUSED static struct region_setup setup_from(unsigned first, unsigned count, uint64_t memory_bytes)
{
	struct region_setup setup = {.device_count = count, .priority = 1};

	for (unsigned i = 0; i < count; i++) {
		snprintf(setup.device[i].uuid, VGPU_UUID_LEN, "GPU-%u", first + i);
		setup.device[i].memory_bytes = memory_bytes;
		setup.device[i].cores_pct = 50;
	}
	return setup;
}

UNUSED static struct region_setup setup_of(uint64_t memory_bytes)
{
	return setup_from(0, 1, memory_bytes);
}

/* The same, as most tests want it. */
static const struct region_setup one_gib = {
	.device_count = 1,
	.priority = 1,
	.device = {{.uuid = "GPU-0", .memory_bytes = GIB, .cores_pct = 50}},
};

UNUSED static int open_claimed(const char *path, const struct region_setup *setup,
			       struct region *ret_region)
{
	struct fault fault = {""};
	int error = region_open(path, setup, ret_region, &fault);

	if (!error)
		error = region_claim(ret_region, &fault);
	if (error)
		fprintf(stderr, "%s: %s (%d)\n", path, fault.text, error);
	return error;
}

/* Opens the region of the test, with a slot of its own. */
UNUSED static void claim(struct region *ret_region)
{
	assert_int_equal(open_claimed(here.path, &one_gib, ret_region), 0);
}

UNUSED static struct region claimed(void)
{
	struct region region = REGION_CLOSED;

	claim(&region);
	return region;
}

UNUSED static void say_line(void *arg, const char *line)
{
	fprintf(stderr, "%s: %s\n", (const char *)arg, line);
}

UNUSED static unsigned count_wrong(struct region *region)
{
	return region_check(region, say_line, (void *)(uintptr_t) "region_check");
}

static char checked_lines[4096];

static void keep_line(void *arg, const char *line)
{
	(void)arg;
	strncat(checked_lines, line, sizeof(checked_lines) - strlen(checked_lines) - 2);
	strcat(checked_lines, "\n");
}

/* At least one and at most `most` things are wrong, and the check says so in these words. */
UNUSED static void assert_wrong(struct region *region, unsigned most, const char *words)
{
	unsigned count;

	checked_lines[0] = '\0';
	count = region_check(region, keep_line, NULL);
	if (count < 1 || count > most || !strstr(checked_lines, words))
		fail_msg("%u lines with \"%s\": \"%s\"", count, words, checked_lines);
}

/* The same with that value in the field. With the former one, nothing is wrong. */
#define ASSERT_SEEN(region, most, field, value, words)    \
	do {                                              \
		__typeof__(field) was_ = (field);         \
		(field) = (__typeof__(field))(value);     \
		assert_wrong(region, most, words);        \
		(field) = was_;                           \
		assert_int_equal(count_wrong(region), 0); \
	} while (0)

/* -- children --------------------------------------------------------------------------------- */

#define DEPARTURES 64 /* children at a time */

static struct {
	pid_t pid;
	int fd;
} departures[DEPARTURES];

static void departure_note(pid_t pid, int fd)
{
	for (unsigned i = 0; i < DEPARTURES; i++)
		if (!departures[i].pid) {
			departures[i].pid = pid;
			departures[i].fd = fd;
			return;
		}
	close(fd);
}

/* Starts a child that calls body and exits with 0. It dies with the test. */
UNUSED static pid_t spawn(void (*body)(void *arg), void *arg)
{
	int departure = departure_prepare();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		departure_begin(departure);
		body(arg);
		_exit(0);
	}
	departure_note(pid, departure);
	return pid;
}

/* Call it after waitpid(2). It waits until the kernel has removed the child's memory too. */
UNUSED static void see_off(pid_t pid)
{
	for (unsigned i = 0; i < DEPARTURES; i++)
		if (departures[i].pid == pid) {
			departure_wait(departures[i].fd);
			departures[i].pid = 0;
		}
}

UNUSED static int reap_status(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	see_off(pid);
	return status;
}

UNUSED static void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	reap_status(pid);
}

/* Maps zeroed memory that children share with the test. */
UNUSED static void *shared_memory(size_t len)
{
	void *addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (addr == MAP_FAILED)
		abort();
	return addr;
}

#define FLAG_SET(flag)  __atomic_store_n(&(flag), 1, __ATOMIC_SEQ_CST)
#define FLAG_READ(flag) __atomic_load_n(&(flag), __ATOMIC_SEQ_CST)

/* Even on a busy machine, an event that has not happened by then never will. */
#define LONG_MS 100000

/* Waits up to `ms` milliseconds. Returns whether the value has reached at_least. */
UNUSED static int reached(const uint64_t *value, uint64_t at_least, unsigned ms)
{
	uint64_t end = clock_now_ns() + ms * NS_PER_MS;

	while (__atomic_load_n(value, __ATOMIC_SEQ_CST) < at_least) {
		if (clock_now_ns() > end)
			return 0;
		usleep(200);
	}
	return 1;
}
