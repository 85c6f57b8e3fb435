/* No limit anywhere: every call is the driver's own, and no file is made. */
#include "cuda_api.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_REGION "/tmp/cudevshr.cache" /* somebody else's, if it is there: not inert then */

static void assert_no_region(void)
{
	DIR *dir = opendir(scene_dir);
	struct dirent *entry;

	CHECK(dir);
	while ((entry = readdir(dir)))
		CHECK(entry->d_name[0] == '.' || !strncmp(entry->d_name, "machine", 7));
	closedir(dir);
	CHECK_EQUAL(access(DEFAULT_REGION, F_OK), -1);
}

static void as_the_driver(void)
{
	CUcontext context;
	CUdeviceptr address = UNTOUCHED;
	size_t available = UNTOUCHED, total = UNTOUCHED, pitch;
	struct figures seen;

	context = cuda_start(0);
	take(10 * GIB);
	CHECK_OK(cuMemAllocPitch_v2(&address, &pitch, 1000, 1000, 4));
	give(address);
	CHECK_OK(cuMemAllocManaged(&address, MIB, 1));
	give(address);
	CHECK_OK(cuDeviceTotalMem_v2(&total, 0));
	CHECK_EQUAL(total, 80 * GIB);
	CHECK_OK(cuMemGetInfo_v2(&available, &total));
	CHECK_EQUAL(total, 80 * GIB);
	CHECK_EQUAL(available, 80 * GIB - outside_used(0));
	CHECK_OK(cuMemGetInfo_v2(NULL, &total));
	refused(80 * GIB);
	CHECK_EQUAL(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	for (int version = 1; version <= 2; version++) {
		seen = inside(0, version);
		CHECK_EQUAL(seen.total, 80 * GIB);
		CHECK_EQUAL(seen.used, outside_used(0));
	}
	assert_no_region();
}

TEST(nothing_set)
{
	as_the_driver();
}

/* Neither by default. */
TEST(no_path_set)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", NULL);
	as_the_driver();
}

TEST(limits_of_zero)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "0");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "0");
	env_set("CUDA_DEVICE_SM_LIMIT", "100");
	as_the_driver();
}

int main(int argc, char **argv)
{
	if (access(DEFAULT_REGION, F_OK) == 0 || access("/usr/local/vgpu", F_OK) == 0)
		SKIP("this machine has a region at a well-known path: it is a tenant");
	return harness_main(argc, argv);
}
