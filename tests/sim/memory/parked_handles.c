/*
 * Memory with a handle, what refers to it, and memory of other processes: the calls that make and
 * end it, parked in the driver.
 */
#include <sys/mman.h>

#include "parked_fixture.h"

static CUdeviceptr space; /* addresses that the process has reserved */
static CUmemGenericAllocationHandle memory, object;
static CUarray array;
static int unused = -1;

static void nothing(void)
{
}

/* -- memory with a handle, and mappings -------------------------------------------------------- */

static CUresult create_it(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cuMemCreate(&memory, SIZE, &prop, 0);
}

static CUresult release_it(void)
{
	return cuMemRelease(memory);
}

static CUresult map_it(void)
{
	return cuMemMap(space, SIZE, 0, memory, 0);
}

static CUresult unmap_it(void)
{
	return cuMemUnmap(space, SIZE);
}

static CUresult retain_it(void)
{
	return cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)(space + SIZE / 2));
}

static void give_memory(void)
{
	CHECK_OK(release_it());
}

static void with_memory(void)
{
	CHECK_OK(cuMemAddressReserve(&space, SIZE, 0, 0, 0));
	CHECK_OK(create_it());
}

/* The mapping is the last reference. */
static void with_mapping(void)
{
	with_memory();
	CHECK_OK(map_it());
	give_memory();
}

static void end_mapping(void)
{
	CHECK_OK(unmap_it());
}

/* -- sparse arrays ----------------------------------------------------------------------------- */

static CUresult tile(unsigned operation, bool per_thread)
{
	CUarrayMapInfo info = {.resource = array,
			       .memOperationType = operation,
			       .memHandle = operation == CU_MEM_OPERATION_TYPE_MAP ? memory : 0};

	return per_thread ? cuMemMapArrayAsync_ptsz(&info, 1, NULL)
			  : cuMemMapArrayAsync(&info, 1, NULL);
}

static CUresult map_tile(void)
{
	return tile(CU_MEM_OPERATION_TYPE_MAP, false);
}

static CUresult map_tile_ptsz(void)
{
	return tile(CU_MEM_OPERATION_TYPE_MAP, true);
}

static CUresult unmap_tile(void)
{
	return tile(CU_MEM_OPERATION_TYPE_UNMAP, false);
}

static CUresult unmap_tile_ptsz(void)
{
	return tile(CU_MEM_OPERATION_TYPE_UNMAP, true);
}

static CUresult end_sparse(void)
{
	return cuArrayDestroy(array);
}

static void with_sparse(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR sparse = {
		1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};

	with_memory();
	CHECK_OK(cuArray3DCreate_v2(&array, &sparse));
}

/* The tile is the last reference. */
static void with_tile(void)
{
	with_sparse();
	CHECK_OK(map_tile());
	give_memory();
}

static void end_array(void)
{
	CHECK_OK(end_sparse());
}

/* -- multicast objects ------------------------------------------------------------------------- */

static CUresult bind_memory(void)
{
	return cuMulticastBindMem(object, 0, memory, 0, SIZE, 0);
}

static CUresult bind_address(void)
{
	return cuMulticastBindAddr(object, 0, space, SIZE, 0);
}

static CUresult unbind(void)
{
	return cuMulticastUnbind(object, 0, 0, SIZE);
}

static CUresult release_object(void)
{
	return cuMemRelease(object);
}

static CUresult create_object(void)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = SIZE};

	return cuMulticastCreate(&object, &prop);
}

static void make_object(void)
{
	CHECK_OK(create_object());
	CHECK_OK(cuMulticastAddDevice(object, 0));
}

static void with_object(void)
{
	with_memory();
	make_object();
}

static void with_object_and_mapping(void)
{
	with_mapping();
	make_object();
}

/* The binding is the last reference. */
static void with_binding(void)
{
	with_object();
	CHECK_OK(bind_memory());
	give_memory();
}

static void end_object(void)
{
	CHECK_OK(release_object());
}

