/*
 * A library's constructor makes a context, while another thread makes one: the constructor's thread
 * has the loader's lock. So the thread with the lock of contexts must not load a
 * library, nor start NVML, which calls the loader.
 */
#include "parked.h"

#include <dlfcn.h>
#include <unistd.h>

#define HANGS_S 60

static void *load(void *none)
{
	CHECK(dlopen(getenv("CONSTRUCTING"), RTLD_NOW));
	return none;
}

static void *make(void *none)
{
	CUcontext context = NULL;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	return none;
}

/* The context may not fit, by what others have of the device: only NVML can tell. */
static void be_neighbour(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("VGPU_SIM_PARK", NULL);
	cuda_start(0);
	take(GIB);
	say_ready(wire);
}

TEST(in_a_constructor)
{
	struct member neighbour;
	pthread_t makes, loads;

	alarm(HANGS_S);
	park("cuCtxCreate_v2@1");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	neighbour = member_begin(be_neighbour);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "600m");
	CHECK_OK(cuInit(0));
	CHECK(pthread_create(&makes, NULL, make, NULL) == 0);
	wait_parked();
	CHECK(pthread_create(&loads, NULL, load, NULL) == 0);
	sleep_ms(50); /* it has the loader's lock */
	go_on();
	CHECK(pthread_join(makes, NULL) == 0);
	CHECK(pthread_join(loads, NULL) == 0);
	member_finish(&neighbour);
}
