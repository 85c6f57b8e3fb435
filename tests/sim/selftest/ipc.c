/*
 * Memory of other processes, and of other libraries: in whose figure it is, and when it goes, as
 * measured on a real driver. Two processes, the exporter and the importer, do what a third tells
 * them, which has no CUDA and looks.
 */
#include "selftest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct actor {
	pid_t pid;
	int to, from;
} exporter, importer;

/* What the actors leave for each other and for us. */
static struct {
	CUipcMemHandle ipc;
	CUmemPoolPtrExportData pointers[2];
} * board;
static int sockets[2]; /* descriptors go from 0 to 1 */

static void act(int from, int to)
{
	void (*step)(void);

	selftest_context();
	while (read(from, &step, sizeof step) == (ssize_t)sizeof step) {
		step();
		CHECK_EQ(write(to, "", 1), 1);
	}
	_exit(0);
}

static struct actor actor_start(void)
{
	int to[2], from[2];

	CHECK(!pipe(to) && !pipe(from));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(to[1]);
		close(from[0]);
		act(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return (struct actor){pid, to[1], from[0]};
}

static void tell(const struct actor *actor, void (*step)(void))
{
	char byte;

	CHECK_EQ(write(actor->to, &step, sizeof step), sizeof step);
	CHECK_EQ(read(actor->from, &byte, 1), 1);
}

static void actor_kill(const struct actor *actor)
{
	int status;

	kill(actor->pid, SIGKILL);
	CHECK_EQ(waitpid(actor->pid, &status, 0), actor->pid);
	close(actor->to);
	close(actor->from);
}

static void nothing(void)
{
}

static void actors_start(void)
{
	exporter = actor_start();
	importer = actor_start();
	tell(&exporter, nothing);
	tell(&importer, nothing);
}

/* MiB beyond their contexts: the exporter's figure, the importer's, and on the device. */
static void check_mib(long long exporters, long long importers, long long device, int line)
{
	size_t fixed = 0;

	if (exporters >= 0) {
		fixed += CONTEXT + FIRST;
		selftest_check_eq(selftest_process_bytes(0, exporter.pid),
				  (long long)CONTEXT + exporters * (long long)MIB, "exporter",
				  __FILE__, line);
	}
	if (importers >= 0) {
		fixed += CONTEXT + FIRST;
		selftest_check_eq(selftest_process_bytes(0, importer.pid),
				  (long long)CONTEXT + importers * (long long)MIB, "importer",
				  __FILE__, line);
	}
	selftest_check_eq((long long)(selftest_used(0) - fixed) / (long long)MIB, device, "device",
			  __FILE__, line);
}

#define CHECK_MIB(exporters, importers, device) check_mib(exporters, importers, device, __LINE__)

static void fd_send(int fd)
{
	char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	CHECK_EQ(sendmsg(sockets[0], &message, 0), 1);
	close(fd);
}

static int fd_receive(void)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof control};
	int fd;

	CHECK_EQ(recvmsg(sockets[1], &message, 0), 1);
	CHECK(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

/* ---- memory by handle */

static CUmemGenericAllocationHandle memory; /* each actor's own */
static int received;
static CUdeviceptr address;

static void memory_make(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};

	CHECK_EQ(cuMemCreate(&memory, 64 * MIB, &prop, 0), CUDA_SUCCESS);
}

static int memory_fd(void)
{
	int fd = -1;

	CHECK_EQ(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0),
		 CUDA_SUCCESS);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	return fd;
}

static void memory_send(void)
{
	fd_send(memory_fd());
}

static void memory_release(void)
{
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
}

static CUmemGenericAllocationHandle import(int fd)
{
	CUmemGenericAllocationHandle handle;

	CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_SUCCESS);
	return handle;
}

