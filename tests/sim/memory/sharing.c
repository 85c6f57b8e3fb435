/*
 * Memory that goes from process to process by its handle. Within a slice, the memory is charged
 * once, for as long as any process has it, whichever process releases it or dies first. Another
 * slice is charged for it as well, while it has the memory. A descriptor keeps the memory on the
 * device by itself, in no process's figure; the last exporter or importer is charged for it.
 */
#include "sharing_scene.h"

#include <unistd.h>

#define MANY 70 /* more exports than a signal's number could tell apart */

/* -- steps ------------------------------------------------------------------------------------ */

static CUdeviceptr spaces[THINGS]; /* each actor's own */

/* Maps the memory `handle` at the i-th space. Returns the CUresult. */
static CUresult map_at(uint64_t i, CUmemGenericAllocationHandle handle)
{
	if (!spaces[i])
		CHECK_OK(cuMemAddressReserve(&spaces[i], SIZE, 0, 0, 0));
	return cuMemMap(spaces[i], SIZE, 0, handle, 0);
}

static uint64_t map(uint64_t i)
{
	return map_at(i, handles[i]);
}

/* The memory 0, at a further space. */
static uint64_t map_again(uint64_t i)
{
	return map_at(i, handles[0]);
}

static uint64_t unmap(uint64_t i)
{
	return cuMemUnmap(spaces[i], SIZE);
}

static CUmemGenericAllocationHandle object; /* each actor's own */

static uint64_t bind(uint64_t i)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = SIZE};

	if (!object) {
		CHECK_OK(cuMulticastCreate(&object, &prop));
		CHECK_OK(cuMulticastAddDevice(object, 0));
	}
	return cuMulticastBindMem(object, 0, handles[i], 0, SIZE, 0);
}

static uint64_t unbind(uint64_t unused)
{
	(void)unused;
	return cuMulticastUnbind(object, 0, 0, SIZE);
}

/* Maps the memory into a sparse array, where nothing says how big the memory is. */
static uint64_t map_tile(uint64_t i)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
	CUarrayMapInfo info = {.memOperationType = CU_MEM_OPERATION_TYPE_MAP,
			       .memHandle = handles[i]};
	CUarray array;

	CHECK_OK(cuArray3DCreate_v2(&array, &desc));
	info.resource = array;
	return cuMemMapArrayAsync(&info, 1, NULL);
}

/* The ledger of a slice whose member was killed, before anything looks at the dead. */
static STEP(dead_is_charged, CHECK_EQUAL(ledger_used(0), 2 * CHARGE + i * SIZE));

static int copies[THINGS]; /* each actor's own, of files */

static uint64_t copy(uint64_t i)
{
	copies[i] = dup(files[i]);
	CHECK(copies[i] >= 0);
	return 0;
}

static STEP(copy_close, CHECK(close(copies[i]) == 0));
static STEP(copy_import,
	    CHECK_OK(cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)copies[i],
						    POSIX)));

static uint64_t copy_post(uint64_t i)
{
	parcel_send(copies[i]);
	return copy_close(i);
}

static CUmemGenericAllocationHandle many[MANY]; /* each actor's own */
static int many_files[MANY];                    /* likewise */

static uint64_t many_make(uint64_t unused)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	for (unsigned i = 0; i < MANY; i++) {
		CHECK_OK(cuMemCreate(&many[i], GRANULE, &prop, 0));
		CHECK_OK(cuMemExportToShareableHandle(&many_files[i], many[i], POSIX, 0));
	}
	return unused;
}

static STEP(many_post, parcel_send(many_files[i]));

static uint64_t many_fetch(uint64_t i)
{
	int fd = parcel_receive();

	CHECK_OK(cuMemImportFromShareableHandle(&many[i], (void *)(intptr_t)fd, POSIX));
	CHECK(close(fd) == 0);
	return 0;
}

static STEP(many_release, CHECK_OK(cuMemRelease(many[i])));
static STEP(many_close, CHECK(close(many_files[i]) == 0));

/* The slice's ledger has one context, the many exports, and so many units more. */
static STEP(many_are_charged, CHECK_EQUAL(ledger_used(0), CHARGE + i * SIZE + MANY * GRANULE));

/* -- scenes ----------------------------------------------------------------------------------- */

/* clang-format off */

/* A makes the memory 0; B imports and maps it. */
#define HAND_OVER                                                                          \
	{A, create, 0, {HELD, {1}}}, {A, send_off, 0}, {B, fetch, 0, {HELD, {1}}},         \
		{B, map, 0}, {B, release, 0, {HELD, {1}}}
#define SEND_TO(actor) {A, send_off, 0}, {actor, fetch, 0}, {actor, map, 0}

