/*
 * A client like PyTorch: it links no driver, finds every function through cuGetProcAddress_v2 as
 * the CUDA runtime does, and has an allocator that keeps what it gets, frees it when the GPU is
 * full, and goes on.
 */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "fixture.h"

#define NAMES_MAX   1024
#define FLAG_LEGACY 0u
#define FLAG_THREAD 2u /* per-thread default streams */

typedef CUresult get_proc_fn(const char *symbol, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status);

static void *driver;
static get_proc_fn *get_proc;

static void load(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(driver);
	get_proc = (get_proc_fn *)dlsym(driver, "cuGetProcAddress_v2");
	CHECK(get_proc);
}

static void *find(const char *name)
{
	void *function = NULL;
	CUdriverProcAddressQueryResult status;

	CHECK_OK(get_proc(name, &function, 13000, FLAG_LEGACY, &status));
	CHECK(function);
	return function;
}

/* -- finding ---------------------------------------------------------------------------------- */

/* Whether libvgpu.so has the code, or the driver. */
static bool is_ours(void *function)
{
	Dl_info info;

	CHECK(dladdr(function, &info));
	CHECK(strstr(info.dli_fname, "libvgpu.so") || strstr(info.dli_fname, "libcuda.so"));
	return strstr(info.dli_fname, "libvgpu.so") != NULL;
}

static bool is_hooked(const char *exported)
{
	static const char *const hooked[] = {
#define CU_HOOK(name, class, parameters, arguments) #name,
#include "cuda.def"
	};

	for (size_t i = 0; i < sizeof(hooked) / sizeof(*hooked); i++)
		if (!strcmp(hooked[i], exported))
			return true;
	return false;
}

static unsigned read_names(char names[NAMES_MAX][64])
{
	FILE *file = fopen(getenv("SYMBOLS"), "r");
	char line[512];
	unsigned count = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "cu", 2) && count < NAMES_MAX)
			CHECK(sscanf(line, "%63[A-Za-z0-9_]", names[count++]) == 1);
	fclose(file);
	CHECK(count > 600);
	return count;
}

/* Cuts off _v2, _ptsz and the like: what one asks cuGetProcAddress for. */
static void plain_name(const char *exported, char plain[64])
{
	char *cut;

	strcpy(plain, exported);
	cut = strrchr(plain, '_');
	if (cut && (!strcmp(cut, "_ptsz") || !strcmp(cut, "_ptds")))
		*cut = '\0';
	cut = strrchr(plain, '_');
	if (cut && cut[1] == 'v' && cut[2] >= '2' && cut[2] <= '9' && !cut[3])
		*cut = '\0';
}

/* Every exported name by dlsym: ours if and only if there is a hook of that very name. */
TEST(by_dlsym)
{
	static char names[NAMES_MAX][64];
	unsigned count = read_names(names), hooks = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	load();
	for (unsigned i = 0; i < count; i++) {
		void *function = dlsym(driver, names[i]);

		CHECK(function);
		if (is_ours(function) != is_hooked(names[i]))
			check_failed(__FILE__, __LINE__, names[i]);
		hooks += is_ours(function);
	}
	CHECK(hooks > 25);
}

/* The name that the driver itself would have chosen, which dlsym knows it by. */
static bool stands_for(void *function, const char *plain, char names[NAMES_MAX][64], unsigned count)
{
	char other[64];

	for (unsigned i = 0; i < count; i++) {
		plain_name(names[i], other);
		if (!strcmp(other, plain) && dlsym(driver, names[i]) == function)
			return true;
	}
	return false;
}

TEST(by_get_proc_address)
{
	static const int versions[] = {0,     2000,  3020,  4000,  7000,
				       10000, 11030, 12000, 12050, 13000};
	static char names[NAMES_MAX][64];
	unsigned count = read_names(names), found = 0, ours = 0;
	char plain[64];

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	load();
	for (unsigned i = 0; i < count; i++) {
		plain_name(names[i], plain);
		for (unsigned v = 0; v < sizeof(versions) / sizeof(*versions) * 2; v++) {
			void *function = NULL;
			CUdriverProcAddressQueryResult status = 77;

			CHECK_EQUAL(get_proc(plain, &function, versions[v / 2],
					     v % 2 ? FLAG_THREAD : FLAG_LEGACY, &status),
				    CUDA_SUCCESS);
			if (!function) {
				CHECK(status == 1 || status == 2);
				continue;
			}
			CHECK_EQUAL(status, 0);
			if (!stands_for(function, plain, names, count))
				check_failed(__FILE__, __LINE__, plain);
			found++;
			ours += is_ours(function);
		}
	}
	CHECK(found > 5000);
	CHECK(ours > 200);
}

