/* Which GPUs are cut, whether the slices fit, and the IDs of devices. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "size.h"
#include "unit.h"

static const struct gpus gpus = {
	.count = 3,
	.gpu = {{.uuid = "GPU-a", .index = 0, .total_bytes = 80 * GIB},
		{.uuid = "GPU-b", .index = 2, .total_bytes = 80 * GIB},
		{.uuid = "GPU-c", .index = 3, .total_bytes = 24 * GIB}},
};

static struct config_slice slice_of(const char *first, const char *second)
{
	struct config_slice slice = {
		.resource = "vgpu.dev/s", .name = "s", .memory_bytes = 8 * GIB, .replicas = 3};

	if (first)
		snprintf(slice.device[slice.device_count++], VGPU_UUID_LEN, "%s", first);
	if (second)
		snprintf(slice.device[slice.device_count++], VGPU_UUID_LEN, "%s", second);
	return slice;
}

UNIT_TEST(test_all_gpus_or_those_that_are_named)
{
	struct config_slice all = slice_of(NULL, NULL), some = slice_of("GPU-c", "0"),
			    twice = slice_of("GPU-b", "2");
	struct devices devices;

	assert_int_equal(devices_find(&all, &gpus, &devices, NULL), 0);
	assert_int_equal(devices.gpu_count, 3);
	assert_int_equal(devices_find(&some, &gpus, &devices, NULL), 0);
	assert_int_equal(devices.gpu_count, 2);
	assert_int_equal(devices.gpu[0], 0);
	assert_int_equal(devices.gpu[1], 2);
	assert_int_equal(devices_find(&twice, &gpus, &devices, NULL), 0);
	assert_int_equal(devices.gpu_count, 1);
	assert_int_equal(devices.gpu[0], 1);
}

UNIT_TEST(test_gpus_that_are_not_there_are_an_error)
{
	struct config_slice index = slice_of("1", NULL), uuid = slice_of("GPU-a", "GPU-");
	struct devices devices;
	struct fault fault = {""};

	assert_int_equal(devices_find(&index, &gpus, &devices, &fault), -ENODEV);
	assert_non_null(strstr(fault.text, "\"1\""));
	assert_int_equal(devices_find(&uuid, &gpus, &devices, &fault), -ENODEV);
	assert_non_null(strstr(fault.text, "\"GPU-\""));
}

UNIT_TEST(test_slices_fit_or_do_not)
{
	static struct config config;
	struct fault fault = {""};

	config.slice[config.slice_count++] = slice_of(NULL, NULL);
	assert_int_equal(devices_fit(&config, &gpus, &fault), 0); /* 24 GiB of 24 */
	config.slice[config.slice_count++] = slice_of("GPU-a", NULL);
	assert_int_equal(devices_fit(&config, &gpus, &fault), 0);
	config.slice[1] = slice_of("3", NULL);
	assert_int_equal(devices_fit(&config, &gpus, &fault), -ENOSPC);
	assert_non_null(strstr(fault.text, "GPU 3"));
	config.slice[1].memory_bytes = 0; /* unlimited is no sum */
	assert_int_equal(devices_fit(&config, &gpus, &fault), 0);
	config.slice[1].memory_bytes = UINT64_MAX / 2;
	assert_int_equal(devices_fit(&config, &gpus, &fault), -ENOSPC);
}

UNIT_TEST(test_ids_come_back)
{
	struct config_slice slice = slice_of(NULL, NULL);
	struct devices devices;
	char id[DEVICES_ID_LEN];

	devices_find(&slice, &gpus, &devices, NULL);
	devices_id(&devices, 1, 2, id);
	assert_string_equal(id, "GPU-b::s::2");
	for (unsigned gpu = 0; gpu < gpus.count; gpu++)
		for (unsigned replica = 0; replica < slice.replicas; replica++) {
			unsigned of = 99, number = 99;

			devices_id(&devices, gpu, replica, id);
			assert_true(devices_parse(&devices, id, &of, &number));
			assert_int_equal(of, gpu);
			assert_int_equal(number, replica);
		}
}

UNIT_TEST(test_other_ids_are_none)
{
	static const char *const others[] = {
		"",
		":",
		"::",
		"GPU-a",
		"GPU-a::s",
		"GPU-a::s::",
		"GPU-a::s::3",
		"GPU-a::s::-1",
		"GPU-a::s:: 1",
		"GPU-a::s::01",
		"GPU-a::s::1 ",
		"GPU-a::t::1",
		"GPU-d::s::1",
		"GPU-a:s:1",
		"GPU-a::s::18446744073709551617",
		"xGPU-a::s::1",
	};
	struct config_slice slice = slice_of(NULL, NULL);
	struct devices devices;
	unsigned gpu, replica;

	devices_find(&slice, &gpus, &devices, NULL);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_false(devices_parse(&devices, others[i], &gpu, &replica));
}
