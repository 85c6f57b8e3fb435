/*
 * Memory of other processes, and of other libraries: in whose figure it is, and when it goes, as
 * measured on a real driver. Pools: ipc_pools.c.
 */
#include "actors.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define DMA_BUF CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

/* ---- memory by handle */

static CUmemGenericAllocationHandle memory; /* each actor's own */
static int received;
static CUdeviceptr address;

static void memory_make(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = POSIX,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};

	CHECK_OK(cuMemCreate(&memory, 64 * MIB, &prop, 0));
}

static int memory_fd(void)
{
	int fd = -1;

	CHECK_OK(cuMemExportToShareableHandle(&fd, memory, POSIX, 0));
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	return fd;
}

static void memory_send(void)
{
	fd_send(memory_fd());
}

static STEP(memory_release, cuMemRelease(memory));

static CUmemGenericAllocationHandle import(int fd)
{
	CUmemGenericAllocationHandle handle;

	CHECK_OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, POSIX));
	return handle;
}

static void memory_receive(void)
{
	CUmemAllocationProp prop;

	received = fd_receive();
	memory = import(received);
	CHECK_OK(cuMemGetAllocationPropertiesFromHandle(&prop, memory));
	CHECK_EQUAL(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK_EQUAL(prop.location.id, 0);
	CHECK_OK(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0));
	CHECK_OK(cuMemMap(address, 64 * MIB, 0, memory, 0));
	CHECK_OK(cuMemRelease(memory));
}

static void received_close(void)
{
	CHECK(!close(received));
}

static STEP(memory_unmap, cuMemUnmap(address, 64 * MIB));

/* Who imports what it has itself gets another handle, and it counts once. */
static void import_own(void)
{
	CUmemGenericAllocationHandle again;
	CUdeviceptr p;
	unsigned word = 4711, back = 0;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int fd, owner = getpid();

	memory_make();
	fd = memory_fd();
	CHECK(!fcntl(fd, F_SETOWN, owner) && !fcntl(fd, F_SETSIG, 12));
	CHECK_EQUAL(fcntl(fd, F_GETOWN), owner);
	CHECK_EQUAL(fcntl(fd, F_GETSIG), 12);
	again = import(fd);
	close(fd);
	CHECK(again != memory);
	CHECK_OK(cuMemAddressReserve(&p, 128 * MIB, 0, 0, 0));
	CHECK_OK(cuMemMap(p, 64 * MIB, 0, memory, 0));
	CHECK_OK(cuMemMap(p + 64 * MIB, 64 * MIB, 0, again, 0));
	CHECK_OK(cuMemSetAccess(p, 128 * MIB, &access, 1));
	CHECK_OK(cuMemcpyHtoD_v2(p, &word, sizeof word));
	CHECK_OK(cuMemcpyDtoH_v2(&back, p + 64 * MIB, sizeof back));
	CHECK_EQUAL(back, 4711);
	CHECK_OK(cuMemUnmap(p, 128 * MIB));
	CHECK_OK(cuMemAddressFree(p, 128 * MIB));
	CHECK_OK(cuMemRelease(memory));
	memory = again;
}

static void export_refused(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int fd, zero = open("/dev/zero", O_RDONLY);

	CHECK_OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	CHECK_EQUAL(cuMemExportToShareableHandle(&fd, handle, POSIX, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)zero, POSIX),
		    CUDA_ERROR_INVALID_VALUE);
	close(zero);
}

static void test_handles(void)
{
	actors_start();
	tell(&exporter, export_refused);
	TELL(exporter, import_own, 64, 0, 64);
	TELL(exporter, memory_release, 0, 0, 0);
	tell(&exporter, memory_make);
	TELL(exporter, memory_send, 64, 0, 64); /* on its way: nobody has the descriptor open */
	TELL(exporter, memory_release, 0, 0, 64);
	TELL(importer, memory_receive, 0, 64, 64);
	TELL(importer, received_close, 0, 64, 64);
	TELL(importer, memory_unmap, 0, 0, 0);
	for (int dies = 0; dies < 2; dies++) {
		tell(&exporter, memory_make);
		tell(&exporter, memory_send);
		TELL(importer, memory_receive, 64, 0, 64);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, memory_release);
		CHECK_MIB(dies ? -1 : 0, 64, 64);
		TELL(importer, memory_unmap, dies ? -1 : 0, 0, 64);
		TELL(importer, received_close, dies ? -1 : 0, 0, 0);
	}
	actor_kill(&importer);
	CHECK_EQUAL(selftest_used(0), 0);
}

/* All who knew it are dead, but somebody has the descriptor. */
static void test_orphan(void)
{
	int fd;

	actors_start();
	tell(&exporter, memory_make);
	tell(&exporter, memory_send);
	actor_kill(&exporter);
	actor_kill(&importer);
	CHECK_EQUAL(selftest_used(0), 64 * MIB);
	actors_start(); /* the state is not made anew for them */
	CHECK_MIB(0, 0, 64);
	fd = fd_receive();
	CHECK_MIB(0, 0, 64);
	close(fd);
	CHECK_MIB(0, 0, 0);
	actor_kill(&exporter);
	actor_kill(&importer);
}

