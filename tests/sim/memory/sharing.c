/*
 * Memory that goes from process to process. Within a slice it is charged once, for as long as any
 * process has it, whoever lets go or dies first; another slice is charged for it too, while it has
 * it.
 *
 * Processes that have CUDA, the actors, do one step after the other as the scene tells them, which
 * has no CUDA and looks: at the device from outside, and at the slice's books.
 */
#include "cuda_api.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE    (64 * MIB)
#define FIGURE  (CONTEXT + 9 * MIB) /* what an actor with nothing costs the device */
#define CHARGE  (CONTEXT + HIDDEN)  /* and its slice */
#define THINGS  8
#define POSIX   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define DMA_BUF CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

typedef CUmemGenericAllocationHandle memory;
typedef uint64_t step(uint64_t argument);

/* -- actors ----------------------------------------------------------------------------------- */

/* What the actors leave for each other. Descriptors go from one end to the other. */
static struct board {
	CUipcMemHandle ipc[THINGS];
	CUmemPoolPtrExportData pointers[THINGS];
} * board;
static int parcel[2];

/* Each actor's own, by number. */
static memory handles[THINGS];
static CUdeviceptr addresses[THINGS], spaces[THINGS];
static int files[THINGS];
static const char *other_slice;

static void act(int wire)
{
	step *todo;
	uint64_t argument;

	if (other_slice) {
		env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
		env_set("CUDA_DEVICE_MEMORY_LIMIT", other_slice);
	}
	cuda_start(0);
	give(take(1)); /* settles the context */
	tell(wire, 1);
	while ((todo = (step *)(uintptr_t)hear(wire))) {
		argument = hear(wire);
		tell(wire, todo(argument));
	}
}

static struct member actor(void)
{
	struct member member = member_start(act);

	hear(member.wire);
	return member;
}

/* One of a slice with that limit. */
static struct member outsider(const char *limit)
{
	struct member member;

	other_slice = limit;
	member = actor();
	other_slice = NULL;
	return member;
}

static uint64_t order(struct member *member, step *todo, uint64_t argument)
{
	tell(member->wire, (uintptr_t)todo);
	tell(member->wire, argument);
	return hear(member->wire);
}

static void dismiss(struct member *member)
{
	tell(member->wire, 0);
	member_end(member);
}

static void begin(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(board != MAP_FAILED);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, parcel) == 0);
}

static void parcel_send(int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	CHECK_EQUAL(sendmsg(parcel[0], &message, 0), 1);
}

static int parcel_receive(void)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	int fd;

	CHECK_EQUAL(recvmsg(parcel[1], &message, MSG_CMSG_CLOEXEC), 1);
	CHECK(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* -- what is true ----------------------------------------------------------------------------- */

/* The slice's living actors hold so much, all in all, and it is charged once. */
static void assert_held(unsigned living, uint64_t bytes)
{
	CHECK_EQUAL(ledger_reap(), living);
	CHECK_EQUAL(outside_used(0), living * FIGURE + bytes);
	CHECK_EQUAL(ledger_used(0), living * CHARGE + bytes);
}

/* What is charged to it beside its context. */
static void assert_charged(const struct member *member, uint64_t data, uint64_t offset)
{
	struct vgpu_hami_usage usage = ledger_of(member->pid, 0);

	CHECK_EQUAL(usage.data, data);
	CHECK_EQUAL(usage.offset, HIDDEN + offset);
	CHECK_EQUAL(usage.module, 0);
}

/* The same asked of itself, by an actor of another slice. */
static uint64_t own_data(uint64_t unused)
{
	(void)unused;
	return ledger_own(0).data;
}

static uint64_t own_offset(uint64_t unused)
{
	(void)unused;
	return ledger_own(0).offset - HIDDEN;
}

static void assert_outsider(struct member *member, uint64_t data, uint64_t offset)
{
	CHECK_EQUAL(order(member, own_data, 0), data);
	CHECK_EQUAL(order(member, own_offset, 0), offset);
}

/* The books are compared with NVML's figure: due once a second. */
static uint64_t look(uint64_t unused)
{
	(void)unused;
	sleep_ms(1100);
	give(take(1));
	return 0;
}

static uint64_t context_reset(uint64_t unused)
{
	(void)unused;
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	cuda_start(0);
	give(take(1));
	return 0;
}

/* -- steps: memory by handle ------------------------------------------------------------------ */

static uint64_t create(uint64_t i)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	CHECK_CUDA(cuMemCreate(&handles[i], SIZE, &prop, 0), CUDA_SUCCESS);
	return 0;
}

