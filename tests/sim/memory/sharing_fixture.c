/* See sharing_fixture.h. */
#include "sharing_fixture.h"

#include "pass_fd.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* -- actors ----------------------------------------------------------------------------------- */

struct board *board;
static int parcel[2]; /* descriptors go from one end to the other */

CUmemGenericAllocationHandle handles[THINGS];
CUdeviceptr addresses[THINGS];
int files[THINGS];
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

struct member actor(void)
{
	struct member member = member_begin(act);
	return member;
}

/* One of a slice with that limit. */
struct member outsider(const char *limit)
{
	struct member member;

	other_slice = limit;
	member = actor();
	other_slice = NULL;
	return member;
}

uint64_t order(struct member *member, step *todo, uint64_t argument)
{
	tell(member->wire, (uintptr_t)todo);
	tell(member->wire, argument);
	return hear(member->wire);
}

void dismiss(struct member *member)
{
	member_finish(member);
}

void begin(void)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(board != MAP_FAILED);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, parcel) == 0);
}

void parcel_send(int fd)
{
	pass_fd(parcel[0], fd);
}

int parcel_receive(void)
{
	return take_fd(parcel[1]);
}

/* -- what is true ----------------------------------------------------------------------------- */

/* The slice's living actors hold so much, all in all, and it is charged once. */
void assert_held(unsigned living, uint64_t bytes)
{
	CHECK_SOON_EQUAL(ledger_reap(), living);
	CHECK_SOON_EQUAL(outside_used(0), living * FIGURE + bytes);
	CHECK_EQUAL(ledger_used(0), living * CHARGE + bytes);
}

/* What is charged to it beside its context. */
void assert_charged(const struct member *member, uint64_t data, uint64_t offset)
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

void assert_outsider(struct member *member, uint64_t data, uint64_t offset)
{
	CHECK_EQUAL(order(member, own_data, 0), data);
	CHECK_EQUAL(order(member, own_offset, 0), offset);
}

void compare(void)
{
	for (unsigned i = 0; i < 3; i++) {
		sleep_ms(30);
		give(take(MIB));
	}
}

/* -- steps ------------------------------------------------------------------------------------ */

/* The books are compared with NVML's figure: due once a second. */
uint64_t look(uint64_t unused)
{
	(void)unused;
	sleep_ms(1100);
	give(take(1));
	return 0;
}

uint64_t context_reset(uint64_t unused)
{
	(void)unused;
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	cuda_start(0);
	give(take(1));
	return 0;
}

uint64_t create(uint64_t i)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = POSIX,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	CHECK_OK(cuMemCreate(&handles[i], SIZE, &prop, 0));
	return 0;
}

STEP(export, CHECK_OK(cuMemExportToShareableHandle(&files[i], handles[i], POSIX, 0)));
static STEP(post, parcel_send(files[i]));
STEP(file_close, CHECK(close(files[i]) == 0));

/* Exports it, sends the descriptor, and keeps none. */
uint64_t send_off(uint64_t i)
{
	export(i);
	post(i);
	return file_close(i);
}

STEP(receive, files[i] = parcel_receive());
STEP(import,
     CHECK_OK(cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)files[i], POSIX)));

uint64_t fetch(uint64_t i)
{
	receive(i);
	import(i);
	return file_close(i);
}

STEP(release, CHECK_OK(cuMemRelease(handles[i])));
STEP(allocate, addresses[i] = take(SIZE));
STEP(allocate_small, addresses[i] = take(256 * KIB));
STEP(tidy, give(take(1)));
STEP(give_back_address, give(addresses[i]));
