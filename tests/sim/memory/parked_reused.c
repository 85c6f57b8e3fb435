/*
 * The driver gives a handle or an address to other memory before the call that ended the first
 * memory, or that refers to it, has returned.
 */
#include "parked_fixture.h"

static CUdeviceptr space; /* addresses that the process has reserved */
static CUmemGenericAllocationHandle memory;

static void create_it(void)
{
	create(0);
	memory = handles[0];
}

static void with_memory(void)
{
	CHECK_OK(cuMemAddressReserve(&space, SIZE, 0, 0, 0));
	create_it();
}

static void give_memory(void)
{
	CHECK_OK(cuMemRelease(memory));
}

static CUresult map_it(void)
{
	return cuMemMap(space, SIZE, 0, memory, 0);
}

static void end_mapping(void)
{
	CHECK_OK(cuMemUnmap(space, SIZE));
}

/* -- a handle of this process's memory -------------------------------------------------------- */

/* Releases the memory, and creates other memory. The simulated driver gives it the same handle. */
static void reuse_handle(void)
{
	CUmemGenericAllocationHandle was = memory;

	give_memory();
	create_it();
	CHECK_EQUAL(memory, was);
}

/* The mapping is the new memory's last reference. */
static CUresult map_and_release(void)
{
	CUresult result = map_it();

	give_memory();
	return result;
}

/* Nothing is mapped, and the handle stays. */
static CUresult map_nowhere(void)
{
	return cuMemMap(space + SIZE, SIZE, 0, memory, 0);
}

static CUresult export_it(void)
{
	return cuMemExportToShareableHandle(&files[0], memory, POSIX, 0);
}

static const struct parked_row of_this_process[] = {
	{.name = "reused_map",
	 .call = "cuMemMap@1",
	 .prepare = with_memory,
	 .make = map_and_release,
	 .meanwhile = reuse_handle,
	 .reserves = 64, /* what had the handle stays charged */
	 .undo = end_mapping},
	{.name = "reused_refused",
	 .call = "cuMemMap@1",
	 .prepare = with_memory,
	 .make = map_nowhere,
	 .meanwhile = reuse_handle,
	 .reserves = 64, /* what had the handle stays charged */
	 .undo = give_memory,
	 .result = CUDA_ERROR_INVALID_VALUE},
	{.name = "reused_export",
	 .call = "cuMemExportToShareableHandle@1",
	 .done = true,
	 .prepare = create_it,
	 .make = export_it,
	 .meanwhile = reuse_handle,
	 .reserves = 64,
	 .undo = give_memory,
	 .result = CUDA_ERROR_INVALID_VALUE},
};
TEST_TABLE(of_this_process, parked_play);

/* -- a handle of another slice's memory -------------------------------------------------------- */

static uint64_t create_and_send(uint64_t i)
{
	create(i);
	return send_off(i);
}

static void with_memory_and_sent(void)
{
	with_memory();
	order(&other, create_and_send, 0);
	receive(0);
}

/* The memory that has the handle then is mapped, and must be charged. */
static void import_as_it(void)
{
	CUmemGenericAllocationHandle was = memory;

	give_memory();
	CHECK_OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)files[0], POSIX));
	file_close(0);
	CHECK_EQUAL(memory, was);
}

static void end_import(void)
{
	end_mapping();
	give_memory();
	order(&other, release, 0);
}

static const struct parked_row of_outsiders[] = {
	{.name = "reused_by_import",
	 .call = "cuMemMap@1",
	 .outsider = "1g",
	 .prepare = with_memory_and_sent,
	 .make = map_it,
	 .meanwhile = import_as_it,
	 .undo = end_import,
	 .beyond = 64,
	 .takes = -64},
};
TEST_TABLE(of_outsiders, parked_play);

/* -- the address of a block -------------------------------------------------------------------- */

static CUresult free_block(void)
{
	return cuMemFree_v2(addresses[0]);
}