static uint64_t export(uint64_t i)
{
	CHECK_CUDA(cuMemExportToShareableHandle(&files[i], handles[i], POSIX, 0), CUDA_SUCCESS);
	return 0;
}

static uint64_t post(uint64_t i)
{
	parcel_send(files[i]);
	return 0;
}

static uint64_t file_close(uint64_t i)
{
	CHECK(close(files[i]) == 0);
	return 0;
}

/* Exports it, sends the descriptor, and keeps none. */
static uint64_t send_off(uint64_t i)
{
	export(i);
	post(i);
	return file_close(i);
}

static uint64_t receive(uint64_t i)
{
	files[i] = parcel_receive();
	return 0;
}

static uint64_t import(uint64_t i)
{
	CHECK_CUDA(cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)files[i], POSIX),
		   CUDA_SUCCESS);
	return 0;
}

static uint64_t fetch(uint64_t i)
{
	receive(i);
	import(i);
	return file_close(i);
}

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

static uint64_t release(uint64_t i)
{
	CHECK_CUDA(cuMemRelease(handles[i]), CUDA_SUCCESS);
	return 0;
}

/* -- scenes: memory by handle ----------------------------------------------------------------- */

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

static void importer_lets_go(void)
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

static void exporter_lets_go(void)
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
static void several_importers(void)
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

/* Who got it sends it on, and lets go: to the last it is charged at least once. */
static void sent_on(void)
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
	assert_charged(&c, 0, SIZE);
	order(&b, release, 0);
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
static void own_import(void)
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
static void kept_by_descriptor(void)
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

/* The end of the last context takes nothing of what is of none. */
static void contexts_end(void)
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

/* -- scenes: another slice -------------------------------------------------------------------- */

static void handle_of_outsider(void)
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
static void handle_too_big(void)
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

/* There is room for it once, and it can be mapped twice. */
static void handle_mapped_twice(void)
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

/* -- steps: CUDA IPC -------------------------------------------------------------------------- */

static uint64_t allocate(uint64_t i)
{
	addresses[i] = take(SIZE);
	return 0;
}

static uint64_t ipc_get(uint64_t i)
{
	CHECK_CUDA(cuIpcGetMemHandle(&board->ipc[i], addresses[i] + MIB), CUDA_SUCCESS);
	return 0;
}

static uint64_t allocate_and_get(uint64_t i)
{
	allocate(i);
	return ipc_get(i);
}

/* Opens the handle 0 of the board, by either version, as the i-th. */
static uint64_t ipc_try(uint64_t i)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result;

	if (i % 2)
		result = cuIpcOpenMemHandle(&address, board->ipc[0], 1);
	else
		result = cuIpcOpenMemHandle_v2(&address, board->ipc[0], 1);
	if (result == CUDA_SUCCESS)
		addresses[i] = address;
	else
		CHECK_EQUAL(address, UNTOUCHED);
	return result;
}

static uint64_t ipc_open(uint64_t i)
{
	CHECK_CUDA(ipc_try(i), CUDA_SUCCESS);
	return 0;
}

static uint64_t ipc_close(uint64_t i)
{
	CHECK_CUDA(cuIpcCloseMemHandle(addresses[i]), CUDA_SUCCESS);
	CHECK_CUDA(cuIpcCloseMemHandle(addresses[i]), CUDA_ERROR_INVALID_VALUE);
	return 0;
}

static uint64_t give_back_address(uint64_t i)
{
	give(addresses[i]);
	return 0;
}

/* -- scenes: CUDA IPC ------------------------------------------------------------------------- */

/* a has allocated it, b has opened it twice, as 0 and 1. */
static void open_twice(struct member *a, struct member *b)
{
	order(a, allocate_and_get, 0);
	assert_held(2, SIZE);
	order(b, ipc_open, 0);
	order(b, ipc_open, 1);
	assert_held(2, SIZE);
	assert_charged(a, SIZE, 0);
	assert_charged(b, 0, 0);
}

