/*
 * Memory that goes from process to process by its handle. Within a slice it is charged once, for as
 * long as any process has it, whoever lets go or dies first; another slice is charged for it too,
 * while it has it.
 */
#include "sharing_fixture.h"

#include <unistd.h>

#define MANY 70 /* more exports than a signal's number could tell apart */

static CUdeviceptr spaces[THINGS]; /* each actor's own */

/* What the driver, or the library, answers. */
static uint64_t try_map(uint64_t i)
{
	if (!spaces[i])
		CHECK_CUDA(cuMemAddressReserve(&spaces[i], SIZE, 0, 0, 0), CUDA_SUCCESS);
	return cuMemMap(spaces[i], SIZE, 0, handles[i], 0);
}

static uint64_t map(uint64_t i)
{
	CHECK_CUDA(try_map(i), CUDA_SUCCESS);
	return 0;
}

/* The 0th, once more. */
static uint64_t map_again(uint64_t i)
{
	CHECK_CUDA(cuMemAddressReserve(&spaces[i], SIZE, 0, 0, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuMemMap(spaces[i], SIZE, 0, handles[0], 0), CUDA_SUCCESS);
	return 0;
}

static uint64_t unmap(uint64_t i)
{
	CHECK_CUDA(cuMemUnmap(spaces[i], SIZE), CUDA_SUCCESS);
	return 0;
}

/* -- within the slice ------------------------------------------------------------------------- */

/* a has made it and sent it, b has imported and mapped it. */
static void hand_over(struct member *a, struct member *b)
{
	order(a, create, 0);
	assert_held(2, SIZE);
	order(a, send_off, 0);
	order(b, fetch, 0);
	assert_held(2, SIZE);
	order(b, map, 0);
	order(b, release, 0);
	assert_held(2, SIZE);
	assert_charged(a, SIZE, 0);
	assert_charged(b, 0, 0);
}

TEST(importer_lets_go)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	for (unsigned round = 0; round < 3; round++) {
		hand_over(&a, &b);
		order(&b, unmap, 0);
		assert_held(2, SIZE);
		order(&a, release, 0);
		assert_held(2, 0);
	}
	hand_over(&a, &b);
	member_kill(&b);
	assert_held(1, SIZE);
	order(&a, release, 0);
	assert_held(1, 0);
	dismiss(&a);
	assert_held(0, 0);
}

TEST(exporter_lets_go)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	for (unsigned round = 0; round < 3; round++) {
		hand_over(&a, &b);
		order(&a, release, 0);
		assert_held(2, SIZE);
		assert_charged(&a, 0, 0);
		assert_charged(&b, SIZE, 0);
		order(&b, unmap, 0);
		assert_held(2, 0);
	}
	hand_over(&a, &b);
	member_kill(&a);
	CHECK_EQUAL(ledger_used(0), 2 * CHARGE + SIZE); /* nobody has looked yet */
	assert_held(1, SIZE);
	assert_charged(&b, SIZE, 0);
	order(&b, unmap, 0);
	assert_held(1, 0);
	dismiss(&b);
	assert_held(0, 0);
}

/* members[0] has something else, and made what the others have imported, each from a descriptor of
 * its own. */
static void hand_round(struct member members[4])
{
	for (unsigned i = 0; i < 4; i++)
		members[i] = actor();
	order(&members[0], create, 1);
	order(&members[0], create, 0);
	for (unsigned i = 1; i < 4; i++) {
		order(&members[0], send_off, 0);
		order(&members[i], fetch, 0);
		order(&members[i], map, 0);
	}
	assert_held(4, 2 * SIZE);
	assert_charged(&members[0], 2 * SIZE, 0);
	order(&members[0], release, 0);
	assert_held(4, 2 * SIZE);
	assert_charged(&members[0], SIZE, 0);
}

/* Whichever goes first, it is charged until the last one's end. */
TEST(several_importers)
{
	struct member members[4];

	begin();
	for (unsigned first = 1; first < 4; first++) {
		unsigned second = first % 3 + 1, third = second % 3 + 1;

		hand_round(members);
		dismiss(&members[first]);
		assert_held(3, 2 * SIZE);
		member_kill(&members[second]);
		assert_held(2, 2 * SIZE);
		assert_charged(&members[third], SIZE, 0);
		order(&members[third], release, 0);
		assert_held(2, 2 * SIZE);
		order(&members[third], unmap, 0);
		assert_held(2, SIZE);
		dismiss(&members[third]);
		order(&members[0], release, 1);
		assert_held(1, 0);
		dismiss(&members[0]);
		assert_held(0, 0);
	}
}

