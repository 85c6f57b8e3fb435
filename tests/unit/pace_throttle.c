/* What the region and the trace say of how a device was throttled. */
#include "pace_fake.h"
#include "trace_file.h"

static const struct vgpu_region_device *device_of(int device)
{
	return &region.file->own.device[device];
}

/* A program that wants all of the device: launches go in bursts, and wait in between. */
UNIT_TEST(test_counted)
{
	static const unsigned quotas[] = {20, 50, 80};
	const struct kernel kernel = {.function = 1, .ns = 2 * MS};

	for (size_t q = 0; q < sizeof(quotas) / sizeof(*quotas); q++) {
		const struct vgpu_region_device *device;
		uint64_t began_ns, held = 0;
		double shut;

		joined(quotas[q]);
		device = device_of(0);
		launch_timed(&kernel);
		began_ns = time_ns;
		while (time_ns - began_ns < 5 * NS_PER_S)
			held += launch_timed(&kernel) > MS;
		shut = 100.0 * (double)device->throttled_ns / (double)(time_ns - began_ns);
		harness_note("quota %u: shut %llu times, %.1f %%, held %llu of %llu", quotas[q],
			     (unsigned long long)device->throttled, shut,
			     (unsigned long long)device->held, (unsigned long long)held);
		assert_true(device->throttled > 10);
		assert_true(device->held > 10);
		assert_true(shut > 0 && shut < 100);
		assert_int_equal(device_of(1)->throttled, 0);
		assert_int_equal(device_of(1)->throttled_ns, 0);
		assert_int_equal(device_of(1)->held, 0);
		left();
	}
}

/* Of a program that wants less than its quota no launch is held. */
UNIT_TEST(test_none)
{
	const struct kernel kernel = {.function = 1, .ns = MS / 10};
	uint64_t began_ns;

	joined(50);
	began_ns = time_ns;
	while (time_ns - began_ns < NS_PER_S) {
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
		pass(MS);
	}
	assert_int_equal(device_of(0)->throttled, 0);
	assert_int_equal(device_of(0)->throttled_ns, 0);
	assert_int_equal(device_of(0)->held, 0);
}

/* -- the trace -------------------------------------------------------------------------------- */

static const struct trace_file *trace_of(void)
{
	static struct trace_file file;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s" TRACE_SUFFIX "%d", here.path, region.slot);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(sys_read(fd, &file, sizeof(file)), sizeof(file));
	close(fd);
	unlink(path);
	return &file;
}

/* What is decided of a program that is held, in order and with its time; and the sum of what was
 * charged is the region's. */
UNIT_TEST(test_traced)
{
	unsigned count[TRACE_PACE_KINDS_END] = {0};
	const struct kernel kernel = {.function = 1, .ns = 2 * MS};
	const struct vgpu_region_device *device;
	const struct trace_file *file;
	int64_t charged = 0, corrected = 0, shut_ns = 0;

	setenv("VGPU_TRACE", "pace", 1);
	joined(50);
	unsetenv("VGPU_TRACE");
	device = device_of(0);
	share_of(&kernel, 1, NS_PER_S);
	file = trace_of();
	assert_in_range(file->next, 100, TRACE_ENTRIES);
	for (unsigned i = 0; i < file->next; i++) {
		const struct trace_entry *entry = &file->entry[i];

		assert_in_range(entry->kind, 1, TRACE_PACE_KINDS_END - 1);
		assert_int_equal(entry->device, 0);
		assert_true(!i || entry[-1].at <= entry->at);
		count[entry->kind]++;
		if (entry->kind == TRACE_CHARGED || entry->kind == TRACE_CHARGED_LATER ||
		    entry->kind == TRACE_CHARGED_MANY)
			charged += entry->a;
		if (entry->kind == TRACE_CORRECTED)
			corrected += entry->a;
		if (entry->kind == TRACE_BUCKET_OPENED)
			shut_ns += entry->a;
	}
	assert_true(charged == device->bucket.charged);
	assert_true(corrected == device->bucket.corrected);
	assert_true((uint64_t)shut_ns == device->throttled_ns);
	assert_int_equal(count[TRACE_BUCKET_SHUT], device->throttled);
	assert_int_equal(count[TRACE_HELD_SHUT] + count[TRACE_HELD_CHARGING], device->held);
	assert_true(count[TRACE_HELD_UNKNOWN] > 0);
	assert_int_equal(count[TRACE_RELEASED],
			 count[TRACE_HELD_SHUT] + count[TRACE_HELD_CHARGING] +
				 count[TRACE_HELD_UNKNOWN] + count[TRACE_HELD_OVERDUE]);
	assert_true(count[TRACE_SAMPLE] > 0 && count[TRACE_WINDOW] > 0);
}