static void ipc_closed_first(void)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	CHECK_CUDA((order(&a, allocate_and_get, 0), order(&a, ipc_try, 1)),
		   CUDA_ERROR_INVALID_CONTEXT); /* it is its own */
	order(&a, give_back_address, 0);
	assert_held(2, 0);
	for (unsigned round = 0; round < 3; round++) {
		open_twice(&a, &b);
		order(&b, ipc_close, round % 2);
		assert_held(2, SIZE);
		order(&b, ipc_close, !(round % 2));
		assert_held(2, SIZE);
		assert_charged(&a, SIZE, 0);
		order(&a, give_back_address, 0);
		assert_held(2, 0);
	}
	open_twice(&a, &b);
	order(&b, context_reset, 0); /* closes both */
	assert_held(2, SIZE);
	order(&a, give_back_address, 0);
	assert_held(2, 0);
	open_twice(&a, &b);
	member_kill(&b);
	assert_held(1, SIZE);
	order(&a, give_back_address, 0);
	assert_held(1, 0);
	dismiss(&a);
}

static void ipc_freed_first(void)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	for (unsigned round = 0; round < 3; round++) {
		open_twice(&a, &b);
		order(&a, give_back_address, 0);
		assert_held(2, SIZE);
		assert_charged(&a, 0, 0);
		assert_charged(&b, SIZE, 0);
		order(&b, ipc_close, 1);
		assert_held(2, SIZE);
		order(&b, ipc_close, 0);
		assert_held(2, 0);
	}
	for (unsigned resets = 0; resets < 2; resets++) {
		open_twice(&a, &b);
		if (resets)
			order(&a, context_reset, 0);
		else
			order(&a, give_back_address, 0);
		assert_held(2, SIZE);
		order(&b, context_reset, 0);
		assert_held(2, 0);
	}
	dismiss(&a);
	dismiss(&b);
}

static void ipc_exporter_dies(void)
{
	struct member a, b;

	begin();
	b = actor();
	for (unsigned looks = 0; looks < 2; looks++) {
		a = actor();
		open_twice(&a, &b);
		member_kill(&a);
		if (looks) {
			order(&b, look, 0);
			CHECK_AT_MOST(outside_used(0), ledger_used(0));
		}
		ledger_reap();
		if (looks)
			order(&b, look, 0);
		assert_held(1, SIZE);
		assert_charged(&b, SIZE, 0);
		order(&b, ipc_close, 0);
		assert_held(1, SIZE);
		order(&b, ipc_close, 1);
		assert_held(1, 0);
	}
	dismiss(&b);
	assert_held(0, 0);
}

/* The quota is one for all: what is shared is not in the way twice. */
static void ipc_at_the_quota(void)
{
	struct member a, b;

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1156m"); /* two contexts, and 100 MiB */
	a = actor();
	b = actor();
	open_twice(&a, &b);
	order(&a, give_back_address, 0);
	assert_held(2, SIZE);
	CHECK_CUDA(order(&a, ipc_try, 2), CUDA_ERROR_INVALID_CONTEXT);
	order(&b, ipc_close, 0);
	order(&b, ipc_close, 1);
	for (unsigned round = 0; round < 3; round++) {
		order(&a, allocate, 1);
		order(&a, give_back_address, 1);
	}
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
}

static void ipc_of_outsider(void)
{
	struct member a, b;

	begin();
	b = outsider("1g");
	a = actor();
	order(&a, allocate_and_get, 0);
	order(&b, ipc_open, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, ipc_open, 1);
	assert_outsider(&b, 0, 2 * SIZE); /* not known to be the same */
	order(&b, ipc_close, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, look, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, context_reset, 0);
	assert_outsider(&b, 0, 0);
	order(&b, ipc_open, 0);
	order(&b, ipc_close, 0);
	assert_outsider(&b, 0, 0);
	assert_charged(&a, SIZE, 0);
	order(&a, give_back_address, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE);
	dismiss(&a);
	dismiss(&b);
}

/* It does not fit: it is closed again, and refused as the driver refuses. */
static void ipc_too_big(void)
{
	struct member a, b;

	begin();
	b = outsider("580m"); /* a context and 52 MiB */
	a = actor();
	order(&a, allocate_and_get, 0);
	for (unsigned i = 0; i < 4; i++) {
		CHECK_CUDA(order(&b, ipc_try, i), CUDA_ERROR_OUT_OF_MEMORY);
		assert_outsider(&b, 0, 0);
	}
	CHECK_EQUAL(outside_of(0, a.pid), CONTEXT + SIZE);
	order(&a, give_back_address, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE); /* nobody has it open */
	dismiss(&a);
	dismiss(&b);
}