/* A has the memory 1, and makes the memory 0, which three actors import. The three end in turn. */
#define THREE_IMPORTERS(row, first, second, third)                                         \
	{row, .steps = {                                                                   \
		{A, create, 1}, {A, create, 0}, SEND_TO(B), SEND_TO(C), SEND_TO(D),        \
		{A, look, 0, {HELD, {2}}}, {A, release, 0, {HELD, {1, 1}}},                \
		{SCENE, scene_end, first}, {SCENE, scene_kill, second},                    \
		{third, release, 0, {HELD, {[A] = 1, [third] = 1}}},                       \
		{third, unmap, 0, {HELD, {1}}}, {SCENE, scene_end, third},                 \
		{A, release, 1, {HELD}}}}

static const struct scene in_slice[] = {
	{"importer_first", .rounds = 3, .steps = {
		HAND_OVER, {B, unmap, 0, {HELD, {1}}}, {A, release, 0, {HELD}}}},
	{"importer_killed", .steps = {
		HAND_OVER, {SCENE, scene_kill, B, {HELD, {1}}}, {A, release, 0, {HELD}}}},
	{"exporter_first", .rounds = 3, .steps = {
		HAND_OVER, {A, release, 0, {HELD, {0, 1}}}, {B, unmap, 0, {HELD}}}},
	{"exporter_killed", .steps = {
		HAND_OVER, {SCENE, scene_kill, A}, {SCENE, dead_is_charged, 1, {HELD, {0, 1}}},
		{B, unmap, 0, {HELD}}}},
	THREE_IMPORTERS("importers_b_c_d", B, C, D),
	THREE_IMPORTERS("importers_c_d_b", C, D, B),
	THREE_IMPORTERS("importers_d_b_c", D, B, C),
	{"sent_on", .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0}, {A, release, 0, {HELD, {0, 1}}},
		{B, send_off, 0}, {C, fetch, 0}, {C, map, 0, {HELD, {0, 1}}},
		{B, release, 0, {HELD, {0, 0, 1}}}, {C, release, 0, {HELD, {0, 0, 1}}},
		{C, unmap, 0, {HELD}}}},
	/* The import of its own memory gives an actor a second handle to the memory. */
	{"own_import_original_first", .steps = {
		{A, create, 0}, {A, send_off, 0}, {A, fetch, 1}, {A, map, 1, {HELD, {1}}},
		{A, release, 0, {HELD, {1}}}, {A, release, 1, {HELD, {1}}}, {A, unmap, 1, {HELD}}}},
	{"own_import_first", .steps = {
		{A, create, 0}, {A, send_off, 0}, {A, fetch, 1}, {A, map, 1, {HELD, {1}}},
		{A, release, 1, {HELD, {1}}}, {A, release, 0, {HELD, {1}}}, {A, unmap, 1, {HELD}}}},
};
TEST_TABLE(in_slice, scene_play);

