/* A driver that has functions which this library does not know: one line says so, once. */
#include "cuda_api.h"

#include <string.h>

#include "wrapper.h"

static void look_up(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *function = NULL;

	CHECK_CUDA(cuGetProcAddress_v2(name, &function, 13000, 0, &status), CUDA_SUCCESS);
	CHECK(function);
}

static void look_up_known(void)
{
	static const char *const names[] = {"cuMemAlloc", "cuGraphCreate", "cuLibraryLoadData",
					    "cuEventCreate", "cuTexObjectCreate"};

	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		look_up(names[i]);
	look_up("cuStream" WRAPPER_TOMORROW); /* does not sound like memory */
}

static void look_up_unknown(void)
{
	look_up_known();
	for (unsigned i = 0; i < 3; i++) {
		look_up("cuMemAlloc" WRAPPER_TOMORROW);
		look_up("cuArrayCreate" WRAPPER_TOMORROW);
	}
}

static void start(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	env_set("LIBCUDA_LOG_LEVEL", "2");
}

TEST(known)
{
	struct said said;

	start();
	said = member_listen(look_up_known);
	CHECK_EQUAL(said.status, 0);
	CHECK(!strstr(said.err, "newer"));
}

TEST(unknown)
{
	struct said said;
	const char *line;

	start();
	said = member_listen(look_up_unknown);
	CHECK_EQUAL(said.status, 0);
	line = strstr(said.err, "cuMemAlloc" WRAPPER_TOMORROW);
	CHECK(line && strstr(line, "newer than this library"));
	CHECK(!strstr(line + strlen("cuMemAlloc" WRAPPER_TOMORROW), WRAPPER_TOMORROW));
}