/* -- dma-buf ---------------------------------------------------------------------------------- */

static uint64_t range_export(uint64_t i)
{
	CHECK_CUDA(
		cuMemGetHandleForAddressRange(&files[i], addresses[i], SIZE + GRANULE, DMA_BUF, 0),
		CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemGetHandleForAddressRange(&files[i], addresses[i] + GRANULE, GRANULE,
						 DMA_BUF, 0),
		   CUDA_SUCCESS);
	return 0;
}

static void dma_buf(void)
{
	struct member a;

	begin();
	a = actor();
	order(&a, allocate, 0);
	order(&a, range_export, 0);
	assert_held(1, SIZE);
	order(&a, give_back_address, 0);
	assert_held(1, SIZE);
	assert_charged(&a, 0, SIZE);
	order(&a, look, 0);
	assert_charged(&a, 0, SIZE);
	order(&a, file_close, 0);
	order(&a, look, 0);
	assert_held(1, 0);
	order(&a, allocate, 0);
	order(&a, range_export, 0);
	order(&a, file_close, 0);
	order(&a, give_back_address, 0);
	assert_held(1, 0);
	dismiss(&a);
}

/* -- other APIs ------------------------------------------------------------------------------- */

static CUexternalMemory externals[THINGS];

static uint64_t external_try(uint64_t i)
{
	int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
						 .size = SIZE};

	memcpy(desc.handle, &fd, sizeof(fd));
	externals[i] = NULL;
	return cuImportExternalMemory(&externals[i], &desc);
}

static uint64_t external_destroy(uint64_t i)
{
	CHECK_CUDA(cuDestroyExternalMemory(externals[i]), CUDA_SUCCESS);
	CHECK_CUDA(cuDestroyExternalMemory(externals[i]), CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static void external_memory(void)
{
	struct member a;

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "700m"); /* a context, and room for two */
	a = actor();
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	CHECK_CUDA(order(&a, external_try, 1), CUDA_SUCCESS);
	assert_held(1, 2 * SIZE);
	assert_charged(&a, 0, 2 * SIZE);
	CHECK_CUDA(order(&a, external_try, 2), CUDA_ERROR_OUT_OF_MEMORY);
	assert_held(1, 2 * SIZE);
	order(&a, external_destroy, 0);
	assert_held(1, SIZE);
	order(&a, look, 0);
	assert_held(1, SIZE);
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	order(&a, external_destroy, 1);
	order(&a, external_destroy, 0);
	assert_held(1, 0);
	CHECK_CUDA(order(&a, external_try, 0), CUDA_SUCCESS);
	order(&a, context_reset, 0);
	CHECK_EQUAL(ledger_used(0), CHARGE);
	dismiss(&a);
	assert_held(0, 0);
}

/* -- pools ------------------------------------------------------------------------------------ */

static CUmemoryPool pool;

static uint64_t pool_create(uint64_t pieces)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .handleTypes = POSIX,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	int fd = -1;

	CHECK_CUDA(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
	for (unsigned i = 0; i < pieces; i++) {
		CHECK_CUDA(cuMemAllocFromPoolAsync(&addresses[i], SIZE, pool, NULL), CUDA_SUCCESS);
		CHECK_CUDA(cuMemPoolExportPointer(&board->pointers[i], addresses[i]), CUDA_SUCCESS);
	}
	CHECK_CUDA(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0), CUDA_SUCCESS);
	parcel_send(fd);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pool_import(uint64_t unused)
{
	int fd = parcel_receive();

	(void)unused;
	CHECK_CUDA(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0),
		   CUDA_SUCCESS);
	CHECK(close(fd) == 0);
	return 0;
}

static uint64_t pointer_try(uint64_t i)
{
	return cuMemPoolImportPointer(&addresses[i], pool, &board->pointers[i]);
}

/* At once, or in stream order. */
static uint64_t pointer_give(uint64_t i)
{
	if (i % 2) {
		CHECK_CUDA(cuMemFreeAsync(addresses[i], NULL), CUDA_SUCCESS);
		CHECK_CUDA(cuCtxSynchronize(), CUDA_SUCCESS);
	} else {
		CHECK_CUDA(cuMemFree_v2(addresses[i]), CUDA_SUCCESS);
	}
	return 0;
}

