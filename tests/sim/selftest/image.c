/*
 * Code images: what is read of cubins, fatbins and PTX, and that no damaged one is read beyond its
 * end. An image is put right before a page that nobody may touch.
 */
#include "selftest.h"

#include "cubin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ROOM = 64 << 10,
	FATBIN_HEADER = 16,
	ENTRY_HEADER = 64,
};

static const char ptx[] =
	"// made by hand\n.version 8.7\n.target sm_90\n.address_size 64\n"
	".global .align 4 .b8 table[20] = {1, 2};\n.extern .global .u32 elsewhere;\n"
	".const .f64 pi;\n.visible .entry k(\n\t.param .u64 .ptr .global .align 1 a,\n"
	"\t.param .u32 b,\n\t.param .align 16 .b8 c[24]\n)\n{ .global .u32 inner; /* .entry no */ "
	"ret; }\n"
	".entry second { ret; }\n";

static struct cubin cubin;
static unsigned char *guard; /* the page after the room */

static const void *before_guard(const void *data, size_t count)
{
	return memcpy(guard - count, data, count);
}

static void guard_make(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *room =
		mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(room != MAP_FAILED);
	guard = room + ROOM;
	CHECK_EQUAL(mprotect(guard, page, PROT_NONE), 0);
}

static void check_function(CUfunction function, const int attributes[8],
			   const size_t parameters[][2], size_t count)
{
	size_t offset, bytes;
	int value;

	for (unsigned i = 0; i < 8; i++) {
		CHECK_OK(cuFuncGetAttribute(&value, i, function));
		CHECK_EQUAL(value, attributes[i]);
	}
	for (size_t i = 0; i < count; i++) {
		CHECK_OK(cuFuncGetParamInfo(function, i, &offset, &bytes));
		CHECK_EQUAL(offset, parameters[i][0]);
		CHECK_EQUAL(bytes, parameters[i][1]);
	}
	CHECK_EQUAL(cuFuncGetParamInfo(function, count, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
}

static void test_cubin(void)
{
	static const int attributes[8] = {1024, 400, 0, 16, 14, 90, 90, 0};
	static const size_t parameters[][2] = {{0, 8}, {8, 4}, {16, 8}};
	size_t count = cubin_make(&cubin, 90), bytes;
	CUfunction function, listed;
	unsigned char copy[8];
	unsigned functions;
	CUdeviceptr address;
	const char *name;
	CUmodule module;
	int value;

	CHECK_OK(cuModuleLoadData(&module, before_guard(cubin.bytes, count)));
	memset(guard - count, 0, count); /* the driver has its own copy of what it needs */
	CHECK_OK(cuModuleGetFunction(&function, module, "k"));
	check_function(function, attributes, parameters, 3);
	CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				    function));
	CHECK_EQUAL(value, 48 * KIB - 400);
	CHECK_OK(cuFuncGetName(&name, function));
	CHECK(!strcmp(name, "k"));
	CHECK_OK(cuModuleGetFunctionCount(&functions, module));
	CHECK_EQUAL(functions, 1);
	CHECK_OK(cuModuleEnumerateFunctions(&listed, 1, module));
	CHECK(listed == function);
	CHECK_OK(cuModuleGetGlobal_v2(&address, &bytes, module, "zeroes"));
	CHECK_EQUAL(bytes, 20);
	CHECK_OK(cuMemsetD8_v2(address, 7, 20));
	CHECK_OK(cuModuleGetGlobal_v2(&address, &bytes, module, "values"));
	CHECK_EQUAL(bytes, 8);
	CHECK_OK(cuMemcpyDtoH_v2(copy, address, 8));
	CHECK(!memcmp(copy, "\1\2\3\4\5\6\7\10", 8));
	CHECK_EQUAL(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuModuleGetGlobal_v2(&address, &bytes, module, "k"), CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(cuModuleGetFunction(&function, module, "values"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuModuleUnload(module));
}

static void test_ptx(void)
{
	static const size_t parameters[][2] = {{0, 8}, {8, 4}, {16, 24}};
	static const int attributes[8] = {1024, 0, 0, 0, 32, 87, 90, 0};
	CUdeviceptr address;
	CUfunction function;
	CUmodule module;
	size_t bytes;

	CHECK_OK(cuModuleLoadData(&module, before_guard(ptx, sizeof ptx)));
	CHECK_OK(cuModuleGetFunction(&function, module, "k"));
	check_function(function, attributes, parameters, 3);
	CHECK_OK(cuModuleGetFunction(&function, module, "second"));
	CHECK_EQUAL(cuModuleGetFunction(&function, module, "no"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuModuleGetGlobal_v2(&address, &bytes, module, "table"));
	CHECK_EQUAL(bytes, 20);
	CHECK_OK(cuModuleGetGlobal_v2(&address, &bytes, module, "pi"));
	CHECK_EQUAL(bytes, 8);
	CHECK_EQUAL(cuModuleGetGlobal_v2(&address, &bytes, module, "elsewhere"),
		    CUDA_ERROR_NOT_FOUND);
	CHECK_EQUAL(cuModuleGetGlobal_v2(&address, &bytes, module, "inner"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(cuModuleUnload(module));
}

static void put(unsigned char *at, uint64_t value, size_t bytes)
{
	memcpy(at, &value, bytes); /* little-endian, as all of this is */
}

/* An entry of a fatbin, of a multiple of 8 bytes; unpacked_bytes 0: as it is. */
static size_t entry_put(unsigned char *at, unsigned kind, unsigned capability, const void *payload,
			size_t bytes, size_t unpacked_bytes)
{
	const size_t padded = (bytes + 7) & ~(size_t)7;

	memset(at, 0, ENTRY_HEADER + padded);
	put(at, kind, 2);
	put(at + 4, ENTRY_HEADER, 4);
	put(at + 8, padded, 8);
	put(at + 16, unpacked_bytes ? bytes : 0, 4);
	put(at + 28, capability, 4);
	put(at + 40, unpacked_bytes ? 0x2000 : 0, 8);
	put(at + 56, unpacked_bytes, 8);
	memcpy(at + ENTRY_HEADER, payload, bytes);
	return ENTRY_HEADER + padded;
}

static size_t fatbin_put(unsigned char *fatbin, size_t payload_bytes)
{
	put(fatbin, 0xba55ed50, 4);
	put(fatbin + 4, 1, 2);
	put(fatbin + 6, FATBIN_HEADER, 2);
	put(fatbin + 8, payload_bytes, 8);
	return FATBIN_HEADER + payload_bytes;
}

/* LZ4 of nothing but literals, and of a match at the end of them: "abc" and what repeats it. */
static const unsigned char packed_ptx[] = {
	0xf1, 10,  '.', 'v', 'e', 'r', 's', 'i', 'o', 'n', ' ', '8',  '.', '0', '\n', '.', 'e', 'n',
	't',  'r', 'y', ' ', 'x', 'y', 'x', 'y', 'x', 2,   0,   0x50, '{', 'r', 'e',  't', '}'};
static const size_t unpacked_ptx_bytes = 25 + 5 + 5;

static CUresult load_entries(const unsigned char *entries, size_t bytes, const char *kernel)
{
	static unsigned char fatbin[ROOM];
	CUmodule module, unwrapped;
	CUfunction function;
	size_t count;

	memcpy(fatbin + FATBIN_HEADER, entries, bytes);
	count = fatbin_put(fatbin, bytes);
	const struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = {0x466243b1, 1, before_guard(fatbin, count), NULL};
	CUresult result = cuModuleLoadFatBinary(&module, &wrapper);
	CUresult bare = cuModuleLoadData(&unwrapped, wrapper.data);
	CHECK_EQUAL(result, bare);
	if (result)
		return result;
	CHECK_OK(cuModuleUnload(unwrapped));
	result = cuModuleGetFunction(&function, module, kernel);
	CHECK_OK(cuModuleUnload(module));
	return result;
}

/* The cubin for the GPU first, then PTX that can be compiled for it, and nothing else. */
static void test_fatbin(void)
{
	static unsigned char entries[ROOM];
	size_t bytes = cubin_make(&cubin, 80), used;

	used = entry_put(entries, 2, 80, cubin.bytes, bytes, 0);
	CHECK_EQUAL(load_entries(entries, used, "k"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	used += entry_put(entries + used, 1, 100, ptx, sizeof ptx, 0);
	CHECK_EQUAL(load_entries(entries, used, "k"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	used += entry_put(entries + used, 1, 75, packed_ptx, sizeof packed_ptx, unpacked_ptx_bytes);
	CHECK_OK(load_entries(entries, used, "xyxyxyxyxy"));
	used += entry_put(entries + used, 1, 80, ptx, sizeof ptx, 0);
	CHECK_OK(load_entries(entries, used, "second"));
	bytes = cubin_make(&cubin, 90);
	used += entry_put(entries + used, 2, 90, cubin.bytes, bytes, 0);
	CHECK_EQUAL(load_entries(entries, used, "second"), CUDA_ERROR_NOT_FOUND);
	CHECK_OK(load_entries(entries, used, "k"));
	used = entry_put(entries, 1, 75, packed_ptx, sizeof packed_ptx, unpacked_ptx_bytes + 1);
	CHECK_EQUAL(load_entries(entries, used, "xyxyxyxyxy"), CUDA_ERROR_INVALID_IMAGE);
	CHECK_EQUAL(cuModuleLoadData(&(CUmodule){NULL}, before_guard("\177ELF", 5)),
		    CUDA_ERROR_INVALID_IMAGE);
	cubin_make(&cubin, 80);
	CHECK_EQUAL(cuModuleLoadData(&(CUmodule){NULL}, cubin.bytes), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static CUresult load_file(const unsigned char *image, size_t bytes)
{
	char path[] = "/tmp/vgpu-selftest-image-XXXXXX";
	int fd = mkstemp(path);
	CUmodule module;

	CHECK(fd >= 0);
	CHECK_EQUAL(write(fd, image, bytes), (long long)bytes);
	close(fd);
	CUresult result = cuModuleLoad(&module, path);
	unlink(path);
	if (!result)
		CHECK_OK(cuModuleUnload(module));
	return result;
}

/* Cut short, and with bytes changed. Whatever comes of it must be one of the driver's answers. */
static void test_damaged(void)
{
	static unsigned char fatbin[ROOM], damaged[ROOM];
	size_t used, bytes = cubin_make(&cubin, 90);

	used = entry_put(fatbin + FATBIN_HEADER, 2, 90, cubin.bytes, bytes, 0);
	used += entry_put(fatbin + FATBIN_HEADER + used, 1, 75, packed_ptx, sizeof packed_ptx,
			  unpacked_ptx_bytes);
	used = fatbin_put(fatbin, used);
	CHECK_OK(load_file(fatbin, used));
	for (size_t cut = 1; cut < used; cut += 37)
		CHECK_EQUAL(load_file(fatbin, cut), CUDA_ERROR_INVALID_IMAGE);
	for (unsigned i = 0; i < 2000; i++) {
		memcpy(damaged, i % 2 ? fatbin : cubin.bytes, i % 2 ? used : bytes);
		for (unsigned k = 0; k < 1 + i % 3; k++)
			damaged[(size_t)random() % (i % 2 ? used : bytes)] ^=
				(unsigned char)(1 << random() % 8);
		CUresult result = load_file(damaged, i % 2 ? used : bytes);
		CHECK(!result || result == CUDA_ERROR_INVALID_IMAGE ||
		      result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_OUT_OF_MEMORY ||
		      result == CUDA_ERROR_NO_BINARY_FOR_GPU);
	}
}

int main(void)
{
	selftest_begin("8G");
	selftest_context();
	guard_make();
	uint64_t start = selftest_used(0);
	test_cubin();
	test_ptx();
	test_fatbin();
	test_damaged();
	CHECK_EQUAL(selftest_used(0), start);
	return 0;
}