/* What only a descriptor kept stays charged as `offset` when an actor imports it. */
static const struct scene descriptors[] = {
	{"kept_by_descriptor", .steps = {
		{A, create, 0}, {A, export, 0}, {A, release, 0, {HELD, {0}, {1}}},
		{A, look, 0, {HELD, {0}, {1}}}, {A, file_close, 0}, {SCENE, scene_holds, 0},
		{A, look, 0, {HELD}}}},
	{"descriptor_closed_first", .steps = {
		{A, create, 0}, {A, export, 0}, {A, file_close, 0}, {A, release, 0, {HELD}}}},
	{"killed_with_descriptor", .steps = {
		{A, create, 0}, {A, export, 0}, {A, release, 0}, {SCENE, scene_kill, A, {HELD}}}},
	{"kept_by_copy", .steps = {
		{A, create, 0}, {A, export, 0}, {A, copy, 0}, {A, file_close, 0},
		{A, release, 0, {HELD, {0}, {1}}}, {A, look, 0, {HELD, {0}, {1}}},
		{A, copy_close, 0}, {A, look, 0, {HELD}}}},
	{"copy_imported", .steps = {
		{A, create, 0}, {A, export, 0}, {A, copy, 0}, {A, file_close, 0}, {A, release, 0},
		{A, copy_import, 0}, {A, map, 0}, {A, look, 0, {HELD, {0}, {1}}}, {A, unmap, 0},
		{A, release, 0, {HELD, {0}, {1}}}, {A, copy_close, 0}, {A, look, 0, {HELD}}}},
	/* Nobody has received the descriptor yet; then B has, and not imported it. */
	{"kept_on_the_way", .steps = {
		{A, create, 0}, {A, send_off, 0}, {A, release, 0, {HELD, {0}, {1}}},
		{B, receive, 0}, {A, look, 0, {HELD, {0}, {1}}}, {B, import, 0},
		{B, file_close, 0}, {A, look, 0, {HELD, {0}, {1}}}, {B, release, 0},
		{A, look, 0, {HELD}}}},
	{"exporter_ends_before_import", .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, receive, 0}, {SCENE, scene_end, A},
		{SCENE, scene_is_covered, 0}, {B, look, 0, {HELD, {0}, {0, 1}}},
		{B, import, 0, {HELD, {0}, {0, 1}}}, {B, map, 0}, {B, release, 0}, {B, file_close, 0},
		{B, look, 0, {HELD, {0}, {0, 1}}}, {B, unmap, 0}, {B, look, 0, {HELD}}}},
	{"exporter_killed_before_import", .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, receive, 0}, {A, release, 0},
		{SCENE, scene_kill, A}, {SCENE, scene_is_covered, 0},
		{B, look, 0, {HELD, {0}, {0, 1}}},
		{B, import, 0, {HELD, {0}, {0, 1}}}, {B, map, 0}, {B, release, 0}, {B, file_close, 0},
		{B, look, 0, {HELD, {0}, {0, 1}}}, {B, unmap, 0}, {B, look, 0, {HELD}}}},
	/* B's own descriptor is left after its import ended, and the received one, too. */
	{"kept_by_importer", .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, receive, 0}, {B, import, 0}, {A, release, 0},
		{B, export, 0}, {B, release, 0}, {B, look, 0, {HELD, {0}, {0, 1}}},
		{SCENE, scene_kill, B, {HELD}}}},
	/* An outsider's memory that B has exported in its turn stays charged to B's end. */
	{"exported_again", .outsider = {[A] = "2g"}, .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0}, {B, map, 0, {CHARGED, {1}, {0, 1}}},
		{B, export, 0}, {B, file_close, 0}, {B, release, 0},
		{B, unmap, 0, {CHARGED, {1}, {0, 1}}}, {SCENE, scene_end, B},
		{A, release, 0, {CHARGED}}}},
	/* Memory that only a descriptor keeps is not taken for an export made since. */
	{"never_used_again", .outsider = {[B] = "2g"}, .steps = {
		{A, create, 0}, {A, export, 0}, {A, copy, 0}, {A, file_close, 0}, {A, release, 0},
		{A, many_make, 0}, {SCENE, many_are_charged, 1}, {A, copy_import, 0}, {A, map, 0},
		{SCENE, many_are_charged, 1}, {A, copy_post, 0}, {B, fetch, 0}, {B, map, 0},
		{SCENE, scene_end, A, {CHARGED, {0}, {0, 1}}}}},
	/* The end of the last context takes nothing of what belongs to none. */
	{"contexts_end", .outsider = {[B] = "1g"}, .steps = {
		{A, create, 0}, {A, create, 1}, {A, export, 1}, {A, release, 1}, {A, send_off, 0},
		{B, fetch, 0}, {B, map, 0, {CHARGED, {1}, {1, 1}}}, {A, context_reset, 0},
		{B, context_reset, 0, {CHARGED, {1}, {1, 1}}}, {A, file_close, 1},
		{A, look, 0, {CHARGED, {1}, {0, 1}}}}},
};
TEST_TABLE(descriptors, scene_play);

/* An outsider's limit is a context and 496, 100 or 52 MiB. */
static const struct scene other_slice[] = {
	{"handle_of_outsider", .outsider = {[B] = "1g"}, .rounds = 2, .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0},
		{B, map, 0, {CHARGED, {1}, {0, 1}}}, {SCENE, scene_holds, 1},
		{B, release, 0, {CHARGED, {1}, {0, 1}}}, {B, unmap, 0, {CHARGED, {1}}},
		{A, release, 0, {CHARGED}}}},
	{"handle_too_big", .outsider = {[B] = "580m"}, .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0},
		{B, map, 0, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, map, 0, {CHARGED, {1}}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, release, 0, {CHARGED, {1}}}, {A, release, 0, {CHARGED}},
		{SCENE, scene_holds, 0}}},
	/* Memory that is bound to an object is charged as mapped memory is. */
	{"handle_bound", .outsider = {[B] = "628m"}, .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0},
		{A, create, 1}, {A, send_off, 1}, {B, fetch, 1},
		{B, map_tile, 0, {CHARGED, {2}}, CUDA_ERROR_NOT_SUPPORTED}, {B, bind, 0},
		{B, release, 0, {CHARGED, {2}, {0, 1}}}, {B, bind, 1, {0}, CUDA_ERROR_OUT_OF_MEMORY},
		{B, unbind, 0, {CHARGED, {2}}}, {B, bind, 1, {CHARGED, {2}, {0, 1}}}}},
	/* The limit has room for the memory once. */
	{"handle_mapped_twice", .outsider = {[B] = "628m"}, .steps = {
		{A, create, 0}, {A, send_off, 0}, {B, fetch, 0}, {B, map, 0}, {B, map_again, 1},
		{B, release, 0}, {B, unmap, 0, {CHARGED, {1}, {0, 1}}},
		{B, unmap, 1, {CHARGED, {1}}}}},
};
TEST_TABLE(other_slice, scene_play);
/* clang-format on */

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
