/*
 * share: two processes of a slice and memory that goes from one to the other, by CUDA IPC and as a
 * file descriptor. Prints the name of each state that it has reached, and goes on with each line
 * of its standard input: shared, freed (by the exporter), closed (by the importer too), and
 * orphaned (shared anew, and the exporter killed).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "paths.h"

#define IPC_BYTES (2048 * MIB)
#define FD_BYTES  (1024 * MIB)

static const char *role = "exporter";

static void must(CUresult result, const char *what)
{
	const char *name = "?";

	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	printf("FAIL %s: %s: %s\n", role, what, name);
	fflush(stdout);
	exit(1);
}

#define MUST(call) must(call, #call)

static void send_fd(int wire, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *header;

	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	if (sendmsg(wire, &message, 0) != 1)
		exit(1);
}

static int receive_fd(int wire)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	int fd;

	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	if (recvmsg(wire, &message, 0) != 1)
		exit(0);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static void pass(int wire)
{
	if (write(wire, "", 1) != 1)
		exit(1);
}

static void await(int wire)
{
	char byte;

	if (read(wire, &byte, 1) != 1)
		exit(0);
}

static void start(void)
{
	CUcontext context;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
}

/* -- the exporter -- */

struct shared {
	CUdeviceptr address;
	CUmemGenericAllocationHandle handle;
};

static void hand_out(int wire, struct shared *shared)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUipcMemHandle ipc;
	int fd;

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cuMemAlloc_v2(&shared->address, IPC_BYTES));
	MUST(cuIpcGetMemHandle(&ipc, shared->address));
	MUST(cuMemCreate(&shared->handle, FD_BYTES, &prop, 0));
	MUST(cuMemExportToShareableHandle(&fd, shared->handle,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (write(wire, &ipc, sizeof(ipc)) != sizeof(ipc))
		exit(1);
	send_fd(wire, fd);
	close(fd);
}

static void be_exporter(int wire)
{
	struct shared shared;

	start();
	hand_out(wire, &shared);
	await(wire); /* to free */
	MUST(cuMemFree_v2(shared.address));
	MUST(cuMemRelease(shared.handle));
	pass(wire);
	await(wire); /* to share again */
	hand_out(wire, &shared);
	await(wire);
	raise(SIGKILL);
}

/* -- the importer -- */

static void get(int wire, struct shared *shared)
{
	CUipcMemHandle ipc;
	int fd;

	if (read(wire, &ipc, sizeof(ipc)) != sizeof(ipc))
		exit(1);
	fd = receive_fd(wire);
	MUST(cuIpcOpenMemHandle_v2(&shared->address, ipc, 1));
	MUST(cuMemImportFromShareableHandle(&shared->handle, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
}

static void reach(const char *state)
{
	int c;

	printf("%s\n", state);
	fflush(stdout);
	while ((c = getchar()) != '\n')
		if (c == EOF)
			exit(0);
}

static void be_importer(int wire)
{
	struct shared shared;
	size_t available, total;

	role = "importer";
	start();
	get(wire, &shared);
	reach("shared");
	pass(wire);
	await(wire);
	reach("freed");
	MUST(cuIpcCloseMemHandle(shared.address));
	MUST(cuMemRelease(shared.handle));
	reach("closed");
	pass(wire);
	get(wire, &shared);
	pass(wire); /* it dies */
	while (read(wire, &(char){0}, 1) > 0)
		;
	usleep(200000);
	MUST(cuMemGetInfo_v2(&available, &total)); /* looks for the dead */
	reach("orphaned");
}

int main(void)
{
	int wires[2];
	pid_t exporter;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, wires) != 0)
		return 1;
	exporter = fork();
	if (exporter == 0) {
		close(wires[1]);
		be_exporter(wires[0]);
	} else {
		close(wires[0]);
		be_importer(wires[1]);
	}
	return 0;
}
