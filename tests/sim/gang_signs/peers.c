/* Memory that kernels on another device can reach makes members of the devices, and nothing else
 * does. */
#include "gang.h"
#include "pass_fd.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define BYTES (4 * MIB)
#define POSIX CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static void start(void)
{
	machine("50");
	start_all();
	CHECK_EQUAL(members(), 0);
}

/* -- contexts ---------------------------------------------------------------------------------- */

TEST(peer_access)
{
	start();
	CHECK_EQUAL(cuCtxEnablePeerAccess(contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuCtxEnablePeerAccess(contexts[0], 0), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(members(), 0);
	CHECK_OK(cuCtxEnablePeerAccess(contexts[1], 0));
	CHECK_EQUAL(members(), 1 | 2);
	use(2);
	CHECK_OK(cuCtxEnablePeerAccess(contexts[1], 0));
	CHECK_EQUAL(members(), ALL);
}

/* A device that this process never launches to does not join, nor does one while it does not. */
TEST(without_a_launch)
{
	start();
	CHECK_OK(cuCtxEnablePeerAccess(contexts[1], 0));
	CHECK_EQUAL(members_of(getpid()), 0);
	CHECK_EQUAL(members(), 1 | 2);
}

/* Access may come before there is a limit. */
TEST(before_the_limit)
{
	machine(NULL);
	start_all();
	CHECK_OK(cuCtxEnablePeerAccess(contexts[2], 0));
	CHECK_EQUAL(members(), 0);
}

/* -- addresses --------------------------------------------------------------------------------- */

static CUmemGenericAllocationHandle created(CUdevice device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemGenericAllocationHandle handle = 0;

	CHECK_OK(cuMemCreate(&handle, BYTES, &prop, 0));
	return handle;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
	CHECK_OK(cuMemMap(address, BYTES, 0, handle, 0));
	return address;
}

static CUmemAccessDesc access_of(unsigned type, int id, unsigned flags)
{
	return (CUmemAccessDesc){{type, id}, flags};
}

static CUmemAccessDesc device_access(CUdevice device)
{
	return access_of(CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST(mappings)
{
	CUmemAccessDesc harmless[] = {
		device_access(0),
		access_of(CU_MEM_LOCATION_TYPE_HOST, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
		access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE)};
	CUmemAccessDesc wrong = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, 99), other;
	CUdeviceptr first, second;

	start();
	first = mapped(created(0));
	second = mapped(created(2));
	for (unsigned i = 0; i < 3; i++)
		CHECK_OK(cuMemSetAccess(first, BYTES, &harmless[i], 1));
	CHECK_EQUAL(cuMemSetAccess(first, BYTES, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
	other = device_access(2);
	CHECK_OK(cuMemSetAccess(second, BYTES, &other, 1));
	CHECK_EQUAL(members(), 0);
	harmless[2] = device_access(1);
	CHECK_OK(cuMemSetAccess(first, BYTES, harmless, 3));
	CHECK_EQUAL(members(), 1 | 2);
	other = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CHECK_OK(cuMemSetAccess(second, BYTES, &other, 1));
	CHECK_EQUAL(members(), ALL);
}

TEST(pools)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
	CUmemAccessDesc home = device_access(1), other = device_access(2);
	CUmemoryPool pool;

	start();
	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	CHECK_OK(cuMemPoolSetAccess(pool, &home, 1));
	CHECK_EQUAL(members(), 0);
	CHECK_OK(cuMemPoolSetAccess(pool, &other, 1));
	CHECK_EQUAL(members(), 2 | 4);
}

/* That of a device, which is there without being made. */
TEST(default_pools)
{
	CUmemAccessDesc other = device_access(1);
	CUmemoryPool pool;

	start();
	CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK_OK(cuMemPoolSetAccess(pool, &other, 1));
	CHECK_EQUAL(members(), 1 | 2);
}

TEST(multicast)
{
	CUmulticastObjectProp prop = {.numDevices = 2, .size = BYTES};
	CUmemGenericAllocationHandle object;

	start();
	CHECK_OK(cuMulticastCreate(&object, &prop));
	CHECK_EQUAL(members(), 0);
	CHECK_OK(cuMulticastAddDevice(object, 1));
	CHECK_EQUAL(cuMulticastAddDevice(object, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMulticastAddDevice(object, 2));
	CHECK_EQUAL(members(), 2 | 4);
}

/* -- other processes --------------------------------------------------------------------------- */

static int parcel[2]; /* a descriptor goes from one end to the other */
static CUipcMemHandle *board;

/* Steps. */
static uint64_t look(uint64_t unused)
{
	(void)unused;
	return members();
}

static uint64_t export_from(uint64_t device)
{
	CUmemGenericAllocationHandle handle = created((CUdevice)device);
	int fd = -1;

	CHECK_OK(cuMemExportToShareableHandle(&fd, handle, POSIX, 0));
	pass_fd(parcel[0], fd);
	return (uint64_t)close(fd);
}

static uint64_t import_for(uint64_t device)
{
	CUmemAccessDesc access = device_access((CUdevice)device);
	CUmemGenericAllocationHandle handle = 0;
	int fd = take_fd(parcel[1]);

	CHECK_OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, POSIX));
	CHECK_EQUAL(members(), 0);
	return (uint64_t)cuMemSetAccess(mapped(handle), BYTES, &access, 1);
}

static uint64_t hand_out(uint64_t device)
{
	use((CUdevice)device);
	return (uint64_t)cuIpcGetMemHandle(board, take(BYTES));
}

static uint64_t open_from(uint64_t device)
{
	CUdeviceptr address;

	use((CUdevice)device);
	return (uint64_t)cuIpcOpenMemHandle_v2(&address, *board, 1);
}

static uint64_t open_old_from(uint64_t device)
{
	CUdeviceptr address;

	use((CUdevice)device);
	return (uint64_t)cuIpcOpenMemHandle(&address, *board, 1);
}

static void ranks(struct member *first, struct member *second)
{
	machine("50");
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(board != MAP_FAILED);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, parcel) == 0);
	*first = rank();
	*second = rank();
}

static void dismiss_both(struct member *first, struct member *second)
{
	dismiss(first);
	dismiss(second);
}

/* Memory of device 1, for device 1, and then for device 2. */
TEST(imports)
{
	struct member a, b;

	ranks(&a, &b);
	order(&a, export_from, 1);
	CHECK_OK(order(&b, import_for, 1));
	CHECK_EQUAL(order(&b, look, 0), 0);
	order(&a, export_from, 1);
	CHECK_OK(order(&b, import_for, 2));
	CHECK_EQUAL(order(&b, look, 0), 2 | 4);
	CHECK_EQUAL(order(&a, look, 0), 0); /* its own kernels have nothing to wait in */
	dismiss_both(&a, &b);
}

static const struct opener {
	const char *name;
	step_fn *open;
} openers[] = {{"ipc", open_from}, {"ipc_old", open_old_from}};

static void opens(const struct opener *row)
{
	struct member a, b;

	ranks(&a, &b);
	CHECK_OK(order(&a, hand_out, 1));
	CHECK_OK(order(&b, row->open, 1));
	CHECK_EQUAL(order(&b, look, 0), 0);
	CHECK_OK(order(&b, row->open, 0));
	CHECK_EQUAL(order(&b, look, 0), 1);
	dismiss_both(&a, &b);
}

TEST_TABLE(openers, opens);