static void memory_receive(void)
{
	CUmemAllocationProp prop;

	received = fd_receive();
	memory = import(received);
	CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&prop, memory), CUDA_SUCCESS);
	CHECK_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK_EQ(prop.location.id, 0);
	CHECK_EQ(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(address, 64 * MIB, 0, memory, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
}

static void received_close(void)
{
	CHECK(!close(received));
}

static void memory_unmap(void)
{
	CHECK_EQ(cuMemUnmap(address, 64 * MIB), CUDA_SUCCESS);
}

/* Who imports what it has itself gets another handle, and it counts once. */
static void import_own(void)
{
	CUmemGenericAllocationHandle again;
	CUdeviceptr p;
	unsigned word = 4711, back = 0;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int fd, owner = getpid();

	memory_make();
	fd = memory_fd();
	CHECK(!fcntl(fd, F_SETOWN, owner) && !fcntl(fd, F_SETSIG, 12));
	CHECK_EQ(fcntl(fd, F_GETOWN), owner);
	CHECK_EQ(fcntl(fd, F_GETSIG), 12);
	again = import(fd);
	close(fd);
	CHECK(again != memory);
	CHECK_EQ(cuMemAddressReserve(&p, 128 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(p, 64 * MIB, 0, memory, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemMap(p + 64 * MIB, 64 * MIB, 0, again, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemSetAccess(p, 128 * MIB, &access, 1), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyHtoD_v2(p, &word, sizeof word), CUDA_SUCCESS);
	CHECK_EQ(cuMemcpyDtoH_v2(&back, p + 64 * MIB, sizeof back), CUDA_SUCCESS);
	CHECK_EQ(back, 4711);
	CHECK_EQ(cuMemUnmap(p, 128 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemAddressFree(p, 128 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemRelease(memory), CUDA_SUCCESS);
	memory = again;
}

static void export_refused(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	int fd, zero = open("/dev/zero", O_RDONLY);

	CHECK_EQ(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_EQ(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)zero,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_ERROR_INVALID_VALUE);
	close(zero);
}

static void test_handles(void)
{
	actors_start();
	tell(&exporter, export_refused);
	tell(&exporter, import_own);
	CHECK_MIB(64, 0, 64);
	tell(&exporter, memory_release);
	CHECK_MIB(0, 0, 0);
	tell(&exporter, memory_make);
	tell(&exporter, memory_send); /* on its way: nobody has the descriptor open */
	CHECK_MIB(64, 0, 64);
	tell(&exporter, memory_release);
	CHECK_MIB(0, 0, 64);
	tell(&importer, memory_receive);
	CHECK_MIB(0, 64, 64);
	tell(&importer, received_close);
	CHECK_MIB(0, 64, 64);
	tell(&importer, memory_unmap);
	CHECK_MIB(0, 0, 0);
	for (int dies = 0; dies < 2; dies++) {
		tell(&exporter, memory_make);
		tell(&exporter, memory_send);
		tell(&importer, memory_receive);
		CHECK_MIB(64, 0, 64);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, memory_release);
		CHECK_MIB(dies ? -1 : 0, 64, 64);
		tell(&importer, memory_unmap);
		CHECK_MIB(dies ? -1 : 0, 0, 64);
		tell(&importer, received_close);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
	}
	actor_kill(&importer);
	CHECK_EQ(selftest_used(0), 0);
}

/* All who knew it are dead, but somebody has the descriptor. */
static void test_orphan(void)
{
	int fd;

	actors_start();
	tell(&exporter, memory_make);
	tell(&exporter, memory_send);
	actor_kill(&exporter);
	actor_kill(&importer);
	CHECK_EQ(selftest_used(0), 64 * MIB);
	actors_start(); /* the state is not made anew for them */
	CHECK_MIB(0, 0, 64);
	fd = fd_receive();
	CHECK_MIB(0, 0, 64);
	close(fd);
	CHECK_MIB(0, 0, 0);
	actor_kill(&exporter);
	actor_kill(&importer);
}

/* ---- dma-buf */

static void range_send(void)
{
	CUdeviceptr p;
	int fd = -1;

	CHECK_EQ(cuMemAlloc_v2(&p, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuMemGetHandleForAddressRange(&fd, p, 11 * MIB,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemGetHandleForAddressRange(&fd, p, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					       0),
		 CUDA_SUCCESS);
	fd_send(fd);
	address = p;
}

static void free_address(void)
{
	CHECK_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

static void test_range(void)
{
	actors_start();
	tell(&exporter, range_send);
	CHECK_MIB(10, 0, 10);
	tell(&exporter, free_address);
	CHECK_MIB(0, 0, 10);
	close(fd_receive());
	CHECK_MIB(0, 0, 0);
	actor_kill(&exporter);
	actor_kill(&importer);
}

/* ---- cuIpc */

static CUdeviceptr opened[2];

static void ipc_get(void)
{
	CUipcMemHandle again;
	CUdeviceptr p;

	CHECK_EQ(cuMemAlloc_v2(&address, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuIpcGetMemHandle(&board->ipc, address), CUDA_SUCCESS);
	CHECK_EQ(cuIpcGetMemHandle(&again, address + 5 * MIB), CUDA_SUCCESS);
	CHECK(!memcmp(&again, &board->ipc, sizeof again));
	CHECK_EQ(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_CONTEXT);
}

static void ipc_open(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(cuIpcOpenMemHandle_v2(&opened[i], board->ipc, 1), CUDA_SUCCESS);
		CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, opened[i] + MIB), CUDA_SUCCESS);
		CHECK_EQ(base, opened[i]);
		CHECK_EQ(size, 10 * MIB);
		CHECK_EQ(cuMemsetD8_v2(opened[i], 1, size), CUDA_SUCCESS);
		CHECK_EQ(cuMemFree_v2(opened[i]), CUDA_ERROR_INVALID_VALUE);
	}
	CHECK(opened[0] != opened[1]);
}

static void ipc_close_first(void)
{
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_SUCCESS);
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_VALUE);
}

static void ipc_close_second(void)
{
	CHECK_EQ(cuIpcCloseMemHandle(opened[1]), CUDA_SUCCESS);
}

static void ipc_open_gone(void)
{
	CUdeviceptr p;

	CHECK_EQ(cuIpcOpenMemHandle_v2(&p, board->ipc, 1), CUDA_ERROR_INVALID_VALUE);
}

static void context_reset(void)
{
	CHECK_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQ(cuIpcCloseMemHandle(opened[0]), CUDA_ERROR_INVALID_CONTEXT);
	selftest_context();
}

static void test_ipc(void)
{
	actors_start();
	for (int dies = 0; dies < 2; dies++) {
		tell(&exporter, ipc_get);
		CHECK_MIB(10, 0, 10);
		tell(&importer, ipc_open);
		CHECK_MIB(10, 0, 10);
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, free_address);
		CHECK_MIB(dies ? -1 : 0, 10, 10);
		tell(&importer, ipc_close_first);
		CHECK_MIB(dies ? -1 : 0, 10, 10);
		if (dies)
			tell(&importer, context_reset);
		else
			tell(&importer, ipc_close_second);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
		tell(&importer, ipc_open_gone);
	}
	actor_kill(&importer);
}

/* ---- pools */

static CUmemoryPool pool; /* each actor's own */
static CUdeviceptr pieces[2];

static void pool_make(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemPoolPtrExportData data;
	CUmemoryPool standard;
	int fd = -1;

	CHECK_EQ(cuDeviceGetDefaultMemPool(&standard, 0), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, standard,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemAllocAsync(&pieces[0], MIB, NULL), CUDA_SUCCESS);
	CHECK_EQ(cuMemPoolExportPointer(&data, pieces[0]), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_SUCCESS);
	properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cuMemAllocFromPoolAsync(&pieces[i], 40 * MIB, pool, NULL), CUDA_SUCCESS);
}

static void pool_send(void)
{
	int fd = -1;

	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, pool,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	fd_send(fd);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(cuMemPoolExportPointer(&board->pointers[i], pieces[i]), CUDA_SUCCESS);
	CHECK(memcmp(&board->pointers[0], &board->pointers[1], sizeof board->pointers[0]));
	CHECK_EQ(cuMemPoolExportPointer(&board->pointers[1], pieces[1] + 1),
		 CUDA_ERROR_INVALID_VALUE);
}

static void pool_receive(void)
{
	int fd = fd_receive();

	CHECK_EQ(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	close(fd);
	CHECK_EQ(cuMemAllocFromPoolAsync(&pieces[0], 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(cuMemPoolExportToShareableHandle(&fd, pool,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_ERROR_INVALID_VALUE);
}

/* The second is imported twice. */
static void pieces_import(void)
{
	CUdeviceptr base;
	size_t size;

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(cuMemPoolImportPointer(&pieces[i], pool, &board->pointers[1]),
			 CUDA_SUCCESS);
		CHECK_EQ(cuMemGetAddressRange_v2(&base, &size, pieces[i]), CUDA_SUCCESS);
		CHECK_EQ(size, 40 * MIB);
		CHECK_EQ(cuMemsetD8_v2(pieces[i], 1, size), CUDA_SUCCESS);
	}
	CHECK(pieces[0] != pieces[1]);
	board->pointers[0].reserved[0] ^= 1;
	CHECK_EQ(cuMemPoolImportPointer(&base, pool, &board->pointers[0]),
		 CUDA_ERROR_INVALID_VALUE);
}

static void first_give(void)
{
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(pieces[0]), CUDA_ERROR_INVALID_VALUE);
}

static void second_give_async(void)
{
	CHECK_EQ(cuMemFreeAsync(pieces[1], NULL), CUDA_SUCCESS);
}

static void synchronize(void)
{
	CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void pool_end(void)
{
	CHECK_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

static void pool_grow(void)
{
	CUdeviceptr more;

	CHECK_EQ(cuMemAllocFromPoolAsync(&more, 100 * MIB, pool, NULL), CUDA_SUCCESS);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT + 192 * MIB);
	CHECK_EQ(cuMemAllocFromPoolAsync(&more, 8 * GIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_pools(void)
{
	for (int dies = 0; dies < 2; dies++) {
		actors_start();
		tell(&exporter, pool_make);
		CHECK_MIB(96, 0, 96);
		tell(&exporter, pool_send);
		tell(&importer, pool_receive);
		CHECK_MIB(96, 0, 96);
		tell(&importer, pieces_import);
		CHECK_MIB(96, 0, 96);
		tell(&exporter, first_give);
		tell(&exporter, second_give_async);
		tell(&exporter, synchronize);
		CHECK_MIB(96, 0, 96); /* no less while the other has some of it */
		if (dies)
			actor_kill(&exporter);
		else
			tell(&exporter, pool_end);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, first_give);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, second_give_async);
		CHECK_MIB(dies ? -1 : 0, 96, 96);
		tell(&importer, synchronize);
		CHECK_MIB(dies ? -1 : 0, 0, 0);
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
		tell(&exporter, synchronize);
		CHECK_MIB(160, dies ? -1 : 0, 160);
		actor_kill(&exporter);
		if (!dies)
			actor_kill(&importer);
		CHECK_EQ(selftest_used(0), 0);
	}
}

/* ---- other libraries */

static void external(void)
{
	int fd = open("/dev/zero", O_RDWR);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = 20 * MIB};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 10 * MIB, .size = 11 * MIB};
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC mipmap = {
		.arrayDesc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, .numLevels = 3};
	CUmipmappedArray array;
	CUexternalMemory outside;
	CUdeviceptr p;

	memcpy(desc.handle, &fd, sizeof fd);
	CHECK_EQ(cuImportExternalMemory(&outside, &desc), CUDA_SUCCESS);
	CHECK_EQ(fcntl(fd, F_GETFD), -1); /* the driver has it */
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_EQ(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer), CUDA_ERROR_INVALID_VALUE);
	buffer.size = 10 * MIB;
	CHECK_EQ(cuExternalMemoryGetMappedBuffer(&p, outside, &buffer), CUDA_SUCCESS);
	CHECK_EQ(cuMemsetD8_v2(p, 1, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQ(cuExternalMemoryGetMappedMipmappedArray(&array, outside, &mipmap), CUDA_SUCCESS);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(cuMipmappedArrayDestroy(array), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST + 20 * MIB);
	CHECK_EQ(cuDestroyExternalMemory(outside), CUDA_SUCCESS);
	CHECK_EQ(cuDestroyExternalMemory(outside), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQ(selftest_used(0), CONTEXT + FIRST);
}

static void test_external(void)
{
	exporter = actor_start();
	tell(&exporter, external);
	actor_kill(&exporter);
}

int main(void)
{
	selftest_begin("1x8G");
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(board != MAP_FAILED);
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets));
	test_handles();
	test_orphan();
	test_range();
	test_ipc();
	test_pools();
	test_pool_given_back();
	test_external();
	return 0;
}