static uint64_t pool_destroy(uint64_t unused)
{
	(void)unused;
	CHECK_CUDA(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	return 0;
}

static void pool_pointers(void)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, pool_create, 2);
	order(&b, pool_import, 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			CHECK_CUDA(order(&b, pointer_try, i), CUDA_SUCCESS);
		assert_held(2, 2 * SIZE);
		assert_charged(&a, 2 * SIZE, 0);
		assert_charged(&b, 0, 0);
		order(&b, pointer_give, round % 2);
		order(&b, pointer_give, !(round % 2));
		assert_held(2, 2 * SIZE);
	}
	order(&b, look, 0);
	assert_charged(&b, 0, 0);
	order(&b, pool_destroy, 0);
	order(&a, pointer_give, 0);
	order(&a, pointer_give, 1);
	assert_held(2, 0);
	order(&a, pool_destroy, 0);
	dismiss(&a);
	dismiss(&b);
	assert_held(0, 0);
}

/* The exporter goes while the other has the pointer: at the next look the other is charged. */
static void pool_outlived(void)
{
	struct member a, b;

	begin();
	b = actor();
	for (unsigned dies = 0; dies < 2; dies++) {
		a = actor();
		order(&a, pool_create, 1);
		order(&b, pool_import, 0);
		CHECK_CUDA(order(&b, pointer_try, 0), CUDA_SUCCESS);
		if (!dies)
			order(&a, pointer_give, 0);
		if (!dies)
			order(&a, pool_destroy, 0);
		member_kill(&a);
		order(&b, look, 0);
		assert_held(1, SIZE);
		order(&b, pointer_give, 0);
		order(&b, pool_destroy, 0);
		order(&b, look, 0);
		assert_held(1, 0);
	}
	dismiss(&b);
}