/* ---- dma-buf */

static void range_send(void)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	int fd = -1;

	CHECK_OK(cuMemAllocAsync(&p, 10 * MIB, NULL));
	CHECK_EQUAL(cuMemGetHandleForAddressRange(&fd, p, 4 * MIB, DMA_BUF, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuIpcGetMemHandle(&handle, p), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFreeAsync(p, NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	CHECK_OK(cuMemAlloc_v2(&p, 10 * MIB));
	CHECK_EQUAL(cuMemGetHandleForAddressRange(&fd, p, 11 * MIB, DMA_BUF, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemGetHandleForAddressRange(&fd, p, 4 * MIB, DMA_BUF, 0));
	fd_send(fd);
	address = p;
}

static STEP(free_address, cuMemFree_v2(address));

static void test_range(void)
{
	actors_start();
	TELL(exporter, range_send, 10, 0, 10);
	TELL(exporter, free_address, 0, 0, 10);
	close(fd_receive());
	CHECK_MIB(0, 0, 0);
	actor_kill(&exporter);
	actor_kill(&importer);
}

/* ---- cuIpc */

static CUdeviceptr opened[2];

static void ipc_get(void)
{
	CUipcMemHandle again;
	CUdeviceptr p;

	CHECK_OK(cuMemAlloc_v2(&address, 10 * MIB));
	CHECK_OK(cuIpcGetMemHandle(&board->ipc, address));
	CHECK_OK(cuIpcGetMemHandle(&again, address + 5 * MIB));
	CHECK(!memcmp(&again, &board->ipc, sizeof again));
	CHECK_EQUAL(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_CONTEXT);
}

static void ipc_open(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_OK(cuIpcOpenMemHandle_v2(&opened[i], board->ipc, 1));
		CHECK_OK(cuMemGetAddressRange_v2(&base, &size, opened[i] + MIB));
		CHECK_EQUAL(base, opened[i]);
		CHECK_EQUAL(size, 10 * MIB);
		CHECK_OK(cuMemsetD8_v2(opened[i], 1, size));
		CHECK_EQUAL(cuMemFree_v2(opened[i]), CUDA_ERROR_INVALID_VALUE);
	}
	CHECK(opened[0] != opened[1]);
}

static void ipc_close_first(void)
{
	CHECK_OK(cuIpcCloseMemHandle(opened[0]));
	CHECK_EQUAL(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_VALUE);
}

static STEP(ipc_close_second, cuIpcCloseMemHandle(opened[1]));

static void ipc_open_gone(void)
{
	CUdeviceptr p;

	CHECK_EQUAL(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_VALUE);
}

static void context_reset(void)
{
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_CONTEXT);
	selftest_context();
}

static void test_ipc(void)
{
	actors_start();
	for (int dies = 0; dies < 2; dies++) {
		TELL(exporter, ipc_get, 10, 0, 10);
		TELL(importer, ipc_open, 10, 0, 10);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, free_address);
		CHECK_MIB(dies ? -1 : 0, 10, 10);
		TELL(importer, ipc_close_first, dies ? -1 : 0, 10, 10);
		if (dies)
			tell(&importer, context_reset);
		else
			tell(&importer, ipc_close_second);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
		tell(&importer, ipc_open_gone);
	}
	actor_kill(&importer);
}

/* ---- other libraries */

static void external(void)
{
	int fd = open("/dev/zero", O_RDWR);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = 20 * MIB};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 10 * MIB, .size = 11 * MIB};
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC mipmap = {
		.arrayDesc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, .numLevels = 3};
	CUmipmappedArray array;
	CUexternalMemory outside;
	CUdeviceptr p;

	memcpy(desc.handle, &fd, sizeof fd);
	CHECK_OK(cuImportExternalMemory(&outside, &desc));
	CHECK_EQUAL(fcntl(fd, F_GETFD), -1); /* the driver has it */
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_EQUAL(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer),
		    CUDA_ERROR_INVALID_VALUE);
	buffer.size = 10 * MIB;
	CHECK_OK(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer));
	CHECK_OK(cuMemsetD8_v2(p, 1, 10 * MIB));
	CHECK_OK(cuExternalMemoryGetMappedMipmappedArray(&array, outside, &mipmap));
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_OK(cuMipmappedArrayDestroy(array));
	CHECK_OK(cuMemFree_v2(p));
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_OK(cuDestroyExternalMemory(outside));
	CHECK_EQUAL(cuDestroyExternalMemory(outside), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(selftest_used(0), CONTEXT + FIRST);
}

static void test_external(void)
{
	exporter = actor_start();
	tell(&exporter, external);
	actor_kill(&exporter);
}

int main(void)
{
	actors_begin();
	test_handles();
	test_orphan();
	test_range();
	test_ipc();
	test_external();
	return 0;
}
