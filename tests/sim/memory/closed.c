/* A slice that cannot be enforced is refused: CUDA fails, one line says why, the program lives. */
#include "cuda_api.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Everything that a program might go on with. */
static void try_everything(void)
{
	CUcontext context;
	CUdeviceptr address = UNTOUCHED;
	size_t a, b;

	for (unsigned round = 0; round < 2; round++) {
		CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
		CHECK(cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS);
		CHECK(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
		CHECK(cuMemAlloc_v2(&address, MIB) != CUDA_SUCCESS);
		CHECK(cuMemAllocManaged(&address, MIB, 1) != CUDA_SUCCESS);
		CHECK(cuMemAllocPitch_v2(&address, &a, 10, 10, 4) != CUDA_SUCCESS);
		CHECK(cuMemFree_v2(0x1000) != CUDA_SUCCESS);
		CHECK(cuMemGetInfo_v2(&a, &b) != CUDA_SUCCESS);
		CHECK(cuDeviceTotalMem_v2(&a, 0) != CUDA_SUCCESS);
		CHECK_EQUAL(address, UNTOUCHED);
	}
}

/* The line names what is wrong, and where. */
static void assert_refused(const char *what, const char *where)
{
	struct said said = member_listen(try_everything);

	if (said.status || lines_in(said.err) != 1 || strncmp(said.err, "vgpu: ", 6))
		fprintf(stderr, "%s", said.err);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(strlen(said.out), 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strncmp(said.err, "vgpu: ", 6) == 0);
	CHECK(strstr(said.err, what));
	CHECK(strstr(said.err, where));
	CHECK(strchr(said.err, ';') || strstr(said.err, ": write")); /* and what to do */
	CHECK_EQUAL(outside_used(0), 0);
}

TEST(unparsable)
{
	static const char *const values[] = {
		"banana", "-1", "0x10", "1 2", "g", "1gg", "1.2.3g", "1e9", "99999999999999999999"};

	for (unsigned i = 0; i < sizeof(values) / sizeof(*values); i++) {
		env_set("CUDA_DEVICE_MEMORY_LIMIT", values[i]);
		assert_refused(values[i], "CUDA_DEVICE_MEMORY_LIMIT");
	}
}

TEST(unparsable_of_one_gpu)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_3", "1x"); /* of a GPU that there is not */
	assert_refused("1x", "CUDA_DEVICE_MEMORY_LIMIT_3");
}

TEST(unparsable_cores)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	env_set("CUDA_DEVICE_SM_LIMIT", "half");
	assert_refused("half", "CUDA_DEVICE_SM_LIMIT");
}

static void make_noise(size_t bytes)
{
	FILE *file = fopen(scene_path("slice.cache"), "w");

	CHECK(file);
	for (size_t i = 0; i < bytes; i++)
		fputc((int)(i * 2654435761u >> 7 & 0xfe) | 1, file);
	CHECK(fclose(file) == 0);
}

TEST(noise)
{
	static const size_t sizes[] = {1, 4096, sizeof(struct vgpu_hami_region),
				       sizeof(struct vgpu_region_file), 3000000};

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct stat st;

		make_noise(sizes[i]);
		assert_refused("slice.cache", scene_dir);
		CHECK_EQUAL(stat(scene_path("slice.cache"), &st), 0);
		CHECK_EQUAL(st.st_size, sizes[i]); /* it is not ours: left alone */
	}
}

TEST(noise_without_limit)
{
	make_noise(5000);
	assert_refused("slice.cache", scene_dir);
}

TEST(directory)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	CHECK_EQUAL(mkdir(scene_path("slice.cache"), 0777), 0);
	assert_refused("directory", "slice.cache");
}

TEST(no_directory)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("not/there/slice.cache"));
	assert_refused("no such", "not/there/slice.cache");
}

TEST(symbolic_link)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	CHECK_EQUAL(symlink(scene_path("elsewhere"), scene_path("slice.cache")), 0);
	assert_refused("link", "slice.cache");
	CHECK_EQUAL(access(scene_path("elsewhere"), F_OK), -1);
}

TEST(no_policy)
{
	env_set("VGPU_POLICY", scene_path("policy"));
	assert_refused("VGPU_POLICY", scene_path("policy"));
}

TEST(bad_policy)
{
	CHECK_EQUAL(mkdir(scene_path("policy"), 0755), 0);
	scene_write("policy/GPU-51300000-0000-4000-8000-000000000000", "memory = lots\n");
	env_set("VGPU_POLICY", scene_path("policy"));
	assert_refused("lots", "GPU-51300000-0000-4000-8000-000000000000");
}
