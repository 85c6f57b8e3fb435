/*
 * The region is taken away from under a program that uses it: it is told so, once, gets no more
 * memory, gives back what it has, and goes on; and no new region is made while it does.
 */
#include "cuda_api.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

static const char *region_path(void)
{
	return scene_path("slice.cache");
}

/* Longer than the library goes without a look at the file. */
static void let_time_pass(void)
{
	sleep_ms(60);
}

/* -- ways to take it away --------------------------------------------------------------------- */

static void delete (void)
{
	CHECK(unlink(region_path()) == 0);
}

static void rename_it(void)
{
	CHECK(rename(region_path(), scene_path("elsewhere")) == 0);
}

static void replace(void)
{
	scene_write("other", "something else");
	CHECK(rename(scene_path("other"), region_path()) == 0);
}

static void empty(void)
{
	CHECK(truncate(region_path(), 0) == 0);
}

static void shorten(void)
{
	CHECK(truncate(region_path(), sizeof(struct vgpu_region_file) - 4096) == 0);
}

static void lengthen(void)
{
	CHECK(truncate(region_path(), sizeof(struct vgpu_region_file) + 1) == 0);
}

static void write_over(char byte)
{
	char page[4096];
	int fd = open(region_path(), O_WRONLY | O_CLOEXEC);

	memset(page, byte, sizeof(page));
	for (size_t at = 0; at < sizeof(struct vgpu_region_file); at += sizeof(page))
		CHECK(write(fd, page, sizeof(page)) == sizeof(page));
	close(fd);
}

static void write_zeros(void)
{
	write_over(0);
}

static void write_noise(void)
{
	write_over('x');
}

static void (*take_away)(void);

#define GONE    "deleted, renamed or replaced"
#define CHANGED "truncated or overwritten"

static const struct way {
	const char *name;
	void (*take)(void);
	const char *what; /* the program is told */
} ways[] = {
	{"deleted", delete, GONE},
	{"renamed", rename_it, GONE},
	{"replaced", replace, GONE},
	{"emptied", empty, CHANGED},
	{"shortened", shorten, CHANGED},
	{"lengthened", lengthen, CHANGED},
	{"overwritten_with_zeros", write_zeros, CHANGED},
	{"overwritten_with_noise", write_noise, CHANGED},
};

/* -- who uses it ------------------------------------------------------------------------------ */

static void go_without(CUdeviceptr held, CUdeviceptr again)
{
	CUdeviceptr address = UNTOUCHED;

	take_away();
	let_time_pass();
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQUAL(cuMemAlloc_v2(&address, MIB), CUDA_ERROR_NOT_PERMITTED);
	CHECK_EQUAL(address, UNTOUCHED);
	if (held) {
		give(held);
		give(again);
	}
	CHECK_OK(cuCtxSynchronize());
}

static void with_memory(void)
{
	CUdeviceptr held;

	cuda_start(0);
	held = take(100 * MIB);
	go_without(held, take(MIB));
}

/* What its context takes is yet to be asked of NVML, and that comes first at the next call. */
static void with_a_context(void)
{
	cuda_start(0);
	go_without(0, 0);
}

static void assert_told(void (*body)(void), const char *what)
{
	struct said said = member_listen(body);

	if (said.status || lines_in(said.err) != 1)
		fprintf(stderr, "status %x: %s", (unsigned)said.status, said.err);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	CHECK(strncmp(said.err, "vgpu: ", 6) == 0);
	CHECK(strstr(said.err, what));
	CHECK(strstr(said.err, region_path()));
	CHECK(strstr(said.err, "start them again"));
	CHECK_SOON_EQUAL(outside_used(0), 0);
}

static void taken(const struct way *way)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	take_away = way->take;
	assert_told(with_memory, way->what);
	unlink(region_path());
	assert_told(with_a_context, way->what);
}

TEST_TABLE(ways, taken);

/* -- somebody who only looks ------------------------------------------------------------------ */

static void use(int wire)
{
	cuda_start(0);
	take(100 * MIB);
	say_ready(wire);
}

static void look(nvmlDevice_t device)
{
	nvmlProcessInfo_t processes[4];
	nvmlMemory_t memory;
	unsigned count = 4;

	CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes),
		    NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
	CHECK_EQUAL(memory.total, 2 * GIB);
}

/* As nvidia-smi does in a slice, with long pauses. */
static void looks_on(void)
{
	nvmlDevice_t device;

	CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
	look(device);
	take_away();
	let_time_pass();
	look(device);
	look(device);
}

TEST(under_an_onlooker)
{
	static void (*const seen[])(void) = {empty, shorten, delete, write_zeros, write_noise};

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	for (unsigned i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		struct member member;
		struct said said;

		member = member_begin(use);
		take_away = seen[i];
		said = member_listen(looks_on);
		fputs(said.status ? said.err : "", stderr);
		CHECK_EQUAL(said.status, 0);
		member_kill(&member);
		unlink(region_path());
	}
}

/* -- a new one -------------------------------------------------------------------------------- */

static void start(void)
{
	CHECK_OK(cuInit(0));
}

static void start_in_vain(void)
{
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

static void no_other_meanwhile(void (*way)(void), const char *what)
{
	struct member member = member_start(use);
	struct said said;

	hear(member.wire);
	way();
	for (unsigned i = 0; i < 2; i++) {
		said = member_listen(start_in_vain);
		fputs(said.status ? said.err : "", stderr);
		CHECK_EQUAL(said.status, 0);
		CHECK_EQUAL(lines_in(said.err), 1);
		CHECK(strstr(said.err, what));
	}
	member_kill(&member);
	said = member_listen(start);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 0);
}

TEST(no_other_while_used)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	no_other_meanwhile(delete, "was deleted while process");
	no_other_meanwhile(rename_it, "was renamed to");
	no_other_meanwhile(empty, "was emptied while processes");
}