static void pool_of_outsider(void)
{
	struct member a, b, poor;

	begin();
	b = outsider("1g");
	a = actor();
	order(&a, pool_create, 2);
	order(&b, pool_import, 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_CUDA(order(&b, pointer_try, i), CUDA_SUCCESS);
		assert_outsider(&b, 0, SIZE);
		order(&b, pointer_give, i);
		assert_outsider(&b, 0, 0);
	}
	CHECK_CUDA(order(&b, pointer_try, 0), CUDA_SUCCESS);
	CHECK_CUDA(order(&b, pointer_try, 1), CUDA_SUCCESS);
	assert_outsider(&b, 0, 2 * SIZE);
	order(&b, context_reset, 0); /* they are of no context */
	assert_outsider(&b, 0, 2 * SIZE);
	dismiss(&b);
	order(&a, pointer_give, 0);
	order(&a, pointer_give, 1);
	order(&a, pool_destroy, 0);
	poor = outsider("580m");
	order(&a, pool_create, 1);
	order(&poor, pool_import, 0);
	CHECK_CUDA(order(&poor, pointer_try, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_outsider(&poor, 0, 0);
	assert_charged(&a, SIZE, 0);
	order(&a, pointer_give, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE); /* nobody has it */
	dismiss(&poor);
	dismiss(&a);
	assert_held(0, 0);
}

/* -- storms ----------------------------------------------------------------------------------- */

#define ACTORS 5
#define ROUNDS 600

/* What a storm's actors have, as the scene keeps it. */
struct storm {
	struct member members[ACTORS];
	bool has[ACTORS][THINGS]; /* of each of THINGS shared allocations */
	unsigned makers[THINGS];  /* who alone sends it to others */
	uint64_t seed;
};

static unsigned dice(struct storm *storm, unsigned sides)
{
	storm->seed = storm->seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(storm->seed >> 33) % sides;
}

static bool is_had(const struct storm *storm, unsigned thing)
{
	bool had = false;

	for (unsigned who = 0; who < ACTORS; who++)
		had |= storm->has[who][thing];
	return had;
}

static unsigned things_had(const struct storm *storm)
{
	unsigned count = 0;

	for (unsigned i = 0; i < THINGS; i++)
		count += is_had(storm, i);
	return count;
}

static void storm_step(struct storm *storm)
{
	unsigned who = dice(storm, ACTORS), thing = dice(storm, THINGS);
	unsigned maker = storm->makers[thing];
	struct member *member = &storm->members[who];

	if (dice(storm, 25) == 0) {
		member_kill(member);
		memset(storm->has[who], 0, sizeof(storm->has[who]));
		*member = actor();
	} else if (storm->has[who][thing]) {
		order(member, release, thing);
		storm->has[who][thing] = false;
	} else if (!is_had(storm, thing)) {
		order(member, create, thing);
		storm->has[who][thing] = true;
		storm->makers[thing] = who;
	} else if (maker != who && storm->has[maker][thing]) {
		order(&storm->members[maker], send_off, thing);
		order(member, fetch, thing);
		storm->has[who][thing] = true;
	}
}

/* Who has what is known all the time, and so what must be charged. */
static void orderly_storm(void)
{
	struct storm storm = {.seed = 17};

	begin();
	for (unsigned i = 0; i < ACTORS; i++)
		storm.members[i] = actor();
	for (unsigned round = 0; round < ROUNDS; round++) {
		storm_step(&storm);
		assert_held(ACTORS, things_had(&storm) * SIZE);
	}
	for (unsigned i = 0; i < ACTORS; i++)
		member_kill(&storm.members[i]);
	assert_held(0, 0);
}

static unsigned storm_seed;

/* All at once: whatever lies on the board is opened, and what was opened closed, without end. */
static void rage(int wire)
{
	unsigned seed = storm_seed, mine = seed % THINGS;
	CUdeviceptr own = 0, opened[THINGS] = {0};

	cuda_start(0);
	give(take(1));
	tell(wire, 1);
	for (;;) {
		unsigned i = (unsigned)rand_r(&seed) % THINGS;

		if (i == mine && own) {
			give(own);
			own = 0;
		} else if (i == mine) {
			own = take(SIZE);
			CHECK_CUDA(cuIpcGetMemHandle(&board->ipc[i], own), CUDA_SUCCESS);
		} else if (opened[i]) {
			CHECK_CUDA(cuIpcCloseMemHandle(opened[i]), CUDA_SUCCESS);
			opened[i] = 0;
		} else if (cuIpcOpenMemHandle(&opened[i], board->ipc[i], 1) != CUDA_SUCCESS) {
			opened[i] = 0;
		}
	}
}

static struct member rager(unsigned seed)
{
	struct member member;

	storm_seed = seed;
	member = member_start(rage);
	hear(member.wire);
	return member;
}

static void disorderly_storm(void)
{
	struct member members[ACTORS];
	struct member witness;

	begin();
	witness = actor();
	for (unsigned i = 0; i < ACTORS; i++)
		members[i] = rager(i);
	for (unsigned round = 0; round < 60; round++) {
		sleep_ms(5 + round % 7);
		member_kill(&members[round % ACTORS]);
		CHECK_EQUAL(ledger_reap(), ACTORS);
		CHECK_AT_MOST(ledger_used(0), 4 * GIB);
		members[round % ACTORS] = rager(round % ACTORS + THINGS * round);
	}
	for (unsigned i = 0; i < ACTORS; i++)
		member_kill(&members[i]);
	assert_held(1, 0);
	assert_charged(&witness, 0, 0);
	dismiss(&witness);
	assert_held(0, 0);
}

int main(int argc, char **argv)
{
	static const struct scene scenes[] = {
		SCENE(importer_lets_go),  SCENE(exporter_lets_go),
		SCENE(several_importers), SCENE(sent_on),
		SCENE(own_import),        SCENE(kept_by_descriptor),
		SCENE(contexts_end),      SCENE(handle_of_outsider),
		SCENE(handle_too_big),    SCENE(handle_mapped_twice),
		SCENE(ipc_closed_first),  SCENE(ipc_freed_first),
		SCENE(ipc_exporter_dies), SCENE(ipc_at_the_quota),
		SCENE(ipc_of_outsider),   SCENE(ipc_too_big),
		SCENE(dma_buf),           SCENE(external_memory),
		SCENE(pool_pointers),     SCENE(pool_outlived),
		SCENE(pool_of_outsider),  SCENE(orderly_storm),
		SCENE(disorderly_storm),
	};

	return SCENES_PLAY(scenes, argc, argv);
}
