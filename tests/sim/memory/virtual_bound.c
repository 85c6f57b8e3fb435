/*
 * Memory with a handle that is mapped into sparse arrays or bound to multicast objects is charged
 * as long as they have it.
 */
#include "parked.h"
#include "virtual_fixture.h"

#define ARRAY     0 /* of a CUarrayMapInfo */
#define MIPMAPPED 1

/* -- sparse arrays ---------------------------------------------------------------------------- */

/* A row names three. They take no memory by themselves. */
enum { X, Y, Z, ARRAYS };

static struct {
	void *handle;
	unsigned type;
} arrays[ARRAYS];

static const CUDA_ARRAY3D_DESCRIPTOR sparse = {
	1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};

static CUresult make_array(const struct act_call *call)
{
	CUarray array = NULL;
	CUresult result = cuArray3DCreate_v2(&array, &sparse);

	arrays[call->in].handle = array;
	arrays[call->in].type = ARRAY;
	return result;
}

static CUresult make_mipmapped(const struct act_call *call)
{
	CUmipmappedArray array = NULL;
	CUresult result = cuMipmappedArrayCreate(&array, &sparse, 2);

	arrays[call->in].handle = array;
	arrays[call->in].type = MIPMAPPED;
	return result;
}

static CUresult destroy(const struct act_call *call)
{
	void *array = arrays[call->in].handle;

	return arrays[call->in].type == ARRAY ? cuArrayDestroy(array)
					      : cuMipmappedArrayDestroy(array);
}

static CUarrayMapInfo tile_with(unsigned array, uint64_t number, memory handle)
{
	return (CUarrayMapInfo){
		.resource = arrays[array].handle,
		.resourceType = arrays[array].type,
		.subresource = {0, 0, (unsigned)number},
		.memOperationType = CU_MEM_OPERATION_TYPE_MAP,
		.memHandle = handle,
	};
}

static CUresult map_list(CUarrayMapInfo *list, unsigned count, bool per_thread)
{
	return per_thread ? cuMemMapArrayAsync_ptsz(list, count, NULL)
			  : cuMemMapArrayAsync(list, count, NULL);
}

/* In these, `at` is the number of a tile, and `size` is 1 for the functions of the per-thread
 * kind. */
static CUresult map_tile(const struct act_call *call)
{
	CUarrayMapInfo tile = tile_with(call->in, call->at, things[call->thing]);

	return map_list(&tile, 1, call->size);
}

static CUresult map_two_tiles(const struct act_call *call)
{
	CUarrayMapInfo tiles[] = {tile_with(call->in, call->at, things[call->thing]),
				  tile_with(call->in, call->at + 1, things[call->thing + 1])};

	return map_list(tiles, 2, call->size);
}

static CUresult unmap_tile(const struct act_call *call)
{
	CUarrayMapInfo tile = tile_with(call->in, call->at, 0);

	tile.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	return map_list(&tile, 1, call->size);
}

/* By one list. */
static CUresult map_and_unmap_tile(const struct act_call *call)
{
	CUarrayMapInfo tiles[] = {tile_with(call->in, call->at, things[call->thing]),
				  tile_with(call->in, call->at, 0)};

	tiles[1].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	return map_list(tiles, 2, call->size);
}

static ACT(map_no_tile, map_list(NULL, 1, call->size));

static CUresult fill_tiles(const struct act_call *call)
{
	for (unsigned i = 0; i < call->size; i++) {
		memory handle = created(GRANULE);
		CUarrayMapInfo tile = tile_with(call->in, i, handle);

		CHECK_OK(map_list(&tile, 1, false));
		release(handle);
	}
	return CUDA_SUCCESS;
}

/* clang-format off */
#define MAKE_ARRAY(array)            {make_array, NONE, array, 0, 0}
#define MAKE_MIPMAPPED(array)        {make_mipmapped, NONE, array, 0, 0}
#define DESTROY(array)               {destroy, NONE, array, 0, 0}
#define TILE(array, at, thing)       {map_tile, thing, array, at, 0}
#define TILE_PTSZ(array, at, thing)  {map_tile, thing, array, at, 1}
#define TWO_TILES(array, at, first)  {map_two_tiles, first, array, at, 0} /* and the next thing */
#define TILE_AND_BACK(array, at, thing) {map_and_unmap_tile, thing, array, at, 0}
#define NO_TILE                      {map_no_tile, NONE, NONE, 0, 0}
#define NO_TILE_PTSZ                 {map_no_tile, NONE, NONE, 0, 1}
#define UNMAP_TILE(array, at)        {unmap_tile, NONE, array, at, 0}
#define UNMAP_TILE_PTSZ(array, at)   {unmap_tile, NONE, array, at, 1}
#define FILL(array, tiles)           {fill_tiles, NONE, array, 0, tiles} /* each with its own 2 MiB */