static const struct parked_row own[] = {
	PARKED("create", "cuMemCreate@1", .make = create_it, .undo = give_memory, TAKES(64)),
	PARKED("release", "cuMemRelease@1", .prepare = with_memory, .make = release_it,
	       .undo = nothing, GIVES(64)),
	PARKED("unmap", "cuMemUnmap@1", .prepare = with_mapping, .make = unmap_it, .undo = nothing,
	       GIVES(64)),
	PARKED("unmap_tile", "cuMemMapArrayAsync@2", .prepare = with_tile, .make = unmap_tile,
	       .undo = end_array, GIVES(64)),
	PARKED("unmap_tile_ptsz", "cuMemMapArrayAsync_ptsz@1", .prepare = with_tile,
	       .make = unmap_tile_ptsz, .undo = end_array, GIVES(64)),
	PARKED("end_sparse", "cuArrayDestroy@1", .prepare = with_tile, .make = end_sparse,
	       .undo = nothing, GIVES(64)),
	PARKED("object", "cuMulticastCreate@1", .make = create_object, .undo = end_object),
	PARKED("unbind", "cuMulticastUnbind@1", .prepare = with_binding, .make = unbind,
	       .undo = end_object, GIVES(64)),
	PARKED("end_object", "cuMemRelease@2", .prepare = with_binding, .make = release_object,
	       .undo = nothing, GIVES(64)),
};
TEST_TABLE(own, parked_play);

/* -- the last other reference ends while the driver makes one ---------------------------------- */

/* If the driver has made the reference, the memory stays. If not, the memory is gone, and the call
 * fails. */
#define KEEPS(row, function, before, does, other_ends, after)                                 \
	{.name = row "_before",                                                               \
	 .call = function "@1",                                                               \
	 .prepare = before,                                                                   \
	 .make = does,                                                                        \
	 .meanwhile = other_ends,                                                             \
	 .undo = nothing,                                                                     \
	 .result = CUDA_ERROR_INVALID_VALUE,                                                  \
	 GIVES(64)},                                                                          \
	{                                                                                     \
		.name = row "_after", .call = function "@1", .done = true, .prepare = before, \
		.make = does, .meanwhile = other_ends, .undo = after                          \
	}

/* If an address tells the memory, and what was there is gone, the driver may have made the
 * reference to other memory. So the library ends it, and the call fails. */
#define RACES(row, function, before, does, other_ends)                                       \
	PARKED(row, function "@1", .prepare = before, .make = does, .meanwhile = other_ends, \
	       .undo = nothing, .result = CUDA_ERROR_INVALID_VALUE, .later = true, GIVES(64))

static void end_tile_and_array(void)
{
	CHECK_OK(unmap_tile());
	end_array();
}

static const struct parked_row references[] = {
	KEEPS("map", "cuMemMap", with_memory, map_it, give_memory, end_mapping),
	KEEPS("retain", "cuMemRetainAllocationHandle", with_mapping, retain_it, end_mapping,
	      give_memory),
	KEEPS("tile", "cuMemMapArrayAsync", with_sparse, map_tile, give_memory, end_array),
	KEEPS("tile_ptsz", "cuMemMapArrayAsync_ptsz", with_sparse, map_tile_ptsz, give_memory,
	      end_tile_and_array),
	KEEPS("bind", "cuMulticastBindMem", with_object, bind_memory, give_memory, end_object),
	RACES("bind_address", "cuMulticastBindAddr", with_object_and_mapping, bind_address,
	      end_mapping),
};
TEST_TABLE(references, parked_play);

/* -- exports: a descriptor keeps its memory ---------------------------------------------------- */

static CUresult export_memory(void)
{
	return cuMemExportToShareableHandle(&files[0], handles[0], POSIX, 0);
}

static CUresult export_mapping(void)
{
	return cuMemGetHandleForAddressRange(&files[0], space, SIZE, DMA_BUF, 0);
}

static CUresult export_block(void)
{
	return cuMemGetHandleForAddressRange(&files[0], addresses[0], SIZE, DMA_BUF, 0);
}

static CUresult free_block(void)
{
	return cuMemFree_v2(addresses[0]);
}

static void with_exportable(void)
{
	create(0);
}

static void with_block(void)
{
	allocate(0);
}

static void with_exported_block(void)
{
	with_block();
	CHECK_OK(export_block());
}

/* A block that the library does not see, as its free has begun. */
static void export_leaving(void)
{
	CHECK_EQUAL(export_block(), CUDA_ERROR_INVALID_VALUE);
}

static void end_exportable(void)
{
	release(0);
}

static void end_block(void)
{
	CHECK_OK(free_block());
}

static void close_file(void)
{
	file_close(0);
}

static void free_and_close(void)
{
	end_block();
	close_file();
}