/* Who got it sends it on, and lets go: it is charged once to the last. */
TEST(sent_on)
{
	struct member a, b, c;

	begin();
	a = actor();
	b = actor();
	c = actor();
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&b, fetch, 0);
	order(&a, release, 0);
	assert_held(3, SIZE);
	order(&b, send_off, 0);
	order(&c, fetch, 0);
	order(&c, map, 0);
	assert_charged(&b, SIZE, 0);
	assert_charged(&c, 0, 0);
	assert_held(3, SIZE);
	order(&b, release, 0);
	assert_charged(&c, SIZE, 0);
	assert_held(3, SIZE);
	order(&c, release, 0);
	assert_held(3, SIZE);
	order(&c, unmap, 0);
	assert_held(3, 0);
	dismiss(&a);
	dismiss(&b);
	dismiss(&c);
}

/* Importing what one has oneself gives a second handle to the same memory. */
TEST(own_import)
{
	struct member a;

	begin();
	a = actor();
	for (unsigned first = 0; first < 2; first++) {
		order(&a, create, 0);
		order(&a, send_off, 0);
		order(&a, fetch, 1);
		order(&a, map, 1);
		assert_held(1, SIZE);
		order(&a, release, first);
		assert_held(1, SIZE);
		order(&a, release, !first);
		assert_held(1, SIZE);
		assert_charged(&a, SIZE, 0);
		order(&a, unmap, 1);
		assert_held(1, 0);
	}
	dismiss(&a);
}

/* A descriptor keeps the memory on the device, in nobody's figure. */
TEST(kept_by_descriptor)
{
	struct member a;

	begin();
	a = actor();
	order(&a, create, 0);
	order(&a, export, 0);
	order(&a, release, 0);
	assert_held(1, SIZE);
	assert_charged(&a, 0, SIZE);
	order(&a, look, 0);
	assert_held(1, SIZE);
	assert_charged(&a, 0, SIZE);
	order(&a, file_close, 0);
	CHECK_EQUAL(outside_used(0), FIGURE);
	order(&a, look, 0);
	assert_held(1, 0);
	assert_charged(&a, 0, 0);
	order(&a, create, 0); /* closed first */
	order(&a, export, 0);
	order(&a, file_close, 0);
	order(&a, release, 0);
	assert_held(1, 0);
	order(&a, create, 0);
	order(&a, export, 0);
	order(&a, release, 0);
	member_kill(&a);
	assert_held(0, 0);
}

/* -- descriptors ------------------------------------------------------------------------------ */

static int copies[THINGS]; /* each actor's own, of files */

static uint64_t copy(uint64_t i)
{
	copies[i] = dup(files[i]);
	CHECK(copies[i] >= 0);
	return 0;
}

static uint64_t copy_close(uint64_t i)
{
	CHECK(close(copies[i]) == 0);
	return 0;
}

static uint64_t copy_import(uint64_t i)
{
	CHECK_CUDA(cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)copies[i], POSIX),
		   CUDA_SUCCESS);
	return 0;
}

static uint64_t copy_post(uint64_t i)
{
	parcel_send(copies[i]);
	return copy_close(i);
}

/* A copy of the descriptor keeps the memory as well as the first, and is known again. */
TEST(kept_by_copy)
{
	struct member a;

	begin();
	a = actor();
	for (unsigned round = 0; round < 2; round++) {
		order(&a, create, 0);
		order(&a, export, 0);
		order(&a, copy, 0);
		order(&a, file_close, 0);
		order(&a, release, 0);
		assert_held(1, SIZE);
		order(&a, look, 0);
		assert_held(1, SIZE);
		if (round) {
			order(&a, copy_import, 0);
			order(&a, map, 0);
			order(&a, look, 0);
			assert_held(1, SIZE);
			order(&a, unmap, 0);
			order(&a, release, 0);
			assert_held(1, SIZE);
		}
		order(&a, copy_close, 0);
		order(&a, look, 0);
		assert_held(1, 0);
		assert_charged(&a, 0, 0);
	}
	dismiss(&a);
	assert_held(0, 0);
}

/* So does one that was sent and that nobody has received, and one that somebody has received and
 * not imported. */
TEST(kept_on_the_way)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&a, release, 0);
	assert_held(2, SIZE);
	order(&b, receive, 0);
	order(&a, look, 0);
	assert_held(2, SIZE);
	order(&b, import, 0);
	order(&b, file_close, 0);
	order(&a, look, 0);
	assert_held(2, SIZE);
	order(&b, release, 0);
	order(&a, look, 0);
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
	assert_held(0, 0);
}

