/*
 * Pools that another process imports, and pointers into them: in whose figure they are, and when
 * they go, as measured on a real driver.
 */
#include "actors.h"

#include <string.h>
#include <unistd.h>

static CUmemoryPool pool; /* each actor's own */
static CUdeviceptr pieces[2];

static void pool_make(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemPoolPtrExportData data;
	CUmemoryPool standard;
	int fd = -1;

	CHECK_EQ(cuDeviceGetDefaultMemPool(&standard, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, standard,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemAllocAsync(&pieces[0], MIB, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolExportPointer(&data, pieces[0]), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_SUCCESS);
	properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cuMemAllocFromPoolAsync(&pieces[i], 40 * MIB, pool, NULL), CUDA_SUCCESS);
}

static void pool_send(void)
{
	int fd = -1;

	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, pool,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	fd_send(fd);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cuMemPoolExportPointer(&board->pointers[i], pieces[i]), CUDA_SUCCESS);
	CHECK(memcmp(&board->pointers[0], &board->pointers[1], sizeof board->pointers[0]));
	CHECK_EQ(cuMemPoolExportPointer(&board->pointers[1], pieces[1] + 1),
		 CUDA_ERROR_INVALID_VALUE);
}

static void pool_receive(void)
{
	int fd = fd_receive();

	CHECK_EQ(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	close(fd);
	CHECK_EQ(cuMemAllocFromPoolAsync(&pieces[0], 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, pool,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_ERROR_INVALID_VALUE);
}

/* The second is imported twice. */
static void pieces_import(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(cuMemPoolImportPointer(&pieces[i], pool, &board->pointers[1]),
			 CUDA_SUCCESS);
		CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, pieces[i]), CUDA_SUCCESS);
		CHECK_EQ(size, 40 * MIB);
		CHECK_EQ(cuMemsetD8_v2(pieces[i], 1, size), CUDA_SUCCESS);
	}
	CHECK(pieces[0] != pieces[1]);
	board->pointers[0].reserved[0] ^= 1;
	CHECK_EQ(cuMemPoolImportPointer(&base, pool, &board->pointers[0]),
		 CUDA_ERROR_INVALID_VALUE);
}

static void first_give(void)
{
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_ERROR_INVALID_VALUE);
}

static void second_give_async(void)
{
	CHECK_EQ(cuMemFreeAsync(pieces[1], NULL), CUDA_SUCCESS);
}

static void synchronize(void)
{
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void pool_end(void)
{
	CHECK_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void pool_grow(void)
{
	CUdeviceptr more;

	CHECK_EQ(cuMemAllocFromPoolAsync(&more, 100 * MIB, pool, NULL), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 192 * MIB);
	CHECK_EQ(cuMemAllocFromPoolAsync(&more, 8 * GIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_pools(void)
{
	for (int dies = 0; dies < 2; dies++) {
		actors_start();
		tell(&exporter, pool_make);
		CHECK_MIB(96, 0, 96);
		tell(&exporter, pool_send);
		tell(&importer, pool_receive);
		CHECK_MIB(96, 0, 96);
		tell(&importer, pieces_import);
		CHECK_MIB(96, 0, 96);
		tell(&exporter, first_give);
		tell(&exporter, second_give_async);
		tell(&exporter, synchronize);
		CHECK_MIB(96, 0, 96); /* no less while the other has some of it */
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, pool_end);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, first_give);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, second_give_async);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, synchronize);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
		tell(&importer, pool_end);
		if (!dies)
			actor_kill(&exporter);
		actor_kill(&importer);
	}
}

/* An exported pool grows; and shrinks again when the importer has let go. */
static void test_pool_given_back(void)
{
	for (int dies = 0; dies < 2; dies++) {
		actors_start();
		tell(&exporter, pool_make);
		tell(&exporter, pool_send);
		tell(&importer, pool_receive);
		tell(&importer, pieces_import);
		tell(&exporter, pool_grow);
		tell(&exporter, first_give);
		if (dies)
			actor_kill(&importer);
		else
			tell(&importer, first_give);
		if (!dies)
			tell(&importer, second_give_async);
		if (!dies)
			tell(&importer, synchronize);
		tell(&exporter, synchronize);
		CHECK_MIB(160, dies ? -1 : 0, 160);
		actor_kill(&exporter);
		if (!dies)
			actor_kill(&importer);
		CHECK_EQ(selftest_used(0), 0);
	}
}

int main(void)
{
	actors_begin();
	test_pools();
	test_pool_given_back();
	return 0;
}
