/*
 * CUDA_VISIBLE_DEVICES: which GPUs a process sees, under which numbers; and what a GPU says of
 * itself.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>

#define UUID "GPU-51300000-0000-4000-8000-00000000000"

/* `gpus` has a digit for each device that is to be seen: the GPU that it is; "!" for a list that
 * fails cuInit. Each but those with three GPUs was answered so by a driver of version 580. */
struct visible_case {
	const char *list, *gpus;
};

static void sees(void *argument)
{
	const struct visible_case *wanted = argument;
	int count, wanted_count = (int)strlen(wanted->gpus);
	CUuuid uuid;

	setenv("CUDA_VISIBLE_DEVICES", wanted->list, 1);
	if (!wanted_count || *wanted->gpus == '!') {
		CHECK_EQUAL(cuInit(0),
			    wanted_count ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NO_DEVICE);
		CHECK_EQUAL(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
		return;
	}
	CHECK_OK(cuInit(0));
	CHECK_OK(cuDeviceGetCount(&count));
	CHECK_EQUAL(count, wanted_count);
	for (int i = 0; i < count; i++) {
		CHECK_OK(cuDeviceGetUuid_v2(&uuid, i));
		CHECK_EQUAL(uuid.bytes[15], wanted->gpus[i] - '0');
	}
	CHECK_EQUAL(cuDeviceGetUuid(&uuid, count), CUDA_ERROR_INVALID_DEVICE);
}

/* A cuInit that failed reads it again, one that succeeded does not. */
static void again(void *argument)
{
	struct visible_case none = {"", ""}, one = {"1", "1"};
	int count;

	(void)argument;
	sees(&none);
	sees(&one);
	setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
	CHECK_OK(cuInit(0));
	CHECK_OK(cuDeviceGetCount(&count));
	CHECK_EQUAL(count, 1);
}

/* What is taken through a number is taken from the GPU that it means. */
static void takes(void *argument)
{
	CUdeviceptr p;
	size_t total;
	char bus[16];
	int value;
	CUdevice device;

	(void)argument;
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p, GIB));
	CHECK_EQUAL(selftest_used(2), CONTEXT + FIRST + GIB);
	CHECK_EQUAL(selftest_used(0), 0);
	CHECK_OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK_EQUAL(total, 16 * GIB);
	CHECK_OK(cuDeviceTotalMem_v2(&total, 1));
	CHECK_EQUAL(total, 80 * GIB);
	CHECK_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
	CHECK(!strcmp(bus, "0000:03:00.0"));
	CHECK_OK(cuDeviceGetByPCIBusId(&device, bus));
	CHECK_EQUAL(device, 0);
	CHECK_EQUAL(cuDeviceGetByPCIBusId(&device, "0000:02:00.0"), CUDA_ERROR_INVALID_DEVICE);
	CHECK_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CHECK_EQUAL(value, 132);
	CHECK_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
				      1));
	CHECK_EQUAL(value, 2048);
}

int main(void)
{
	static const struct visible_case cases[] = {
		/* numbers */
		{"0", "0"},
		{"2,0", "20"},
		{"1,2,0", "120"},
		{"0,7,1", "0"},
		{"3", ""},
		{"0,-1,1", "0"},
		{"-1", ""},
		{"01", "1"},
		{"+1", "1"},
		{"0x1", "0"},
		{"1x", "1"},
		{"0,1x,2", "012"},
		{"0 1", "0"},
		{"0;1", "0"},
		{" 1 , 0 ", "10"},
		{"1\n", "1"},
		{"0,,2", "0"},
		{",0", ""},
		{"0,", "0"},
		{"4294967297", "1"},
		{"99999999999999999999", ""},
		{"1,1,0", "!"},
		{"0,1,1", "!"},
		{"0,7,0", "0"},
		/* neither */
		{"", ""},
		{"NoDevFiles", ""},
		{"all", ""},
		{"GPU", ""},
		/* UUIDs */
		{UUID "1", "1"},
		{UUID "2," UUID "0", "20"},
		{UUID "7", ""},
		{UUID "0," UUID "7," UUID "1", "0"},
		{"GPU-5130", ""}, /* ambiguous */
		{"GPU-", ""},
		{"gpu-51300000-0000-4000-8000-000000000001", ""},
		{"51300000-0000-4000-8000-000000000001", ""},
		{"MIG-51300000-0000-4000-8000-000000000001", "1"},
		{UUID "10", "1"}, /* a character more */
		{" " UUID "1", ""},
		{UUID "1, " UUID "0", "1"},
		{UUID "1 ," UUID "0", "10"},
		{UUID "1," UUID "1", "!"},
		/* the first entry says which kind it is */
		{UUID "2,0", "2"},
		{"0," UUID "2", "0"},
	};

	selftest_begin("80G,24G,16G");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct visible_case wanted = cases[i];

		selftest_child_run(sees, &wanted);
	}
	selftest_child_run(again, NULL);
	selftest_child_run(takes, NULL);
	setenv("VGPU_SIM_GPUS", "1x80G", 1);
	struct visible_case prefix = {"GPU-5130", "0"};
	selftest_child_run(sees, &prefix);
	return 0;
}