/* The exporter ends, killed or not, and a descriptor is left elsewhere. */
TEST(kept_after_exporter)
{
	struct member a, b;

	begin();
	b = actor();
	for (unsigned killed = 0; killed < 2; killed++) {
		a = actor();
		order(&a, create, 0);
		order(&a, send_off, 0);
		order(&b, receive, 0);
		if (killed) {
			order(&a, release, 0);
			member_kill(&a);
		} else {
			dismiss(&a);
		}
		CHECK_AT_MOST(outside_used(0), ledger_used(0));
		order(&b, look, 0);
		assert_held(1, SIZE);
		order(&b, import, 0);
		assert_held(1, SIZE);
		order(&b, map, 0);
		order(&b, release, 0);
		order(&b, file_close, 0);
		order(&b, look, 0);
		assert_held(1, SIZE);
		order(&b, unmap, 0);
		order(&b, look, 0);
		assert_held(1, 0);
	}
	dismiss(&b);
	assert_held(0, 0);
}

/* The importer lets go, and its own descriptor is left. */
TEST(kept_by_importer)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&b, receive, 0);
	order(&b, import, 0);
	order(&a, release, 0);
	order(&b, export, 0); /* in place of the received one, which stays open */
	order(&b, release, 0);
	order(&b, look, 0);
	assert_held(2, SIZE);
	member_kill(&b);
	assert_held(1, 0);
	dismiss(&a);
	assert_held(0, 0);
}

static CUmemGenericAllocationHandle many[MANY]; /* each actor's own */
static int many_files[MANY];                    /* likewise */

static uint64_t many_make(uint64_t unused)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	for (unsigned i = 0; i < MANY; i++) {
		CHECK_CUDA(cuMemCreate(&many[i], GRANULE, &prop, 0), CUDA_SUCCESS);
		CHECK_CUDA(cuMemExportToShareableHandle(&many_files[i], many[i], POSIX, 0),
			   CUDA_SUCCESS);
	}
	return unused;
}

static uint64_t many_post(uint64_t i)
{
	parcel_send(many_files[i]);
	return 0;
}

static uint64_t many_fetch(uint64_t i)
{
	int fd = parcel_receive();

	CHECK_CUDA(cuMemImportFromShareableHandle(&many[i], (void *)(intptr_t)fd, POSIX),
		   CUDA_SUCCESS);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t many_release(uint64_t i)
{
	CHECK_CUDA(cuMemRelease(many[i]), CUDA_SUCCESS);
	return 0;
}

static uint64_t many_close(uint64_t i)
{
	CHECK(close(many_files[i]) == 0);
	return 0;
}

/* Each of many exports that live at once is known again. */
TEST(many_exports)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, many_make, 0);
	for (unsigned i = 0; i < MANY; i++) {
		order(&a, many_post, i);
		order(&b, many_fetch, i);
	}
	assert_held(2, MANY * GRANULE);
	assert_charged(&a, MANY * GRANULE, 0);
	assert_charged(&b, 0, 0);
	for (unsigned i = 0; i < MANY; i++) {
		order(&a, many_close, i);
		order(&a, many_release, i);
	}
	assert_held(2, MANY * GRANULE);
	assert_charged(&b, MANY * GRANULE, 0);
	for (unsigned i = 0; i < MANY; i++)
		order(&b, many_release, i);
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
}

/* What was let go of as a descriptor is not taken for what was exported since. */
TEST(never_used_again)
{
	struct member a, b;

	begin();
	b = outsider("2g");
	a = actor();
	order(&a, create, 0);
	order(&a, export, 0);
	order(&a, copy, 0);
	order(&a, file_close, 0);
	order(&a, release, 0);
	order(&a, many_make, 0);
	CHECK_EQUAL(ledger_used(0), CHARGE + SIZE + MANY * GRANULE);
	order(&a, copy_import, 0);
	order(&a, map, 0);
	CHECK_EQUAL(ledger_used(0), CHARGE + SIZE + MANY * GRANULE);
	order(&a, copy_post, 0);
	order(&b, fetch, 0);
	order(&b, map, 0); /* another slice's, that counts it too */
	assert_outsider(&b, 0, SIZE);
	dismiss(&b);
	dismiss(&a);
	assert_held(0, 0);
}

/* The end of the last context takes nothing of what is of none. */
TEST(contexts_end)
{
	struct member a, b;

	begin();
	b = outsider("1g");
	a = actor();
	order(&a, create, 0);
	order(&a, create, 1);
	order(&a, export, 1);
	order(&a, release, 1);
	order(&a, send_off, 0);
	order(&b, fetch, 0);
	order(&b, map, 0);
	assert_charged(&a, SIZE, SIZE);
	order(&a, context_reset, 0);
	order(&b, context_reset, 0);
	assert_charged(&a, SIZE, SIZE);
	assert_outsider(&b, 0, SIZE);
	order(&a, file_close, 1);
	order(&a, look, 0);
	assert_charged(&a, SIZE, 0);
	dismiss(&b);
	dismiss(&a);
	assert_held(0, 0);
}

