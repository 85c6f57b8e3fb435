/* The trace: when there is a file, and what a process writes into it. */
#include <pthread.h>

#include "region_fixture.h"
#include "trace.h"

#define THREADS 4
#define EACH    1000 /* fewer than fill the ring, all threads together */

static struct region region;
static char path[128];

static void begin(const char *value)
{
	struct region_setup setup = setup_from(0, 2, GIB);

	region = (struct region)REGION_CLOSED;
	if (value)
		assert_int_equal(setenv("VGPU_TRACE", value, 1), 0);
	else
		unsetenv("VGPU_TRACE");
	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	snprintf(path, sizeof(path), "%s" TRACE_SUFFIX "%d", here.path, region.slot);
	unsetenv("VGPU_TRACE");
}

static void end(void)
{
	region_close(&region);
	assert_int_equal(trace_subjects, TRACE_UNDECIDED);
	unlink(path);
}

/* The file, whole, as a reader that does not map it has it. */
static const struct trace_file *seen(void)
{
	static struct trace_file file;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(sys_read(fd, &file, sizeof(file)), sizeof(file));
	close(fd);
	return &file;
}

static void check_off(const char *value)
{
	struct stat st;

	begin(value);
	assert_int_equal(trace_subjects, 0);
	trace_write(TRACE_CHARGED, 0, 1, 2);
	trace_call(__func__);
	assert_int_equal(stat(path, &st), -1);
	end();
}

UNIT_TEST(test_off)
{
	check_off(NULL);
	check_off("");
	check_off("pacer");
	check_off("no,pac");
}

UNIT_TEST(test_header)
{
	const struct trace_file *file;

	begin("other,pace");
	file = seen();
	assert_true(file->magic == TRACE_MAGIC);
	assert_int_equal(file->entry_size, 48);
	assert_int_equal(file->entry_count, TRACE_ENTRIES);
	assert_int_equal(file->pid, getpid());
	assert_int_equal(file->slot, region.slot);
	assert_int_equal(file->next, 0);
	end();
}

UNIT_TEST(test_entries)
{
	const struct vgpu_region_bucket *bucket;
	const struct trace_file *file;

	begin("pace");
	bucket = &region.file->own.device[1].bucket;
	trace_write(TRACE_HELD_SHUT, 0, -5, 7);
	trace_write_of(TRACE_BUCKET_SHUT, bucket, -4000000, 0);
	trace_write(TRACE_GANG_CUT, -1, INT64_MAX, INT64_MIN);
	file = seen();
	assert_int_equal(file->next, 3);
	assert_int_equal(file->entry[0].kind, TRACE_HELD_SHUT);
	assert_int_equal(file->entry[0].device, 0);
	assert_int_equal(file->entry[0].lap, 0);
	assert_int_equal(file->entry[0].thread, gettid());
	assert_true(file->entry[0].a == -5 && file->entry[0].b == 7);
	assert_int_equal(file->entry[1].kind, TRACE_BUCKET_SHUT);
	assert_int_equal(file->entry[1].device, 1);
	assert_int_equal(file->entry[2].device, -1);
	assert_true(file->entry[2].a == INT64_MAX && file->entry[2].b == INT64_MIN);
	assert_true(file->begun <= file->entry[0].at);
	assert_true(file->entry[0].at <= file->entry[1].at);
	assert_int_equal(file->entry[3].kind, TRACE_NONE);
	end();
}

UNIT_TEST(test_ring)
{
	const struct trace_file *file;

	begin("pace");
	for (int64_t n = 0; n < 2 * TRACE_ENTRIES + 10; n++)
		trace_write(TRACE_CHARGED, 0, n, 0);
	file = seen();
	assert_int_equal(file->next, 2 * TRACE_ENTRIES + 10);
	assert_int_equal(file->entry[9].lap, 2);
	assert_true(file->entry[9].a == 2 * TRACE_ENTRIES + 9);
	assert_int_equal(file->entry[10].lap, 1);
	assert_true(file->entry[10].a == TRACE_ENTRIES + 10);
	end();
}

static void *writes(void *arg)
{
	for (int64_t n = 0; n < EACH; n++)
		trace_write(TRACE_CHARGED, 0, *(int64_t *)arg, n);
	return NULL;
}