static const struct parked_row exports[] = {
	KEEPS("export", "cuMemExportToShareableHandle", with_exportable, export_memory,
	      end_exportable, close_file),
	RACES("export_mapping", "cuMemGetHandleForAddressRange", with_mapping, export_mapping,
	      end_mapping),
	RACES("export_block", "cuMemGetHandleForAddressRange", with_block, export_block, end_block),
	PARKED("export_kept", "cuMemGetHandleForAddressRange@1", .prepare = with_block,
	       .make = export_block, .undo = free_and_close),
	PARKED("free_exported", "cuMemFree_v2@2", .prepare = with_exported_block,
	       .make = free_block, .undo = close_file),
	PARKED("export_leaving", "cuMemFree_v2@2", .prepare = with_block, .make = free_block,
	       .meanwhile = export_leaving, .undo = nothing, GIVES(64)),
};
TEST_TABLE(exports, parked_play);

/* -- memory of another API --------------------------------------------------------------------- */

static CUexternalMemory external;

static CUresult import_external(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = SIZE};

	memcpy(desc.handle, &unused, sizeof(unused));
	return cuImportExternalMemory(&external, &desc);
}

static CUresult destroy_external(void)
{
	return cuDestroyExternalMemory(external);
}

static void with_file(void)
{
	unused = memfd_create("memory of another API", MFD_CLOEXEC);
	CHECK(unused >= 0);
}

static void with_external(void)
{
	with_file();
	CHECK_OK(import_external());
}

static void end_external(void)
{
	CHECK_OK(destroy_external());
}

static const struct parked_row of_other_apis[] = {
	PARKED("external", "cuImportExternalMemory@1", .prepare = with_file,
	       .make = import_external, .undo = end_external, TAKES(64)),
	PARKED("end_external", "cuDestroyExternalMemory@1", .prepare = with_external,
	       .make = destroy_external, .undo = nothing, GIVES(64)),
};
TEST_TABLE(of_other_apis, parked_play);

/* -- memory of a process of another slice ------------------------------------------------------ */

static CUresult open_ipc(void)
{
	return cuIpcOpenMemHandle_v2(&addresses[0], board->ipc[0], 1);
}

static CUresult open_ipc_old(void)
{
	return cuIpcOpenMemHandle(&addresses[0], board->ipc[0], 1);
}

static CUresult close_ipc(void)
{
	return cuIpcCloseMemHandle(addresses[0]);
}

static uint64_t allocate_and_get(uint64_t i)
{
	allocate(i);
	CHECK_OK(cuIpcGetMemHandle(&board->ipc[i], addresses[i]));
	return 0;
}

static uint64_t create_and_send(uint64_t i)
{
	create(i);
	return send_off(i);
}

static void with_ipc(void)
{
	order(&other, allocate_and_get, 0);
}

static void with_opened(void)
{
	with_ipc();
	CHECK_OK(open_ipc());
}

static void end_opened(void)
{
	CHECK_OK(close_ipc());
	order(&other, give_back_address, 0);
}

static void end_others_block(void)
{
	order(&other, give_back_address, 0);
}

static CUresult import_it(void)
{
	CUresult result =
		cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)files[0], POSIX);

	file_close(0);
	return result;
}

static void with_sent(void)
{
	CHECK_OK(cuMemAddressReserve(&space, SIZE, 0, 0, 0));
	order(&other, create_and_send, 0);
	receive(0);
}

static void with_imported(void)
{
	with_sent();
	CHECK_OK(import_it());
}

static void with_import_and_object(void)
{
	with_imported();
	make_object();
}

static void with_import_mapped(void)
{
	with_imported();
	CHECK_OK(map_it());
}

static void with_only_mapping(void)
{
	with_import_mapped();
	give_memory();
}

static void with_import_unmapped(void)
{
	with_import_mapped();
	end_mapping();
}

static void end_import(void)
{
	give_memory();
	order(&other, release, 0);
}

static void end_import_mapped(void)
{
	end_mapping();
	end_import();
}

static void end_import_bound(void)
{
	end_object();
	end_import();
}

static void end_others_memory(void)
{
	order(&other, release, 0);
}

/* -- pointers of another slice's pool -- */

static CUmemoryPool pool;
static CUdeviceptr pooled;

static uint64_t make_pool(uint64_t unused_argument)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .handleTypes = POSIX,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	int fd = -1;

	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	CHECK_OK(cuMemAllocFromPoolAsync(&pooled, SIZE, pool, NULL));
	CHECK_OK(cuMemPoolExportPointer(&board->pointers[0], pooled));
	CHECK_OK(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0));
	parcel_send(fd);
	CHECK(close(fd) == 0);
	return unused_argument;
}

