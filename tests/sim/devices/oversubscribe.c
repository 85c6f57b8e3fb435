/* Memory beyond the card: where the slice may have it, what the card refuses goes to the host. */
#include "stream_api.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE  (128 * MIB)
#define PIECES (3 * GIB / PIECE)
#define CARD   GIB
#define QUOTA  (4 * GIB)

static CUdeviceptr pieces[256];

/* A card of 1 GiB, and 4 GiB of it. */
static void card_and_quota(const char *word)
{
	env_set("VGPU_SIM_GPUS", "1x1G");
	env_set("VGPU_SIM_CONTEXT_MIB", "300");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	env_set("CUDA_OVERSUBSCRIBE", word);
}

static void policy(const char *slice)
{
	env_set("VGPU_SIM_GPUS", "1x1G");
	policy_write(gpu_uuid(0), "memory = 4G\n");
	policy_write("slice", slice);
}

static void assert_view(uint64_t total, uint64_t available)
{
	size_t shown_free = 0, shown_total = 0, device_total = 0;
	struct figures by_nvml = inside(0, 1);

	CHECK_OK(cuMemGetInfo_v2(&shown_free, &shown_total));
	CHECK_EQUAL(shown_total, total);
	CHECK_EQUAL(shown_free, available);
	CHECK_OK(cuDeviceTotalMem_v2(&device_total, 0));
	CHECK_EQUAL(device_total, total);
	CHECK_EQUAL(by_nvml.total, total);
	CHECK_EQUAL(by_nvml.used, ledger_used(0));
	CHECK_EQUAL(by_nvml.free, total - ledger_used(0));
	CHECK_EQUAL(inside(0, 2).total, total);
}

/* The card is held, 3 GiB are had, and no more than the quota. */
static void assert_beyond(void)
{
	uint64_t bare, used;
	unsigned more;

	cuda_start(0);
	give(take(1));
	bare = ledger_used(0);
	for (unsigned i = 0; i < PIECES; i++)
		pieces[i] = take(PIECE);
	CHECK_AT_MOST(outside_used(0), CARD);
	CHECK_AT_MOST(CARD - PIECE, outside_used(0));
	CHECK_EQUAL(ledger_used(0), bare + 3 * GIB);
	assert_view(QUOTA, QUOTA - ledger_used(0));
	memset((void *)(uintptr_t)pieces[PIECES - 1], 1, MIB); /* it is memory */
	refused(2 * GIB);
	more = fill(pieces + PIECES, 256 - PIECES, PIECE);
	used = ledger_used(0);
	CHECK_EQUAL(more, (QUOTA - bare - 3 * GIB) / PIECE);
	CHECK_AT_MOST(used, QUOTA);
	CHECK_AT_MOST(QUOTA - PIECE, used);
	for (unsigned i = 0; i < PIECES + more; i++)
		give(pieces[i]);
	CHECK_EQUAL(ledger_used(0), bare);
	assert_view(QUOTA, QUOTA - bare);
}

static void assert_not_beyond(void)
{
	cuda_start(0);
	CHECK_AT_MOST(fill(pieces, 256, PIECE), CARD / PIECE - 1);
	CHECK_EQUAL(inside(0, 1).total, CARD);
}

static const struct word {
	const char *name, *word; /* CUDA_OVERSUBSCRIBE, or NULL */
	bool beyond;
} words[] = {
	{"switched_on", "true", true},    {"in_capitals", "TRUE", true},  {"by_number", "1", true},
	{"switched_off", "false", false}, {"not_asked_for", NULL, false},
};

static void as_the_word_says(const struct word *row)
{
	card_and_quota(row->word);
	if (row->beyond)
		assert_beyond();
	else
		assert_not_beyond();
}

TEST_TABLE(words, as_the_word_says);

TEST(by_policy)
{
	policy("oversubscribe = yes\n");
	env_set("VGPU_SIM_CONTEXT_MIB", "300");
	assert_beyond();
}

/* A tenant's environment lifts nothing. */
TEST(policy_does_not)
{
	policy("# nothing\n");
	env_set("CUDA_OVERSUBSCRIBE", "true");
	assert_not_beyond();
}

