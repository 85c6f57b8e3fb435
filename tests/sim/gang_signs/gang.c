/* See gang.h. */
#include "gang.h"

#define SOON_LAUNCHES_MS 10000 /* no machine takes that long to see a change */

CUcontext contexts[DEVICES];
static CUfunction spins[DEVICES];

void machine(const char *cores)
{
	env_set("VGPU_SIM_GPUS", "3x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	env_set("CUDA_DEVICE_SM_LIMIT", cores);
}

void use(CUdevice device)
{
	CHECK_OK(cuCtxSetCurrent(contexts[device]));
}

void start_all(void)
{
	for (CUdevice device = 0; device < DEVICES; device++) {
		contexts[device] = cuda_start(device);
		spins[device] = spin_load();
	}
	use(0);
}

unsigned members_of(pid_t pid)
{
	const struct vgpu_region_gang *gang = &ledger()->own.gang;
	unsigned found = 0, slots = (1u << VGPU_GANG_OWNER_SLOTS) - 1;
	int slot = ledger_slot(pid);

	CHECK(slot >= 0);
	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++) {
		uint32_t owner = __atomic_load_n(&gang->member[i].owner, __ATOMIC_SEQ_CST);

		if ((owner & slots) != (unsigned)slot + 1 ||
		    gang->member[i].slice & VGPU_MEMBER_OF_DEVICE)
			continue;
		for (unsigned device = 0; device < DEVICES; device++)
			if (ledger_index(device) == gang->member[i].device)
				found |= 1u << device;
	}
	return found;
}

unsigned members(void)
{
	CUcontext before;

	CHECK_OK(cuCtxGetCurrent(&before));
	for (CUdevice device = 0; device < DEVICES; device++) {
		use(device);
		busy(spins[device], 1000, NULL);
		CHECK_OK(cuCtxSynchronize());
	}
	CHECK_OK(cuCtxSetCurrent(before));
	return members_of(getpid());
}

void become(unsigned expected)
{
	uint64_t began = now_ms();

	while (members() != expected && now_ms() - began < SOON_LAUNCHES_MS)
		sleep_ms(5);
	CHECK_EQUAL(members(), expected);
}

/* -- other processes --------------------------------------------------------------------------- */

static void follow(int wire)
{
	step_fn *step;

	start_all();
	tell(wire, 1);
	while ((step = (step_fn *)(uintptr_t)hear(wire)))
		tell(wire, step(hear(wire)));
}

struct member rank(void)
{
	struct member member = member_begin(follow);
	return member;
}

uint64_t order(struct member *member, step_fn *step, uint64_t argument)
{
	tell(member->wire, (uintptr_t)step);
	tell(member->wire, argument);
	return hear(member->wire);
}

void dismiss(struct member *member)
{
	member_finish(member);
}
