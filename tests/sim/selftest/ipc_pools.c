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

	CHECK_OK(cuDeviceGetDefaultMemPool(&standard, 0));
	CHECK_EQUAL(cuMemPoolExportToShareableHandle(&fd, standard, POSIX, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemAllocAsync(&pieces[0], MIB, NULL));
	CHECK_EQUAL(cuMemPoolExportPointer(&data, pieces[0]), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFree_v2(pieces[0]));
	properties.handleTypes = POSIX;
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	for (int i = 0; i < 2; i++)
		CHECK_OK(cuMemAllocFromPoolAsync(&pieces[i], 40 * MIB, pool, NULL));
}

static void pool_send(void)
{
	int fd = -1;

	CHECK_OK(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0));
	fd_send(fd);
	for (int i = 0; i < 2; i++)
		CHECK_OK(cuMemPoolExportPointer(&board->pointers[i], pieces[i]));
	CHECK(memcmp(&board->pointers[0], &board->pointers[1], sizeof board->pointers[0]));
	CHECK_EQUAL(cuMemPoolExportPointer(&board->pointers[1], pieces[1] + 1),
		    CUDA_ERROR_INVALID_VALUE);
}

static void pool_receive(void)
{
	int fd = fd_receive();

	CHECK_OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
	close(fd);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&pieces[0], 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0),
		    CUDA_ERROR_INVALID_VALUE);
}

/* The second is imported twice. */
static void pieces_import(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_OK(cuMemPoolImportPointer(&pieces[i], pool, &board->pointers[1]));
		CHECK_OK(cuMemGetAddressRange_v2(&base, &size, pieces[i]));
		CHECK_EQUAL(size, 40 * MIB);
		CHECK_OK(cuMemsetD8_v2(pieces[i], 1, size));
	}
	CHECK(pieces[0] != pieces[1]);
	board->pointers[0].reserved[0] ^= 1;
	CHECK_EQUAL(cuMemPoolImportPointer(&base, pool, &board->pointers[0]),
		    CUDA_ERROR_INVALID_VALUE);
}

static void first_give(void)
{
	CHECK_OK(cuMemFree_v2(pieces[0]));
	CHECK_EQUAL(cuMemFree_v2(pieces[0]), CUDA_ERROR_INVALID_VALUE);
}

static STEP(second_give_async, cuMemFreeAsync(pieces[1], NULL));
static STEP(synchronize, cuCtxSynchronize());
static STEP(pool_end, cuMemPoolDestroy(pool));

static void pool_grow(void)
{
	CUdeviceptr more;

	CHECK_OK(cuMemAllocFromPoolAsync(&more, 100 * MIB, pool, NULL));
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT + 192 * MIB);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&more, 8 * GIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_pools(void)
{
	for (int dies = 0; dies < 2; dies++) {
		actors_start();
		TELL(exporter, pool_make, 96, 0, 96);
		tell(&exporter, pool_send);
		TELL(importer, pool_receive, 96, 0, 96);
		TELL(importer, pieces_import, 96, 0, 96);
		tell(&exporter, first_give);
		tell(&exporter, second_give_async);
		TELL(exporter, synchronize, 96, 0, 96); /* no less while the other has some of it */
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, pool_end);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		TELL(importer, first_give, dies ? -1 : 0, 96, 96);
		TELL(importer, second_give_async, dies ? -1 : 0, 96, 96);
		TELL(importer, synchronize, dies ? -1 : 0, 0, 0);
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
		TELL(exporter, synchronize, 160, dies ? -1 : 0, 160);
		actor_kill(&exporter);
		if (!dies)
			actor_kill(&importer);
		CHECK_EQUAL(selftest_used(0), 0);
	}
}

int main(void)
{
	actors_begin();
	test_pools();
	test_pool_given_back();
	return 0;
}
