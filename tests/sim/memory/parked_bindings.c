/*
 * What is bound to sparse arrays and multicast objects changes in another thread before the call
 * that binds or unbinds has returned.
 */
#include "parked_fixture.h"

static CUmemGenericAllocationHandle memory, object;
static CUarray array;

static void create_it(void)
{
	create(0);
	memory = handles[0];
}

static void give_memory(void)
{
	CHECK_OK(cuMemRelease(memory));
}

/* -- the place of a binding -------------------------------------------------------------------- */

static void bind_memory(void)
{
	CHECK_OK(cuMulticastBindMem(object, 0, memory, 0, SIZE, 0));
}

static CUresult unbind(void)
{
	return cuMulticastUnbind(object, 0, 0, SIZE);
}

/* The binding is the memory's only reference. */
static void create_and_bind(void)
{
	create_it();
	bind_memory();
	give_memory();
}

static void with_binding(void)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = SIZE};

	CHECK_OK(cuMulticastCreate(&object, &prop));
	CHECK_OK(cuMulticastAddDevice(object, 0));
	create_and_bind();
}

static void end_binding(void)
{
	CHECK_OK(unbind());
	CHECK_OK(cuMemRelease(object));
}

static const struct parked_row places[] = {
	{.name = "bound_meanwhile",
	 .call = "cuMulticastUnbind@1",
	 .done = true,
	 .prepare = with_binding,
	 .make = unbind,
	 .meanwhile = create_and_bind,
	 .undo = end_binding},
};
TEST_TABLE(places, parked_play);

/* -- a part of an array, by a handle that is another slice's memory by then -------------------- */

static CUresult map_part(void)
{
	CUarrayMapInfo info = {.resource = array,
			       .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
			       .memHandle = memory};

	return cuMemMapArrayAsync(&info, 1, NULL);
}

static uint64_t create_and_send(uint64_t i)
{
	create(i);
	return send_off(i);
}

static void with_array_and_sent(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR sparse = {
		1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};

	create_it();
	CHECK_OK(cuArray3DCreate_v2(&array, &sparse));
	order(&other, create_and_send, 0);
	receive(0);
}

static void import_as_it(void)
{
	CUmemGenericAllocationHandle was = memory;

	give_memory();
	CHECK_OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)files[0], POSIX));
	file_close(0);
	CHECK_EQUAL(memory, was);
}

/* The part that the driver mapped was unmapped, so the handle is the last reference. */
static void end_import(void)
{
	give_memory();
	CHECK_OK(cuArrayDestroy(array));
	order(&other, release, 0);
}

static const struct parked_row of_outsiders[] = {
	{.name = "part_of_import",
	 .call = "cuMemMapArrayAsync@1",
	 .outsider = "1g",
	 .prepare = with_array_and_sent,
	 .make = map_part,
	 .meanwhile = import_as_it,
	 .undo = end_import,
	 .result = CUDA_ERROR_NOT_SUPPORTED,
	 .beyond = 64, /* what the other slice holds */
	 GIVES(64)},
};
TEST_TABLE(of_outsiders, parked_play);
