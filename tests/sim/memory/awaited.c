/*
 * Frees in stream order whose charge goes with a wait: at once, and not only when the accounts are
 * compared with NVML, which happens every 20 ms at most. So all here is quick.
 */
#include "stream_api.h"

#define OTHER_WAITS 12 /* more than read the pools' figures after a free */
#define BUSY        (2 * MS)

/* A pool's memory is freed in one stream, and another is waited for time and again. */
TEST(own_stream_after_others)
{
	CUstream stream = stream_start("4g"), other;
	CUfunction spin = spin_load();
	CUdeviceptr memory;

	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	memory = take_async(64 * MIB, stream);
	synchronise(stream);
	for (unsigned i = 0; i < OTHER_WAITS; i++)
		synchronise(other);
	busy(spin, BUSY, stream);
	give_async(memory, stream);
	for (unsigned i = 0; i < OTHER_WAITS; i++)
		synchronise(other);
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* A block is freed in stream order. Which stream the event is of is not known. */
TEST(block_by_event)
{
	CUstream stream = stream_start("4g");
	CUfunction spin = spin_load();
	CUevent event;

	CHECK_OK(cuEventCreate(&event, 0));
	for (unsigned i = 0; i < 5; i++) {
		CUdeviceptr block = take(64 * MIB);

		busy(spin, BUSY, stream);
		give_async(block, stream);
		CHECK_EQUAL(ledger_own(0).data, 64 * MIB);
		CHECK_OK(cuEventRecord(event, stream));
		CHECK_OK(cuEventSynchronize(event));
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* More frees of managed memory at a time than are kept in mind: the oldest is waited for. */
TEST(deferred_beyond_the_list)
{
	CUdeviceptr pieces[80];
	CUstream stream;
	CUfunction spin;

	env_set("VGPU_SIM_GPUS", "1x1G");
	env_set("CUDA_OVERSUBSCRIBE", "true");
	stream = stream_start("16g");
	spin = spin_load();
	take(450 * MIB); /* there is no room on the card for another piece */
	for (unsigned i = 0; i < 80; i++)
		pieces[i] = take_async(128 * MIB, stream);
	CHECK_EQUAL(ledger_own(0).data, 450 * MIB + 80 * 128 * MIB);
	busy(spin, 50 * MS, stream);
	for (unsigned i = 0; i < 80; i++)
		give_async(pieces[i], stream);
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 450 * MIB);
}

/* More frees of blocks at a time than are kept in mind, and a descriptor keeps the last block. */
TEST(exported_beyond_the_list)
{
	CUdeviceptr blocks[64], exported;
	CUstream stream = stream_start("4g"), other;
	CUfunction spin = spin_load();
	int fd = -1;

	for (unsigned i = 0; i < 64; i++)
		blocks[i] = take(GRANULE);
	exported = take(256 * MIB);
	CHECK_OK(cuMemGetHandleForAddressRange(&fd, exported, 256 * MIB,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	CHECK_OK(cuStreamCreate(&other, NON_BLOCKING));
	busy(spin, 200 * MS, stream);
	for (unsigned i = 0; i < 64; i++)
		give_async(blocks[i], stream);
	give_async(exported, other);
	synchronise(other);
	sleep_ms(50);
	synchronise(other); /* a comparison is due */
	CHECK_AT_MOST(outside_used(0), ledger_used(0));
	synchronise(stream);
	CHECK_AT_MOST(outside_used(0), ledger_used(0));
	CHECK_EQUAL(close(fd), 0);
}

static CUresult export_at(CUdeviceptr address, int *ret_fd)
{
	return cuMemGetHandleForAddressRange(ret_fd, address, GRANULE,
					     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

/* The stream has not come to the free, also where more frees wait than are kept in mind. The block
 * stays on the device for so long, and a descriptor would keep it. */
TEST(export_behind_a_stream)
{
	CUdeviceptr blocks[65];
	CUstream stream = stream_start("4g");
	CUfunction spin = spin_load();
	int fd = -1;

	for (unsigned i = 0; i < 65; i++)
		blocks[i] = take(GRANULE);
	busy(spin, 300 * MS, stream);
	for (unsigned i = 0; i < 65; i++)
		give_async(blocks[i], stream);
	for (unsigned i = 0; i < 65; i++)
		CHECK_EQUAL(export_at(blocks[i], &fd), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(fd, -1);
	synchronise(stream);
	sleep_ms(50);
	synchronise(stream);
	CHECK_AT_MOST(outside_used(0), ledger_used(0));
	for (unsigned i = 0; i < 65; i++)
		blocks[i] = take(GRANULE);
	for (unsigned i = 0; i < 65; i++) {
		CHECK_OK(export_at(blocks[i], &fd));
		CHECK_EQUAL(close(fd), 0);
	}
}
