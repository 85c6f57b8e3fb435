/* Shared by the tests of the account: a slice with a region of its own. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"
#include "allocation.h"
#include "context.h"
#include "size.h"
#include "unit.h"

#define UNUSED __attribute__((unused))

#define KIB  ((uint64_t)1024)
#define BASE ((uint64_t)0x7f0000000000) /* an address at which a granule begins */

static char quota_dir[64];
static struct slice quota_slice;

UNUSED static int slice_make(void **state)
{
	(void)state;
	memset(&quota_slice, 0, sizeof(quota_slice));
	strcpy(quota_dir, "/tmp/vgpu-quota-XXXXXX");
	if (!mkdtemp(quota_dir))
		return -1;
	snprintf(quota_slice.region_path, sizeof(quota_slice.region_path), "%s/slice.cache",
		 quota_dir);
	quota_slice.configured = true;
	return 0;
}

UNUSED static int slice_remove(void **state)
{
	(void)state;
	quota_forked();
	unlink(quota_slice.region_path);
	rmdir(quota_dir);
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    slice_make
#define UNIT_TEAR_DOWN slice_remove

/* Attaches two GPUs with a memory limit of limit_bytes each. */
UNUSED static void attach(uint64_t limit_bytes)
{
	struct quota_gpu gpus[2] = {{"GPU-a", 0}, {"GPU-b", 1}};
	struct fault fault = {""};

	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		quota_slice.env.memory_bytes[i] = limit_bytes;
	assert_int_equal(quota_attach(&quota_slice, gpus, 2, &fault), 0);
	assert_true(quota_attached());
}

/* The same, with a new region, for a test that is attached. */
UNUSED static void attach_anew(uint64_t limit_bytes)
{
	quota_forked();
	unlink(quota_slice.region_path);
	attach(limit_bytes);
}

UNUSED static int attached_make(void **state)
{
	if (slice_make(state))
		return -1;
	attach(GIB);
	return 0;
}

UNUSED static struct vgpu_hami_usage own_usage(int device)
{
	return region_own_usage(&account_region, (unsigned)device);
}

/* The bytes of data that this process is charged on GPU 0. */
UNUSED static uint64_t data(void)
{
	return own_usage(0).data;
}

/* Whether no change of the account is in progress. */
UNUSED static bool is_quiet(void)
{
	return account_stamp() != UINT64_MAX;
}

/* GPU 0 is charged so many bytes of data, and no change is in progress. */
UNUSED static void assert_rests_at(uint64_t data_bytes)
{
	assert_int_equal(data(), data_bytes);
	assert_true(is_quiet());
}

UNUSED static long fail_mmap(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

/* A child that is forked, and is expected to return 0 from the function. */
UNUSED static void assert_in_child(int (*child)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(100);
		quota_forked();
		_exit(child());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define THREADS 4

/* Calls the function in THREADS threads, which are given their numbers. Each returns NULL. */
UNUSED static void assert_in_threads(void *(*work)(void *number))
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *wrong = NULL;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
}

UNUSED static struct block block_at(uint64_t address, uint64_t size_bytes, bool managed)
{
	return (struct block){
		.address = address, .size_bytes = size_bytes, .context = 1, .managed = managed};
}

/* Makes all calls of a context that takes 100 MiB. */
UNUSED static void make_context(uint64_t context)
{
	struct quota_context_reservation reservation;

	assert_int_equal(quota_context_reserve(0, MIB, &reservation), 0);
	assert_int_equal(quota_context_settle(&reservation, context, 100 * MIB, 0), 0);
}

/* Makes all calls of an allocation that succeeds. */
UNUSED static void allocate_as(bool managed, uint64_t address, uint64_t size_bytes)
{
	struct block block = block_at(address, size_bytes, managed);
	struct quota_reservation reservation;

	assert_int_equal(quota_reserve(0, managed, size_bytes, &reservation), 0);
	assert_int_equal(quota_settle(&reservation, &block), 0);
}

UNUSED static void allocate(uint64_t address, uint64_t size_bytes)
{
	allocate_as(false, address, size_bytes);
}

UNUSED static void release(uint64_t address)
{
	struct quota_release going;

	assert_true(quota_free_begin(address, &going));
	quota_free_commit(&going);
}