/* -- another slice ---------------------------------------------------------------------------- */

TEST(handle_of_outsider)
{
	struct member a, b;

	begin();
	b = outsider("1g");
	a = actor();
	for (unsigned dies = 0; dies < 2; dies++) {
		order(&a, create, 0);
		order(&a, send_off, 0);
		order(&b, fetch, 0);
		order(&b, map, 0);
		assert_charged(&a, SIZE, 0);
		assert_outsider(&b, 0, SIZE);
		CHECK_EQUAL(outside_used(0), 2 * FIGURE + SIZE);
		order(&b, release, 0);
		assert_outsider(&b, 0, SIZE);
		order(&b, unmap, 0);
		assert_outsider(&b, 0, 0);
		assert_charged(&a, SIZE, 0);
		order(&a, release, 0);
		CHECK_EQUAL(ledger_used(0), CHARGE);
	}
	dismiss(&a);
	dismiss(&b);
	assert_held(0, 0);
}

/* Its quota is not enough for it. */
TEST(handle_too_big)
{
	struct member a, b;

	begin();
	b = outsider("580m"); /* a context and 52 MiB */
	a = actor();
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&b, fetch, 0);
	CHECK_CUDA(order(&b, try_map, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_outsider(&b, 0, 0);
	CHECK_CUDA(order(&b, try_map, 0), CUDA_ERROR_OUT_OF_MEMORY);
	order(&b, release, 0);
	assert_outsider(&b, 0, 0);
	order(&a, release, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE);
	CHECK_EQUAL(ledger_used(0), CHARGE);
	dismiss(&a);
	dismiss(&b);
}

/* -- bound, not mapped -- */

static CUmemGenericAllocationHandle object; /* each actor's own */

static uint64_t try_bind(uint64_t i)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = SIZE};

	if (!object) {
		CHECK_CUDA(cuMulticastCreate(&object, &prop), CUDA_SUCCESS);
		CHECK_CUDA(cuMulticastAddDevice(object, 0), CUDA_SUCCESS);
	}
	return cuMulticastBindMem(object, 0, handles[i], 0, SIZE, 0);
}

static uint64_t unbind(uint64_t unused)
{
	CHECK_CUDA(cuMulticastUnbind(object, 0, 0, SIZE), CUDA_SUCCESS);
	return unused;
}

/* Nothing says how big the memory is. */
static uint64_t try_tile(uint64_t i)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
	CUarrayMapInfo info = {.memOperationType = CU_MEM_OPERATION_TYPE_MAP,
			       .memHandle = handles[i]};
	CUarray array;

	CHECK_CUDA(cuArray3DCreate_v2(&array, &desc), CUDA_SUCCESS);
	info.resource = array;
	return cuMemMapArrayAsync(&info, 1, NULL);
}

/* Memory of another slice that is bound to something is charged like what is mapped. */
TEST(handle_bound)
{
	struct member a, b;

	begin();
	b = outsider("628m"); /* a context and 100 MiB */
	a = actor();
	for (unsigned i = 0; i < 2; i++) {
		order(&a, create, i);
		order(&a, send_off, i);
		order(&b, fetch, i);
	}
	CHECK_CUDA(order(&b, try_tile, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_outsider(&b, 0, 0);
	CHECK_CUDA(order(&b, try_bind, 0), CUDA_SUCCESS);
	order(&b, release, 0);
	assert_outsider(&b, 0, SIZE);
	CHECK_CUDA(order(&b, try_bind, 1), CUDA_ERROR_OUT_OF_MEMORY);
	order(&b, unbind, 0);
	assert_outsider(&b, 0, 0);
	CHECK_CUDA(order(&b, try_bind, 1), CUDA_SUCCESS);
	assert_outsider(&b, 0, SIZE);
	dismiss(&b);
	dismiss(&a);
	assert_held(0, 0);
}

/* There is room for it once, and it can be mapped twice. */
TEST(handle_mapped_twice)
{
	struct member a, b;

	begin();
	b = outsider("628m"); /* a context and 100 MiB */
	a = actor();
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&b, fetch, 0);
	order(&b, map, 0);
	order(&b, map_again, 1);
	order(&b, release, 0);
	order(&b, unmap, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, unmap, 1);
	assert_outsider(&b, 0, 0);
	dismiss(&b);
	dismiss(&a);
	assert_held(0, 0);
}
