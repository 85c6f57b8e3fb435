/* Streams, events, contexts and modules that go while they are measured; several contexts, several
 * devices, and forked children. */
#include "pace.h"

#include <sys/wait.h>

#define ROUNDS 200

static uint64_t ms1 = MS;

/* All is as it was. */
static void goes_on(const char *what)
{
	check_share(what, step_alone, &ms1, 50);
}

TEST(streams)
{
	pace_start("50");
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUstream brief;

		CHECK_OK(cuStreamCreate(&brief, i % 2 ? NON_BLOCKING : 0));
		for (unsigned n = 0; n < i % 5; n++)
			busy(spin, 100000 * (1 + i % 3), brief);
		CHECK_OK(cuStreamDestroy_v2(brief));
	}
	goes_on("after streams");
}

/* The application's own, of which the library has some, too. */
TEST(events)
{
	CUevent kept[32];
	float ms;

	pace_start("50");
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUevent *event = &kept[i % 32];

		if (i >= 32)
			CHECK_OK(cuEventDestroy_v2(*event));
		CHECK_OK(cuEventCreate(event, 0));
		CHECK_OK(cuEventRecord(*event, stream));
		busy(spin, 300000, stream);
	}
	synchronise(stream);
	for (unsigned i = 0; i < 31; i++) /* they are as they were recorded */
		CHECK_OK(cuEventElapsedTime(&ms, kept[i], kept[31]));
	goes_on("after events");
}

/* With work on its way, and things being measured in it. */
TEST(contexts)
{
	pace_start("50");
	for (unsigned i = 0; i < 60; i++) {
		CUcontext brief;
		CUstream its = NULL;
		CUfunction other;

		CHECK_OK(cuCtxCreate_v2(&brief, 0, 0));
		other = spin_load();
		if (i % 2)
			CHECK_OK(cuStreamCreate(&its, NON_BLOCKING));
		for (unsigned n = 0; n < 1 + i % 4; n++)
			busy(other, (1 + i % 3) * 300000, its);
		CHECK_OK(cuCtxDestroy_v2(brief));
		CHECK_OK(cuCtxSetCurrent(context));
		busy(spin, MS, stream);
	}
	goes_on("after contexts");
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	context = cuda_start(0);
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	spin = spin_load();
	goes_on("after a reset");
}

/* A part of the device's multiprocessors, as a context. */
static CUgreenCtx green_make(void)
{
	CUdevResource all, part;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	unsigned groups = 1;

	CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
	CHECK_OK(cuDevResourceGenerateDesc(&desc, &part, 1));
	CHECK_OK(cuGreenCtxCreate(&green, desc, 0, 1));
	return green;
}

/* Theirs have addresses, too, that others have next. */
TEST(green_contexts)
{
	pace_start("50");
	for (unsigned i = 0; i < 60; i++) {
		CUgreenCtx green = green_make();
		CUcontext its;
		CUstream in;

		CHECK_OK(cuCtxFromGreenCtx(&its, green));
		CHECK_OK(cuGreenCtxStreamCreate(&in, green, NON_BLOCKING, 0));
		CHECK_OK(cuCtxPushCurrent_v2(its));
		for (unsigned n = 0; n < 1 + i % 4; n++)
			busy(spin, (1 + i % 3) * 300000, i % 2 ? in : NULL);
		CHECK_OK(cuCtxPopCurrent_v2(&its));
		CHECK_OK(cuGreenCtxDestroy(green));
		busy(spin, MS, stream);
	}
	goes_on("after green contexts");
}

/* A function's address may be another's next. */
TEST(modules)
{
	static const char ptx[] = ".version 7.0\n.entry spin_ns(.param .u64 ns) { ret; }\n";

	pace_start("50");
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUmodule module;
		CUfunction brief;

		CHECK_OK(cuModuleLoadData(&module, ptx));
		CHECK_OK(cuModuleGetFunction(&brief, module, "spin_ns"));
		busy(brief, i % 2 ? 10000 : 2 * MS, stream);
		busy(brief, i % 2 ? 10000 : 2 * MS, stream);
		CHECK_OK(cuModuleUnload(module));
	}
	goes_on("after modules");
}

/* -- several contexts ------------------------------------------------------------------------- */

struct place {
	CUcontext context;
	CUstream stream;
	CUfunction spin;
};

struct places {
	struct place places[2];
	unsigned turn;
};

static void place_make(struct place *place)
{
	CHECK_OK(cuCtxCreate_v2(&place->context, 0, 0));
	CHECK_OK(cuStreamCreate(&place->stream, NON_BLOCKING));
	place->spin = spin_load();
}

