/* A driver that has functions which this library does not know: one line says so, once. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <string.h>

#include "fixture.h"

/* Of sim/newer-driver.txt. */
#define MEMORY_OF_TOMORROW "cuMemAllocOfTomorrow"
#define ARRAY_OF_TOMORROW  "cuArrayCreateOfTomorrow"
#define STREAM_OF_TOMORROW "cuStreamOfTomorrow" /* does not sound like memory */
#define GRAPHICS_OF_TOMORROW \
	"cuGLMapOfTomorrow" /* sounds like it, and api/symbols has none of these */

static void get_address(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *function = NULL;

	CHECK_OK(cuGetProcAddress_v2(name, &function, 13000, 0, &status));
	CHECK(function);
}

static void find_symbol(const char *name)
{
	CHECK(dlsym(RTLD_DEFAULT, name));
}

static const char *const old_names[] = {"cuMemAlloc", "cuGraphCreate", "cuLibraryLoadData",
					"cuEventCreate", "cuTexObjectCreate"};

static void ask_for_known(void)
{
	CHECK_OK(cuInit(0));
	for (unsigned i = 0; i < sizeof(old_names) / sizeof(*old_names); i++) {
		get_address(old_names[i]);
		find_symbol(old_names[i]);
	}
	get_address(STREAM_OF_TOMORROW);
	get_address(GRAPHICS_OF_TOMORROW);
	find_symbol(STREAM_OF_TOMORROW);
	find_symbol(GRAPHICS_OF_TOMORROW);
	CHECK(!dlsym(RTLD_DEFAULT, "cuMemAllocOfNoDriver"));
}

static void get_addresses_of_unknown(void)
{
	ask_for_known();
	for (unsigned i = 0; i < 3; i++) {
		get_address(MEMORY_OF_TOMORROW);
		get_address(ARRAY_OF_TOMORROW);
	}
}

static void find_unknown_symbols(void)
{
	ask_for_known();
	for (unsigned i = 0; i < 3; i++) {
		find_symbol(MEMORY_OF_TOMORROW);
		find_symbol(ARRAY_OF_TOMORROW);
	}
}

static void start(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	env_set("LIBCUDA_LOG_LEVEL", "2");
}

static void check_said_once(void (*ask)(void))
{
	struct said said = member_listen(ask);
	const char *line;

	CHECK_EQUAL(said.status, 0);
	line = strstr(said.err, MEMORY_OF_TOMORROW);
	CHECK(line && strstr(line, "newer than this library"));
	CHECK(!strstr(line + strlen(MEMORY_OF_TOMORROW), "OfTomorrow"));
}

TEST(known)
{
	struct said said;

	start();
	said = member_listen(ask_for_known);
	CHECK_EQUAL(said.status, 0);
	CHECK(!strstr(said.err, "newer"));
}

TEST(by_address)
{
	start();
	check_said_once(get_addresses_of_unknown);
}

TEST(by_name)
{
	start();
	check_said_once(find_unknown_symbols);
}

TEST(without_a_slice)
{
	struct said said;

	env_set("LIBCUDA_LOG_LEVEL", "2");
	said = member_listen(find_unknown_symbols);
	CHECK_EQUAL(said.status, 0);
	CHECK(!strstr(said.err, "newer"));
}