static const struct acts of_arrays[] = {
	{"sparse_mappings", .acts = {
		{MAKE_ARRAY(X), 0}, {CREATE(A, 4), 4}, {CREATE(B, 6), 10}, {TWO_TILES(X, 0, A), 10},
		{RELEASE(A), 10}, {RELEASE(B), 10}, {TILE(X, 2, A), 10, INVALID},
		{UNMAP_TILE(X, 0), 6}, {UNMAP_TILE_PTSZ(X, 1), 0},
		{NO_TILE, 0, INVALID}, {NO_TILE_PTSZ, 0, INVALID}, {DESTROY(X), 0}}},
	/* One list maps a tile and unmaps it. */
	{"sparse_and_back", .acts = {
		{MAKE_ARRAY(X), 0}, {CREATE(A, 4), 4}, {TILE_AND_BACK(X, 0, A), 4}, {RELEASE(A), 0},
		{DESTROY(X), 0}}},
	/* Memory that is mapped at a tile takes the place of the memory that was there. */
	{"sparse_remapped", .acts = {
		{MAKE_ARRAY(X), 0}, {CREATE(A, 4), 4}, {CREATE(B, 6), 10},
		{TILE_PTSZ(X, 0, A), 10}, {TILE_PTSZ(X, 0, A), 10}, {TILE_PTSZ(X, 0, A), 10},
		{RELEASE(A), 10}, {TILE(X, 0, B), 6}, {RELEASE(B), 6}, {UNMAP_TILE(X, 0), 0},
		{DESTROY(X), 0}}},
	/* With an array ends what is mapped into it: more tiles than the library ends at a time. */
	{"sparse_destroyed", .acts = {
		{MAKE_ARRAY(X), 0}, {MAKE_ARRAY(Y), 0}, {FILL(Y, 1), 2}, {FILL(X, 40), 82},
		{DESTROY(X), 2}, {MAKE_MIPMAPPED(Z), 2}, {FILL(Z, 3), 8}, {DESTROY(Z), 2},
		{DESTROY(Y), 0}}},
	/* The driver maps the first tile before it refuses the second, for which there is no memory. */
	{"sparse_half_done", .acts = {
		{MAKE_ARRAY(X), 0}, {CREATE(A, 4), 4}, {TWO_TILES(X, 0, A), 4, INVALID},
		{RELEASE(A), 4}, {DESTROY(X), 0}}},
	{"sparse_refused", .faults = "cuMemMapArrayAsync@1=999,cuMemMapArrayAsync_ptsz@1=999", .acts = {
		{MAKE_ARRAY(X), 0}, {CREATE(A, 2), 2}, {TILE(X, 0, A), 2, UNKNOWN},
		{TILE_PTSZ(X, 0, A), 2, UNKNOWN}, {RELEASE(A), 0}}},
};
TEST_TABLE(of_arrays, play);
/* clang-format on */

/* With a context end its arrays. */
TEST(sparse_context_ends)
{
	static const struct act_call make_x = MAKE_ARRAY(X), make_y = MAKE_ARRAY(Y);
	static const struct act_call fill_x = FILL(X, 2), fill_y = FILL(Y, 40);
	CUcontext first, second;

	start("3g");
	CHECK_OK(cuCtxGetCurrent(&first));
	make_array(&make_x);
	fill_tiles(&fill_x);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	make_array(&make_y);
	fill_tiles(&fill_y);
	CHECK_EQUAL(ledger_own(0).data, 84 * MIB);
	CHECK_OK(cuCtxDestroy_v2(second));
	CHECK_EQUAL(ledger_own(0).data, 4 * MIB);
	CHECK_OK(cuCtxSetCurrent(first));
	CHECK_OK(destroy(&make_x));
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* -- multicast objects ------------------------------------------------------------------------ */

#define OBJECT F /* a thing that is mapped and released as memory is */

static CUresult make_object(const struct act_call *call)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = call->size * MIB};

	CHECK_OK(cuMulticastCreate(&things[OBJECT], &prop));
	return cuMulticastAddDevice(things[OBJECT], 0);
}

static ACT(bind, cuMulticastBindMem(things[OBJECT], call->at *MIB, things[call->thing], 0,
				    call->size *MIB, 0));
static ACT(bind_address,
	   cuMulticastBindAddr(things[OBJECT], call->at *MIB, space, call->size *MIB, 0));
static ACT(unbind, cuMulticastUnbind(things[OBJECT], 0, call->at *MIB, call->size *MIB));