static uint64_t step_in_places(void *arg)
{
	struct places *places = arg;
	struct place *place = &places->places[places->turn++ % 2];

	CHECK_OK(cuCtxSetCurrent(place->context));
	busy(place->spin, MS, place->stream);
	return MS;
}

/* One quota for both. A sample in one contains the other's kernels, and windows are rarely full:
 * what is delivered is less than the quota, by up to a third as seen. */
TEST(two_contexts)
{
	struct places places = {.turn = 0};
	unsigned attempt = 0;

	pace_start("50");
	place_make(&places.places[0]);
	place_make(&places.places[1]);
	share_of(step_in_places, &places, 200);
	while (!share_is_right("contexts in turns", share_of(step_in_places, &places, 1000), 50, 25,
			       attempt))
		attempt++;
}

/* -- several devices -------------------------------------------------------------------------- */

struct device {
	CUdevice number;
	double quota;
};

static void *launch_there(void *arg)
{
	const struct device *device = arg;
	struct places places = {.turn = 0};
	CUcontext there;

	CHECK_OK(cuDevicePrimaryCtxRetain(&there, device->number));
	CHECK_OK(cuCtxSetCurrent(there));
	places.places[0].context = places.places[1].context = there;
	CHECK_OK(cuStreamCreate(&places.places[0].stream, NON_BLOCKING));
	places.places[1].stream = places.places[0].stream;
	places.places[0].spin = places.places[1].spin = spin_load();
	check_share(device->number ? "the second" : "the first", step_in_places, &places,
		    device->quota);
	return NULL;
}

/* Each has its own, and the general one where it has none. */
TEST(two_devices)
{
	struct device devices[] = {{0, 20}, {1, 70}, {2, 40}};
	pthread_t threads[3];

	env_set("VGPU_SIM_GPUS", "3x80G");
	env_set("CUDA_DEVICE_SM_LIMIT", "40");
	env_set("CUDA_DEVICE_SM_LIMIT_0", "20");
	env_set("CUDA_DEVICE_SM_LIMIT_1", "70");
	CHECK_OK(cuInit(0));
	for (unsigned i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_there, &devices[i]) == 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

#define TURNS       3000
#define IN_TURN     4
#define ROUNDS_MOST 20

struct pair {
	CUcontext context[2];
	CUfunction spin[2];
};

/* One thread launches short kernels to both devices alternately, to the default stream, whose
 * handle is the same on both. Such kernels are charged some at a time. Returns whether each device
 * is charged about the same. */
static bool is_charged_evenly(const struct pair *pair)
{
	int64_t before[2], charged[2];

	for (unsigned d = 0; d < 2; d++)
		before[d] = PEEK(bucket_of(d)->charged);
	for (unsigned n = 0; n < TURNS; n++) {
		for (unsigned d = 0; d < 2; d++) {
			CHECK_OK(cuCtxSetCurrent(pair->context[d]));
			for (unsigned i = 0; i < IN_TURN; i++)
				busy(pair->spin[d], 5000, NULL);
		}
		synchronise(NULL);
	}
	for (unsigned d = 0; d < 2; d++)
		charged[d] = PEEK(bucket_of(d)->charged) - before[d];
	printf("  charged: %.1f ms and %.1f of %.1f\n", (double)charged[0] / 1e6,
	       (double)charged[1] / 1e6, TURNS * IN_TURN * 5000 / 1e6);
	return charged[1] > charged[0] / 2 && charged[1] < charged[0] * 2;
}

/* A device is charged for its own launches. If the host stands still for long before it looks, one
 * device is charged for that as well, so the rounds go on until one is without such a stop. */
TEST(devices_in_turns)
{
	struct pair pair;
	unsigned rounds = 0;

	env_set("VGPU_SIM_GPUS", "2x80G");
	pace_start("90");
	pair = (struct pair){{context}, {spin}};
	CHECK_OK(cuDevicePrimaryCtxRetain(&pair.context[1], 1));
	CHECK_OK(cuCtxSetCurrent(pair.context[1]));
	pair.spin[1] = spin_load();
	while (!is_charged_evenly(&pair))
		CHECK(++rounds < ROUNDS_MOST);
}

/* -- fork ------------------------------------------------------------------------------------- */

/* A child waits for nothing and charges nothing: its CUDA is none. */
TEST(forked)
{
	struct vgpu_region_bucket before;

	pace_start("50");
	share_of(step_alone, &ms1, 200);
	into_debt(0);
	before = *bucket_of(0);
	CHECK_EQUAL(child_of(as_the_driver_says), 0);
	CHECK_EQUAL(PEEK(bucket_of(0)->charged), before.charged);
	out_of_debt(0);
	goes_on("after a fork");
}