static uint64_t end_pool(uint64_t unused_argument)
{
	CHECK_OK(cuMemFreeAsync(pooled, NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	CHECK_OK(cuMemPoolDestroy(pool));
	return unused_argument;
}

static void with_others_pool(void)
{
	int fd;

	order(&other, make_pool, 0);
	fd = parcel_receive();
	CHECK_OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
	CHECK(close(fd) == 0);
}

static CUresult import_pointer(void)
{
	return cuMemPoolImportPointer(&pooled, pool, &board->pointers[0]);
}

static void end_others_pool(void)
{
	CHECK_OK(cuMemPoolDestroy(pool));
	order(&other, end_pool, 0);
}

static void end_pointer(void)
{
	give(pooled);
	end_others_pool();
}

/* -- a handle of a block takes nothing -- */

static CUresult get_ipc(void)
{
	return cuIpcGetMemHandle(&board->ipc[0], addresses[0]);
}

static void with_own_block(void)
{
	allocate(0);
}

static void end_own_block(void)
{
	give_back_address(0);
}

/* The device has the 64 MiB already, and another slice is charged for them. */
#define OTHERS(row, function, before, call, after, ...)                               \
	PARKED(row, function "@1", .outsider = "1g", .prepare = before, .make = call, \
	       .undo = after, .beyond = 64, __VA_ARGS__)

/* Its size is known when it is open: then it is charged, or closed again. */
static const struct parked_row of_others[] = {
	OTHERS("ipc", "cuIpcOpenMemHandle_v2", with_ipc, open_ipc, end_opened, .charges = 64,
	       .leaves = 64),
	OTHERS("ipc_old", "cuIpcOpenMemHandle", with_ipc, open_ipc_old, end_opened, .charges = 64,
	       .leaves = 64),
	OTHERS("ipc_get", "cuIpcGetMemHandle", with_own_block, get_ipc, end_own_block),
	OTHERS("pointer", "cuMemPoolImportPointer", with_others_pool, import_pointer, end_pointer,
	       .charges = 64, .leaves = 64),
	OTHERS("pointer_full", "cuMemPoolImportPointer", with_others_pool, import_pointer,
	       end_others_pool, .result = CUDA_ERROR_OUT_OF_MEMORY),
	OTHERS("ipc_full", "cuIpcOpenMemHandle_v2", with_ipc, open_ipc, end_others_block,
	       .result = CUDA_ERROR_OUT_OF_MEMORY),
	OTHERS("ipc_close", "cuIpcCloseMemHandle", with_opened, close_ipc, end_others_block,
	       .charges = -64),
	OTHERS("import", "cuMemImportFromShareableHandle", with_sent, import_it, end_import),
	OTHERS("import_map", "cuMemMap", with_imported, map_it, end_import_mapped, .charges = 64,
	       .reserves = 64),
	OTHERS("import_bind", "cuMulticastBindMem", with_import_and_object, bind_memory,
	       end_import_bound, .charges = 64, .reserves = 64),
	OTHERS("import_release", "cuMemRelease", with_import_unmapped, release_it,
	       end_others_memory, .charges = -64),
	OTHERS("import_unmap", "cuMemUnmap", with_only_mapping, unmap_it, end_others_memory,
	       .charges = -64),
};
TEST_TABLE(of_others, parked_play);

/* -- memory of another process of the slice, which frees it meanwhile -------------------------- */

static uint64_t compare_here(uint64_t unused_argument)
{
	parked_compare();
	return unused_argument;
}

/* The exporter finds that no descriptor is left. */
static void end_sibling_import(void)
{
	give_memory();
	order(&other, compare_here, 0);
}

static void end_opened_only(void)
{
	CHECK_OK(close_ipc());
}

static const struct parked_row of_siblings[] = {
	/* The descriptor keeps it, and then the handle. A comparison may charge it to the importer
	 * as well, until the import is recorded. */
	PARKED("sibling_import", "cuMemImportFromShareableHandle@1", .sibling = true,
	       .prepare = with_sent, .make = import_it, .meanwhile = end_others_memory,
	       .undo = end_sibling_import),
	{.name = "sibling_ipc_before",
	 .call = "cuIpcOpenMemHandle_v2@1",
	 .sibling = true,
	 .prepare = with_ipc,
	 .make = open_ipc,
	 .meanwhile = end_others_block,
	 .undo = nothing,
	 .result = CUDA_ERROR_INVALID_VALUE,
	 .found = true,
	 GIVES(64)},
	{.name = "sibling_ipc_after",
	 .call = "cuIpcOpenMemHandle_v2@1",
	 .done = true,
	 .sibling = true,
	 .prepare = with_ipc,
	 .make = open_ipc,
	 .meanwhile = end_others_block,
	 .undo = end_opened_only},
};
TEST_TABLE(of_siblings, parked_play);