/* clang-format off */
#define MAKE_OBJECT(mib)      {make_object, NONE, NONE, 0, mib}
#define BIND(at, thing, mib)  {bind, thing, NONE, at, mib}
#define BIND_ADDRESS(at, mib) {bind_address, NONE, NONE, at, mib} /* what is mapped at place 0 */
#define UNBIND(at, mib)       {unbind, NONE, NONE, at, mib}

static const struct acts of_objects[] = {
	{"multicast_bindings", .acts = {
		{MAKE_OBJECT(8), 0}, {CREATE(A, 2), 2}, {CREATE(B, 4), 6}, {MAP(B, 0, 4), 6},
		{BIND(0, A, 2), 6}, {BIND_ADDRESS(2, 4), 6}, {BIND(8, A, 2), 6, INVALID},
		{BIND_ADDRESS(6, 4), 6, INVALID}, {RELEASE(A), 6}, {RELEASE(B), 6}, {UNMAP(0, 4), 6},
		{BIND_ADDRESS(0, 4), 6, INVALID}, {UNBIND(6, 2), 6, INVALID}, {UNBIND(2, 4), 2},
		{UNBIND(0, 2), 0}, {RELEASE(OBJECT), 0}}},
	/* With the last reference to an object end its bindings. A mapping is a reference. */
	{"multicast_released", .acts = {
		{MAKE_OBJECT(8), 0}, {CREATE(A, 2), 2}, {BIND(0, A, 2), 2}, {MAP(OBJECT, 0, 8), 2},
		{RELEASE(A), 2}, {RELEASE(OBJECT), 2}, {UNMAP(0, 8), 0}}},
	/* One call unbinds several. */
	{"multicast_range", .acts = {
		{MAKE_OBJECT(8), 0}, {CREATE(A, 2), 2}, {CREATE(B, 4), 6}, {BIND(0, A, 2), 6},
		{BIND(2, B, 4), 6}, {RELEASE(A), 6}, {RELEASE(B), 6}, {UNBIND(0, 8), 0},
		{RELEASE(OBJECT), 0}}},
	{"multicast_refused",
	 .faults = "cuMulticastBindMem@1=999,cuMulticastBindAddr@1=999,cuMulticastUnbind@1=999",
	 .acts = {
		{MAKE_OBJECT(8), 0}, {CREATE(A, 2), 2}, {MAP(A, 0, 2), 2}, {BIND(0, A, 2), 2, UNKNOWN},
		{BIND_ADDRESS(0, 2), 2, UNKNOWN}, {RELEASE(A), 2}, {UNMAP(0, 2), 0},
		{CREATE(A, 2), 2}, {BIND(0, A, 2), 2}, {RELEASE(A), 2}, {UNBIND(0, 2), 2, UNKNOWN},
		{UNBIND(0, 2), 0}}},
};
TEST_TABLE(of_objects, play);
/* clang-format on */

/* Other processes may have an object that was exported: its bindings end when they are unbound. */
TEST(multicast_exported)
{
	static const struct act_call first = BIND(0, A, 2), second = BIND(2, B, 4);
	static const struct act_call unbound = UNBIND(2, 4);
	CUmulticastObjectProp prop = {.numDevices = 1,
				      .size = 8 * MIB,
				      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	int fd = -1;

	start("1g");
	CHECK_OK(cuMulticastCreate(&things[OBJECT], &prop));
	CHECK_OK(cuMulticastAddDevice(things[OBJECT], 0));
	CHECK_OK(cuMemExportToShareableHandle(&fd, things[OBJECT],
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	things[A] = created(2 * MIB);
	things[B] = created(4 * MIB);
	CHECK_OK(bind(&first));
	CHECK_OK(bind(&second));
	release(things[A]);
	release(things[B]);
	CHECK_OK(unbind(&unbound));
	CHECK_EQUAL(ledger_own(0).data, 2 * MIB);
	release(things[OBJECT]);
	CHECK_EQUAL(ledger_own(0).data, 2 * MIB);
	CHECK(close(fd) == 0);
	CHECK_EQUAL(ledger_own(0).data, 2 * MIB);
}

static CUresult release_object(void)
{
	return cuMemRelease(things[OBJECT]);
}

/* The call that releases the object's handle returns after its mapping has ended, so the bindings
 * end with that call. */
TEST(multicast_unmapped_while_released)
{
	static const struct act_call make = MAKE_OBJECT(8), first = BIND(0, A, 2);
	struct call releasing;

	park("cuMemRelease@2");
	start("1g");
	CHECK_OK(make_object(&make));
	things[A] = created(2 * MIB);
	CHECK_OK(bind(&first));
	space = reserve(8 * MIB);
	map(space, 8 * MIB, things[OBJECT]);
	release(things[A]);
	begin_call(&releasing, release_object);
	unmap(space, 8 * MIB);
	assert_data(2 * MIB);
	CHECK_OK(end_call(&releasing));
	assert_data(0);
}