static void with_block(void)
{
	allocate(0);
}

static void allocate_there_and_export(void)
{
	allocate(1);
	CHECK_EQUAL(addresses[1], addresses[0]);
	CHECK_OK(cuMemGetHandleForAddressRange(&files[0], addresses[1], SIZE, DMA_BUF, 0));
}

/* The descriptor keeps the second block. */
static void free_and_close(void)
{
	uint64_t used = ledger_used(0);

	give(addresses[1]);
	CHECK_EQUAL(ledger_used(0), used);
	file_close(0);
}

/* Another block, near which the next one lies. */
static void with_near_block(void)
{
	CHECK_OK(cuMemAlloc_v2(&addresses[1], SIZE / 2));
}

static CUresult allocate_again(void)
{
	return cuMemAlloc_v2(&addresses[0], SIZE);
}

/* The address that the driver has given to a block of SIZE bytes. */
static CUdeviceptr guess_address(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = -1024; i < 1024; i++)
		if (cuMemGetAddressRange_v2(&base, &size,
					    addresses[1] + (CUdeviceptr)(i * (int64_t)SIZE)) ==
			    CUDA_SUCCESS &&
		    size == SIZE)
			return base;
	CHECK_SAYING(false, "no block of that size is found");
	return 0;
}

/* The driver has allocated the block, and the accounts do not have it yet. */
static void export_too_early(void)
{
	CHECK_EQUAL(cuMemGetHandleForAddressRange(&files[0], guess_address(), SIZE, DMA_BUF, 0),
		    CUDA_ERROR_INVALID_VALUE);
}

static void end_both(void)
{
	give(addresses[0]);
	give(addresses[1]);
}

static const struct parked_row of_blocks[] = {
	{.name = "reused_by_exported",
	 .call = "cuMemFree_v2@2",
	 .done = true,
	 .prepare = with_block,
	 .make = free_block,
	 .meanwhile = allocate_there_and_export,
	 .reserves = 64,
	 .undo = free_and_close},
	{.name = "exported_too_early",
	 .call = "cuMemAlloc_v2@3",
	 .done = true,
	 .prepare = with_near_block,
	 .make = allocate_again,
	 .meanwhile = export_too_early,
	 .undo = end_both,
	 TAKES(64)},
};
TEST_TABLE(of_blocks, parked_play);

/* -- the address of another process's memory --------------------------------------------------- */

static uint64_t allocate_and_get(uint64_t i)
{
	CHECK_OK(cuMemAlloc_v2(&addresses[i], SIZE / (i + 1)));
	CHECK_OK(cuIpcGetMemHandle(&board->ipc[i], addresses[i]));
	return 0;
}

static CUresult close_first(void)
{
	return cuIpcCloseMemHandle(addresses[0]);
}

static void with_opened(void)
{
	order(&other, allocate_and_get, 0);
	order(&other, allocate_and_get, 1);
	CHECK_OK(cuIpcOpenMemHandle_v2(&addresses[0], board->ipc[0], 1));
}

static void open_second(void)
{
	CHECK_OK(cuIpcOpenMemHandle_v2(&addresses[1], board->ipc[1], 1));
	CHECK_EQUAL(addresses[1], addresses[0]);
}

static void close_second(void)
{
	CHECK_OK(cuIpcCloseMemHandle(addresses[1]));
	order(&other, give_back_address, 0);
	order(&other, give_back_address, 1);
}

static const struct parked_row of_ipc[] = {
	{.name = "reused_by_opened",
	 .call = "cuIpcCloseMemHandle@1",
	 .done = true,
	 .outsider = "1g",
	 .prepare = with_opened,
	 .make = close_first,
	 .meanwhile = open_second,
	 .undo = close_second,
	 .beyond = 96,
	 .charges = -32,
	 .reserves = 32},
};
TEST_TABLE(of_ipc, parked_play);