/* Each thread's entries are all there, in its order. */
UNIT_TEST(test_threads)
{
	int64_t number[THREADS], next[THREADS] = {0};
	const struct trace_file *file;
	pthread_t threads[THREADS];

	begin("pace");
	for (int i = 0; i < THREADS; i++) {
		number[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, writes, &number[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	file = seen();
	assert_int_equal(file->next, THREADS * EACH);
	for (int i = 0; i < THREADS * EACH; i++) {
		const struct trace_entry *entry = &file->entry[i];

		assert_int_equal(entry->kind, TRACE_CHARGED);
		assert_true(entry->a >= 0 && entry->a < THREADS);
		assert_true(entry->b == next[entry->a]++);
	}
	end();
}

/* Another process's, of that slot before; and what must not be written through. */
UNIT_TEST(test_in_the_way)
{
	char other[160];
	struct stat st;

	begin("pace");
	trace_write(TRACE_CHARGED, 0, 1, 2);
	trace_forget();
	assert_int_equal(trace_subjects, TRACE_UNDECIDED);
	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	setenv("VGPU_TRACE", "pace", 1);
	trace_begin(region.path, region.slot, region.file->own.device);
	assert_null(trace_fault());
	unsetenv("VGPU_TRACE");
	assert_int_equal(trace_subjects, 1u << TRACE_PACE);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(seen()->next, 0);
	unlink(other);
	end();
}

UNIT_TEST(test_forked)
{
	pid_t child;
	int status;

	begin("pace");
	child = fork();
	if (!child) {
		trace_forget();
		trace_write(TRACE_CHARGED, 0, 3, 4);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(seen()->next, 0);
	trace_write(TRACE_CHARGED, 0, 1, 2);
	assert_int_equal(seen()->next, 1);
	end();
}

static const struct trace_entry *entry_of(const struct trace_file *file, enum trace_kind kind)
{
	for (uint64_t i = 0; i < file->next; i++)
		if (file->entry[i].kind == kind)
			return &file->entry[i];
	return NULL;
}

/* What the ledger charges, refuses and returns, and the call for which it does. */
UNIT_TEST(test_memory)
{
	const struct trace_entry *entry;
	const struct trace_file *file;

	begin("memory");
	trace_call("cuMemAlloc_v2");
	assert_int_equal(region_charge(&region, 1, REGION_DATA, 3 * MIB, GIB), 0);
	assert_int_equal(region_charge(&region, 1, REGION_CONTEXT, GIB, GIB), -EDQUOT);
	trace_call("cuMemFree_v2");
	region_refund(&region, 1, REGION_DATA, MIB);
	trace_write(TRACE_CHARGED, 0, 1, 2); /* of another subject */
	file = seen();
	assert_int_equal(file->next, 3);
	entry = &file->entry[0];
	assert_int_equal(entry->kind, TRACE_CHARGE);
	assert_int_equal(entry->device, 1);
	assert_int_equal(entry->class, 1 + REGION_DATA);
	assert_int_equal(entry->reason, TRACE_NO_REASON);
	assert_true(entry->a == 3 * MIB && entry->b == 3 * MIB && entry->c == GIB);
	assert_string_equal(file->call[entry->call], "cuMemAlloc_v2");
	entry = &file->entry[1];
	assert_int_equal(entry->kind, TRACE_CHARGE_FAILED);
	assert_int_equal(entry->class, 1 + REGION_CONTEXT);
	assert_int_equal(entry->reason, TRACE_REASON_QUOTA);
	assert_true(entry->a == GIB && entry->b == 3 * MIB && entry->c == GIB);
	assert_int_equal(entry->call, file->entry[0].call);
	entry = &file->entry[2];
	assert_int_equal(entry->kind, TRACE_REFUND);
	assert_true(entry->a == MIB && entry->b == 2 * MIB);
	assert_string_equal(file->call[entry->call], "cuMemFree_v2");
	end();
}

/* More calls than there is room for: the later ones have no name. */
UNIT_TEST(test_many_calls)
{
	static char names[TRACE_CALLS + 5][8];
	const struct trace_file *file;

	begin("memory");
	for (int i = 0; i < TRACE_CALLS + 5; i++) {
		snprintf(names[i], sizeof(names[i]), "c%d", i);
		trace_call(names[i]);
		assert_int_equal(region_charge(&region, 0, REGION_DATA, 1, 0), 0);
	}
	file = seen();
	for (int i = 0; i < TRACE_CALLS - 1; i++)
		assert_string_equal(file->call[file->entry[i].call], names[i]);
	for (int i = TRACE_CALLS - 1; i < TRACE_CALLS + 5; i++)
		assert_int_equal(file->entry[i].call, 0);
	assert_string_equal(file->call[0], "");
	end();
}

/* A process dies in the region, and the next one clears its slot. */
UNIT_TEST(test_region)
{
	struct region_setup setup = setup_from(0, 2, GIB);
	struct region keeper = REGION_CLOSED; /* else the region is made anew */
	const struct trace_entry *entry;
	const struct trace_file *file;
	pid_t child;

	assert_int_equal(open_claimed(here.path, &setup, &keeper), 0);
	trace_forget();
	child = fork();
	if (!child) {
		struct region other = REGION_CLOSED;

		if (open_claimed(here.path, &setup, &other) ||
		    region_charge(&other, 0, REGION_DATA, 7 * MIB, 0))
			_exit(1);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	begin("region");
	assert_true(region_reap(&region) >= 0);
	region_begin_exit(&region);
	file = seen();
	entry = entry_of(file, TRACE_CLEARED);
	assert_non_null(entry);
	assert_true(entry->b == child && entry->c == 7 * MIB);
	entry = entry_of(file, TRACE_JOINED);
	assert_non_null(entry);
	assert_true(entry->a == region.slot && entry->b == 2);
	entry = entry_of(file, TRACE_EXITING);
	assert_non_null(entry);
	assert_true(entry->a == region.slot);
	end();
	region_close(&keeper);
}
