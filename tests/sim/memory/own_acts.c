/* See own_acts.h. */
#include "own_acts.h"

#include <unistd.h>

static const struct own_row *row;
static const struct own_act *now; /* the act that is taken or checked */
static unsigned round_number;
static CUcontext primary;

static CUdeviceptr addresses[ACT_THINGS];
static union loaded codes[ACT_THINGS];
static unsigned loaders[ACT_THINGS]; /* by which each code was loaded */

static void expect(const char *what, uint64_t found, uint64_t expected)
{
	CHECK_SAYING(found == expected, "%s, act %u: %s: %llu and %llu", row->name,
		     (unsigned)(now - row->acts), what, (unsigned long long)found,
		     (unsigned long long)expected);
}

static void check(void)
{
	struct vgpu_hami_usage usage = ledger_own(0);
	uint64_t outside = outside_of(0, getpid());

	if (now->own_mib == COVERED) {
		CHECK_AT_MOST(outside, usage.context + usage.module + usage.data);
	} else if (now->own_mib == ENDED) {
		expect("the ledger's total", usage.total, 0);
		CHECK_AT_MOST(outside_used(0), STRAY);
	} else if (now->own_mib != UNCHECKED) {
		expect("the driver's own", usage.module, now->own_mib * MIB);
		expect("data", usage.data, now->data_mib * MIB);
		expect("context", usage.context, CONTEXT);
		expect("hidden", usage.offset, HIDDEN);
		expect("NVML's figure of the process", outside,
		       CONTEXT + (now->own_mib + now->data_mib) * MIB);
		CHECK_AT_MOST(outside_used(0), usage.total);
	}
}

void own_play(const struct own_row *played)
{
	row = played;
	env_set("VGPU_SIM_FAULTS", row->faults);
	if (row->without_context) {
		env_set("CUDA_DEVICE_MEMORY_LIMIT", row->limit);
		CHECK_OK(cuInit(0));
	} else {
		primary = start(row->limit);
	}
	for (round_number = 0; round_number < (row->rounds ? row->rounds : 1); round_number++)
		for (now = row->acts; now < row->acts + ACTS_MAX && now->call.make; now++) {
			expect("result", now->call.make(&now->call), now->result);
			check();
		}
}

CUresult own_take(const struct act_call *call)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result = cuMemAlloc_v2(&address, call->size * MIB);

	CHECK((result == CUDA_SUCCESS) == (address != UNTOUCHED));
	if (result == CUDA_SUCCESS)
		addresses[call->thing] = address;
	return result;
}

ACT(own_give, cuMemFree_v2(addresses[call->thing]));
ACT(own_leave, (addresses[call->thing] = leave(call->size * MIB), CUDA_SUCCESS));
ACT(own_rest, (rest(), CUDA_SUCCESS));

CUresult own_load(const struct act_call *call)
{
	union loaded loaded = {.any = (void *)UNTOUCHED};
	unsigned loader = (unsigned)(call->at + (call->size ? round_number : 0));
	CUresult result = load(loader, &loaded);

	CHECK((result == CUDA_SUCCESS) == (loaded.any != (void *)UNTOUCHED));
	if (result == CUDA_SUCCESS) {
		codes[call->thing] = loaded;
		loaders[call->thing] = loader;
	}
	return result;
}

ACT(own_unload, try_unload(loaders[call->thing], codes[call->thing]));

/* The limit is what the call made it, or what it was. */
CUresult own_set_stack(const struct act_call *call)
{
	size_t before = 0;
	CUresult result;

	CHECK_OK(cuCtxGetLimit(&before, CU_LIMIT_STACK_SIZE));
	result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, call->size);
	assert_stack(result == CUDA_SUCCESS ? call->size : before);
	return result;
}

ACT(own_reset, cuDevicePrimaryCtxReset_v2(0));
ACT(own_release, cuDevicePrimaryCtxRelease_v2(0));
ACT(own_enter_primary, cuCtxSetCurrent(primary));
ACT(own_leave_context, cuCtxSetCurrent(NULL));
