/*
 * Memory of other processes, and of other libraries: in whose figure it is, and when it goes, as
 * measured on a real driver. Pools: ipc_pools.c.
 */
#include "actors.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- memory by handle */

static CUmemGenericAllocationHandle memory; /* each actor's own */
static int received;
static CUdeviceptr address;

static void memory_make(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};

	CHECK_EQ(cuMemCreate(&memory, 64 * MIB, &prop, 0), CUDA_SUCCESS);
}

static int memory_fd(void)
{
	int fd = -1;

	CHECK_EQ(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0),
		 CUDA_SUCCESS);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	return fd;
}

static void memory_send(void)
{
	fd_send(memory_fd());
}

static void memory_release(void)
{
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
}

static CUmemGenericAllocationHandle import(int fd)
{
	CUmemGenericAllocationHandle handle;

	CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
	return handle;
}

static void memory_receive(void)
{
	CUmemAllocationProp prop;

	received = fd_receive();
	memory = import(received);
	CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, memory), CUDA_SUCCESS);
	CHECK_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK_EQ(prop.location.id, 0);
	CHECK_EQ(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(address, 64 * MIB, 0, memory, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
}

static void received_close(void)
{
	CHECK(!close(received));
}

static void memory_unmap(void)
{
	CHECK_EQ(cuMemUnmap(address, 64 * MIB), CUDA_SUCCESS);
}

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
	CHECK_EQ(fcntl(fd, F_GETOWN), owner);
	CHECK_EQ(fcntl(fd, F_GETSIG), 12);
	again = import(fd);
	close(fd);
	CHECK(again != memory);
	CHECK_EQ(cuMemAddressReserve(&p, 128 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(p, 64 * MIB, 0, memory, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(p + 64 * MIB, 64 * MIB, 0, again, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemSetAccess(p, 128 * MIB, &access, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyHtoD_v2(p, &word, sizeof word), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyDtoH_v2(&back, p + 64 * MIB, sizeof back), CUDA_SUCCESS);
	CHECK_EQ(back, 4711);
	CHECK_EQ(cuMemUnmap(p, 128 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemAddressFree(p, 128 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
	memory = again;
}

static void export_refused(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int fd, zero = open("/dev/zero", O_RDONLY);

	CHECK_EQ(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)zero,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_ERROR_INVALID_VALUE);
	close(zero);
}

static void test_handles(void)
{
	actors_start();
	tell(&exporter, export_refused);
	tell(&exporter, import_own);
	CHECK_MIB(64, 0, 64);
	tell(&exporter, memory_release);
	CHECK_MIB(0, 0, 0);
	tell(&exporter, memory_make);
	tell(&exporter, memory_send); /* on its way: nobody has the descriptor open */
	CHECK_MIB(64, 0, 64);
	tell(&exporter, memory_release);
	CHECK_MIB(0, 0, 64);
	tell(&importer, memory_receive);
	CHECK_MIB(0, 64, 64);
	tell(&importer, received_close);
	CHECK_MIB(0, 64, 64);
	tell(&importer, memory_unmap);
	CHECK_MIB(0, 0, 0);
	for (int dies = 0; dies < 2; dies++) {
		tell(&exporter, memory_make);
		tell(&exporter, memory_send);
		tell(&importer, memory_receive);
		CHECK_MIB(64, 0, 64);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, memory_release);
		CHECK_MIB(dies ? -1 : 0, 64, 64);
		tell(&importer, memory_unmap);
		CHECK_MIB(dies ? -1 : 0, 0, 64);
		tell(&importer, received_close);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
	}
	actor_kill(&importer);
	CHECK_EQ(selftest_used(0), 0);
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
	CHECK_EQ(selftest_used(0), 64 * MIB);
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
	CUdeviceptr p;
	int fd = -1;

	CHECK_EQ(cuMemAlloc_v2(&p, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemGetHandleForAddressRange(&fd, p, 11 * MIB,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemGetHandleForAddressRange(&fd, p, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					       0),
		 CUDA_SUCCESS);
	fd_send(fd);
	address = p;
}

static void free_address(void)
{
	CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void test_range(void)
{
	actors_start();
	tell(&exporter, range_send);
	CHECK_MIB(10, 0, 10);
	tell(&exporter, free_address);
	CHECK_MIB(0, 0, 10);
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

	CHECK_EQ(cuMemAlloc_v2(&address, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuIpcGetMemHandle(&board->ipc, address), CUDA_SUCCESS);
	CHECK_EQ(cuIpcGetMemHandle(&again, address + 5 * MIB), CUDA_SUCCESS);
	CHECK(!memcmp(&again, &board->ipc, sizeof again));
	CHECK_EQ(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_CONTEXT);
}

static void ipc_open(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(cuIpcOpenMemHandle_v2(&opened[i], board->ipc, 1), CUDA_SUCCESS);
		CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, opened[i] + MIB), CUDA_SUCCESS);
		CHECK_EQ(base, opened[i]);
		CHECK_EQ(size, 10 * MIB);
		CHECK_EQ(cuMemsetD8_v2(opened[i], 1, size), CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(opened[i]), CUDA_ERROR_INVALID_VALUE);
	}
	CHECK(opened[0] != opened[1]);
}

static void ipc_close_first(void)
{
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_SUCCESS);
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_VALUE);
}

static void ipc_close_second(void)
{
	CHECK_EQ(cuIpcCloseMemHandle(opened[1]), CUDA_SUCCESS);
}

static void ipc_open_gone(void)
{
	CUdeviceptr p;

	CHECK_EQ(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_VALUE);
}

static void context_reset(void)
{
	CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_CONTEXT);
	selftest_context();
}

static void test_ipc(void)
{
	actors_start();
	for (int dies = 0; dies < 2; dies++) {
		tell(&exporter, ipc_get);
		CHECK_MIB(10, 0, 10);
		tell(&importer, ipc_open);
		CHECK_MIB(10, 0, 10);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, free_address);
		CHECK_MIB(dies ? -1 : 0, 10, 10);
		tell(&importer, ipc_close_first);
		CHECK_MIB(dies ? -1 : 0, 10, 10);
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
	CHECK_EQ(cuImportExternalMemory(&outside, &desc), CUDA_SUCCESS);
	CHECK_EQ(fcntl(fd, F_GETFD), -1); /* the driver has it */
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_EQ(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer), CUDA_ERROR_INVALID_VALUE);
	buffer.size = 10 * MIB;
	CHECK_EQ(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer), CUDA_SUCCESS);
	CHECK_EQ(cuMemsetD8_v2(p, 1, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuExternalMemoryGetMappedMipmappedArray(&array, outside, &mipmap), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(cuMipmappedArrayDestroy(array), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(cuDestroyExternalMemory(outside), CUDA_SUCCESS);
	CHECK_EQ(cuDestroyExternalMemory(outside), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST);
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
