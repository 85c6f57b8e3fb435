/* See acts.h. */
#include "acts.h"

#include <unistd.h>

static const struct acts *row;
static const struct act *now; /* the act that is taken or checked */

static void expect(const char *what, uint64_t found, uint64_t expected)
{
	CHECK_SAYING(found == expected, "%s, act %u: %s: %llu and %llu", row->name,
		     (unsigned)(now - row->acts), what, (unsigned long long)found,
		     (unsigned long long)expected);
}

static void check_covered(void)
{
	struct vgpu_hami_usage usage = ledger_own(0);
	uint64_t charged = usage.context + usage.module + usage.data;
	uint64_t outside = outside_of(0, getpid());

	CHECK_SAYING(outside <= charged, "%s, act %u: %llu bytes are held, and %llu charged",
		     row->name, (unsigned)(now - row->acts), (unsigned long long)outside,
		     (unsigned long long)charged);
}

static void check_charged(uint64_t bytes)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	expect("data", usage.data, bytes);
	expect("context", usage.context, CONTEXT);
	expect("modules", usage.module, 0);
	expect("the ledger's total", usage.total, CONTEXT + HIDDEN + bytes);
	expect("all of the ledger", ledger_used(0), usage.total);
	expect("NVML's figure of the process", outside_of(0, getpid()), CONTEXT + bytes);
	expect("the device", outside_used(0), CONTEXT + CONTEXT_APART + bytes);
}

static void take_one(const struct act *act)
{
	now = act;
	expect("result", act->call.make(&act->call), act->result);
	if (act->charged_mib == COVERED)
		check_covered();
	else if (act->charged_mib != UNCHECKED)
		check_charged(act->charged_mib * MIB);
}

void acts_begin(const struct acts *begun)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", begun->limit ? begun->limit : "1g");
	env_set("VGPU_SIM_FAULTS", begun->faults);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_EQUAL(ledger_own(0).data, 0);
}

void acts_take(const struct acts *begun)
{
	row = begun;
	for (unsigned round = 0; round < (row->rounds ? row->rounds : 1); round++)
		for (const struct act *act = row->acts;
		     act < row->acts + ACTS_MAX && act->call.make; act++)
			take_one(act);
}