TEST(wrong_word)
{
	card_and_quota("perhaps");
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* While there is room on the card, nothing is managed: the process's figure has it. */
TEST(card_first)
{
	CUdeviceptr p;

	card_and_quota("true");
	cuda_start(0);
	p = take(400 * MIB);
	CHECK_EQUAL(outside_of(0, getpid()), 700 * MIB);
	CHECK_EQUAL(ledger_own(0).data, 400 * MIB);
	give(p);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* Rows are as the driver lays them out, and the charge is theirs. */
TEST(pitched)
{
	CUdeviceptr p = UNTOUCHED;
	size_t pitch = UNTOUCHED;
	uint64_t before;

	card_and_quota("true");
	cuda_start(0);
	CHECK_OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 2 * MIB, 4));
	CHECK_EQUAL(pitch, 1024);
	CHECK_EQUAL(ledger_own(0).data, 2 * GIB);
	memset((void *)(uintptr_t)(p + 2 * GIB - MIB), 1, MIB);
	before = ledger_used(0);
	p = UNTOUCHED;
	pitch = UNTOUCHED;
	CHECK_EQUAL(cuMemAllocPitch_v2(&p, &pitch, 1000, 2 * MIB, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(p, UNTOUCHED);
	CHECK_EQUAL(pitch, UNTOUCHED);
	CHECK_EQUAL(ledger_used(0), before);
}

/* The driver that has no managed memory either refuses as it did, and all is given back. */
TEST(no_managed)
{
	uint64_t before;

	card_and_quota("true");
	env_set("VGPU_SIM_FAULTS", "cuMemAllocManaged=801");
	cuda_start(0);
	give(take(1));
	before = ledger_used(0);
	refused(2 * GIB);
	CHECK_EQUAL(ledger_used(0), before);
	give(take(400 * MIB));
}

/* The advice is only that. */
TEST(no_advice)
{
	card_and_quota("true");
	env_set("VGPU_SIM_FAULTS", "cuMemAdvise=801");
	cuda_start(0);
	give(take(2 * GIB));
}

/* The quota counts in chunks then: what the granules had room for, they may not. */
TEST(full_by_chunks)
{
	CUdeviceptr odd;
	uint64_t before;

	card_and_quota("true");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1440m");
	cuda_start(0);
	odd = take(800 * MIB);
	before = ledger_used(0);
	refused(230 * MIB); /* 256 MiB would be charged for it, and 234 are left */
	CHECK_EQUAL(ledger_used(0), before);
	give(take(128 * MIB));
	CHECK_EQUAL(ledger_used(0), before);
	give(odd);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* It goes with its context. */
TEST(with_its_context)
{
	card_and_quota("true");
	cuda_start(0);
	take(2 * GIB);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* Two tenants hold more than the card together. */
static void neighbour(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	cuda_start(0);
	take(1100 * MIB);
	say_ready(wire);
}

TEST(beside_another)
{
	struct member other;

	card_and_quota("true");
	env_set("VGPU_SIM_GPUS", "1x2G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1500m");
	other = member_begin(neighbour);
	cuda_start(0);
	take(GIB);
	CHECK_EQUAL(ledger_used(0), 310 * MIB + GIB);
	refused(GIB);
	assert_view(1500 * MIB, 1500 * MIB - ledger_used(0));
	member_finish(&other);
}

/* -- stream-ordered memory --------------------------------------------------------------------- */

/* It goes beyond the card, and comes back when the stream has come to the free, not before. */
TEST(stream_ordered)
{
	CUfunction spin;
	CUstream stream;
	uint64_t bare;

	card_and_quota("true");
	cuda_start(0);
	spin = spin_load();
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	give(take(1));
	bare = ledger_used(0); /* with the kernel's code */
	for (unsigned i = 0; i < PIECES; i++)
		pieces[i] = take_async(PIECE, stream);
	CHECK_AT_MOST(outside_used(0), CARD);
	CHECK_AT_MOST(bare + 3 * GIB, ledger_used(0));
	CHECK_AT_MOST(ledger_used(0), QUOTA);
	memset((void *)(uintptr_t)pieces[PIECES - 1], 1, MIB);
	CHECK_EQUAL(cuMemAllocAsync(&pieces[PIECES], 2 * GIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	busy(spin, 200 * MS, stream);
	for (unsigned i = 0; i < PIECES; i++)
		CHECK_OK(cuMemFreeAsync(pieces[i], stream));
	memset((void *)(uintptr_t)pieces[PIECES - 1], 2, MIB); /* the stream is not there yet */
	give(take(1));
	CHECK_AT_MOST(bare + 2 * GIB, ledger_used(0));
	CHECK_OK(cuStreamSynchronize(stream));
	CHECK_EQUAL(ledger_used(0), bare);
	CHECK_EQUAL(cuMemFreeAsync(pieces[PIECES - 1], stream), CUDA_ERROR_INVALID_VALUE);
}

/* More frees at a time than are kept in mind, and what is left of them goes with the context. */
TEST(many_frees)
{
	CUstream stream;
	uint64_t bare;

	card_and_quota("true");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "16g");
	cuda_start(0);
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	bare = ledger_used(0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 100; i++)
			pieces[i] = take_async(PIECE, stream);
		for (unsigned i = 0; i < 100; i++)
			CHECK_OK(cuMemFreeAsync(pieces[i], stream));
	}
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	cuda_start(0);
	CHECK_OK(cuCtxSynchronize()); /* the pool outlives the context */
	give(take(1));
	CHECK_AT_MOST(ledger_used(0), bare + 4 * MIB);
}

/* What promises memory of the device is refused, which is said once. */
static void explicit_child(void)
{
	const CUmemAllocationProp prop = MEMORY_OF_GPU_0;
	CUmemPoolProps properties = POOL_OF_GPU_0;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;

	cuda_start(0);
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQUAL(cuMemAllocFromPoolAsync(&pieces[0], 2 * GIB, pool, NULL),
			    CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(cuMemCreate(&handle, 2 * GIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	}
}

TEST(explicit_refused)
{
	struct said said;

	card_and_quota("true");
	env_set("LIBCUDA_LOG_LEVEL", NULL);
	said = member_listen(explicit_child);
	if (said.status || lines_in(said.err) != 2)
		fprintf(stderr, "%s", said.err);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 2);
	CHECK(strstr(said.err, "cuMemAllocFromPoolAsync is refused because the card has no room"));
	CHECK(strstr(said.err, "cuMemCreate is refused because the card has no room"));
}