/* -- the caching allocator -------------------------------------------------------------------- */

#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define SEGMENTS_MAX  1024

static CUresult (*mem_alloc)(CUdeviceptr *, size_t);
static CUresult (*mem_free)(CUdeviceptr);
static CUresult (*mem_get_info)(size_t *, size_t *);

static struct segment {
	CUdeviceptr address;
	uint64_t bytes;
	bool used;
} segments[SEGMENTS_MAX];

static void start(void)
{
	CUcontext context;

	load();
	mem_alloc = (CUresult(*)(CUdeviceptr *, size_t))find("cuMemAlloc");
	mem_free = (CUresult(*)(CUdeviceptr))find("cuMemFree");
	mem_get_info = (CUresult(*)(size_t *, size_t *))find("cuMemGetInfo");
	CHECK_OK(((CUresult(*)(unsigned))find("cuInit"))(0));
	CHECK_OK(((CUresult(*)(CUcontext *, CUdevice))find("cuDevicePrimaryCtxRetain"))(&context,
											0));
	CHECK_OK(((CUresult(*)(CUcontext))find("cuCtxSetCurrent"))(context));
}

/* Frees the segments that are not used; how many. */
static unsigned empty_cache(void)
{
	unsigned freed = 0;

	for (unsigned i = 0; i < SEGMENTS_MAX; i++)
		if (segments[i].address && !segments[i].used) {
			CHECK_OK(mem_free(segments[i].address));
			segments[i].address = 0;
			freed++;
		}
	return freed;
}

static struct segment *free_segment(uint64_t bytes)
{
	struct segment *empty = NULL;

	for (unsigned i = 0; i < SEGMENTS_MAX; i++) {
		if (segments[i].address && !segments[i].used && segments[i].bytes == bytes)
			return &segments[i];
		if (!segments[i].address)
			empty = &segments[i];
	}
	CHECK(empty);
	return empty;
}

/* What malloc does in such an allocator; NULL when memory is out for good. */
static struct segment *segment_take(uint64_t bytes)
{
	struct segment *segment = free_segment(bytes);
	CUresult result = CUDA_SUCCESS;

	if (!segment->address) {
		segment->bytes = bytes;
		result = mem_alloc(&segment->address, bytes);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && empty_cache())
			result = mem_alloc(&segment->address, bytes);
	}
	if (result != CUDA_SUCCESS) {
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		return NULL;
	}
	segment->used = true;
	return segment;
}

static void train(unsigned steps, unsigned *ret_failures)
{
	struct segment *live[64] = {NULL};
	unsigned seed = 4;
	size_t available, total;

	for (unsigned step = 0; step < steps; step++) {
		unsigned i = (unsigned)rand_r(&seed) % 64;

		if (live[i]) {
			live[i]->used = false;
			live[i] = NULL;
			continue;
		}
		live[i] = segment_take(rand_r(&seed) % 3 ? LARGE_SEGMENT : SMALL_SEGMENT);
		if (!live[i])
			++*ret_failures;
		CHECK_OK(mem_get_info(&available, &total));
		CHECK_EQUAL(total, GIB);
		CHECK_AT_MOST(total - available, GIB);
	}
	for (unsigned i = 0; i < 64; i++)
		if (live[i])
			live[i]->used = false;
}

TEST(caching_allocator)
{
	uint64_t peak;
	unsigned failures = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	outside_peak_begin(0);
	start();
	train(20000, &failures);
	peak = outside_peak(0);
	CHECK(failures > 10); /* out of memory, caught, and it went on */
	CHECK_AT_MOST(peak, GIB + GRANULE);
	CHECK_AT_MOST(GIB / 100 * 95, peak);
	CHECK(empty_cache() > 10);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
}
