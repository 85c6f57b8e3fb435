/*
 * A dead process's slot keeps its charge on each GPU until the slot is cleared. The first line
 * that applies decides whether the GPU still holds the memory:
 *
 *     NVML gives no figure for the memory in use on the GPU       not known
 *     the memory in use on the GPU is less than the charge        the GPU has it back
 *     NVML lists the process                                      the GPU holds it
 *     on the host, NVML lists other processes, but not this one   the GPU has it back
 *     otherwise                                                   not known
 *
 * The fourth line does not apply in a container, where NVML may list no process, or list it by
 * another pid. If the answer is not known, the charge stays in the figures: the slice itself
 * counts it as well.
 */
#include "departed.h"

#include <string.h>

#include "procs.h"

enum verdict { BACK, HELD, UNKNOWN };

/* Whether NVML lists the process on the GPU. */
static bool is_listed(const struct usage_gpu *gpu, const struct overview_process *process)
{
	for (unsigned i = 0; i < gpu->process_count; i++)
		if (gpu->process[i].pid == (unsigned)process->here ||
		    gpu->process[i].pid == (unsigned)process->seen.hostpid)
			return true;
	return false;
}

/* Whether NVML would list the process by a pid that is known here, if the GPU held memory for
 * it. If no pid is known, all processes of the machine must have been looked at. */
static bool would_be_listed(const struct overview_process *process, struct procs *procs)
{
	if (!procs_is_host(procs))
		return false;
	return process->here || process->seen.hostpid || procs_sees_all(procs);
}

static enum verdict judge(const struct overview *overview, const struct overview_device *device,
			  const struct overview_process *process, uint64_t charge_bytes,
			  struct procs *procs)
{
	const struct usage_gpu *gpu = device->gpu < 0 ? NULL : &overview->usage.gpu[device->gpu];

	if (!gpu || gpu->total_bytes == 0)
		return UNKNOWN;
	if (gpu->used_bytes < charge_bytes)
		return BACK;
	if (is_listed(gpu, process))
		return HELD;
	return gpu->process_count > 0 && would_be_listed(process, procs) ? BACK : UNKNOWN;
}

/* sum - part, but at least 0. */
static uint64_t less(uint64_t sum, uint64_t part)
{
	return sum > part ? sum - part : 0;
}

/* Subtracts the process's memory from the slice's figures. */
static void take_out(struct overview_device *device, struct sight_held *held)
{
	device->seen.used_bytes = less(device->seen.used_bytes, held->total);
	device->held.context = less(device->held.context, held->context);
	device->held.module = less(device->held.module, held->module);
	device->held.data = less(device->held.data, held->data);
	device->held.offset = less(device->held.offset, held->offset);
	device->held.total = less(device->held.total, held->total);
	memset(held, 0, sizeof(*held));
}

/* Settles the dead process on each GPU. Returns whether some GPU holds memory for it, or may. */
static bool settle_process(const struct overview *overview, struct overview_slice *slice,
			   struct overview_process *process, struct procs *procs)
{
	bool holds = false;

	for (unsigned d = 0; d < slice->device_count; d++) {
		struct sight_held *held = &process->seen.held[d];
		enum verdict verdict;

		if (!sight_holds(&process->seen, d))
			continue;
		verdict = judge(overview, &slice->device[d], process, held->total, procs);
		if (verdict == BACK)
			take_out(&slice->device[d], held);
		else
			holds = true;
		process->may_be_held = process->may_be_held || verdict == UNKNOWN;
	}
	return holds;
}

/* Settles the dead processes of the slice, and removes those for which no GPU holds memory. */
static void settle_slice(const struct overview *overview, struct overview_slice *slice,
			 struct procs *procs)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < slice->process_count; i++) {
		struct overview_process *process = &slice->process[i];

		if (strcmp(process->seen.state, "dead") == 0 &&
		    !settle_process(overview, slice, process, procs)) {
			slice->dead--;
			continue;
		}
		if (kept != i)
			slice->process[kept] = *process;
		kept++;
	}
	slice->process_count = kept;
}

void departed_settle(struct overview *overview, struct procs *procs)
{
	for (unsigned i = 0; i < overview->count; i++)
		if (overview->slice[i].dead > 0)
			settle_slice(overview, &overview->slice[i], procs);
}
