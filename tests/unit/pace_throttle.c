/* What the region says of how a device was throttled. */
#include "pace_fake.h"

static const struct vgpu_region_device *device_of(int device)
{
	return &region.file->own.device[device];
}

/* A program that wants all of the device: launches go in bursts, and wait in between. */
static void test_counted(void **state)
{
	static const unsigned quotas[] = {20, 50, 80};
	const struct kernel kernel = {.function = 1, .ns = 2 * MS};

	for (size_t q = 0; q < sizeof(quotas) / sizeof(*quotas); q++) {
		const struct vgpu_region_device *device;
		uint64_t began_ns, held = 0;
		double shut;

		joined(state, quotas[q]);
		device = device_of(0);
		launch_timed(&kernel);
		began_ns = time_ns;
		while (time_ns - began_ns < 5 * NS_PER_S)
			held += launch_timed(&kernel) > MS;
		shut = 100.0 * (double)device->throttled_ns / (double)(time_ns - began_ns);
		if (getenv("VERBOSE"))
			fprintf(stderr, "quota %u: shut %llu times, %.1f %%, held %llu of %llu\n",
				quotas[q], (unsigned long long)device->throttled, shut,
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
static void test_none(void **state)
{
	const struct kernel kernel = {.function = 1, .ns = MS / 10};
	uint64_t began_ns;

	joined(state, 50);
	began_ns = time_ns;
	while (time_ns - began_ns < NS_PER_S) {
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
		pass(MS);
	}
	assert_int_equal(device_of(0)->throttled, 0);
	assert_int_equal(device_of(0)->throttled_ns, 0);
	assert_int_equal(device_of(0)->held, 0);
	left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_counted),
		TEST(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
