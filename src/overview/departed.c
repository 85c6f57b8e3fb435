/*
 * How it is decided, for each dead process and each GPU that its slot has a charge of:
 *
 *     NVML does not say how much of the GPU is in use          not known
 *     less of the GPU is in use than the charge                the GPU has it back
 *     NVML lists the process                                   the GPU holds it
 *     on the host, NVML lists others and not the process       the GPU has it back
 *     anything else                                            not known
 *
 * In a container NVML may list no process, or name it by another pid: there only the first three
 * count. Where it is not known, the charge counts, as it does for the slice itself.
 */
#include "departed.h"

#include <string.h>

#include "procs.h"

enum verdict { BACK, HELD, UNKNOWN };

static bool is_listed(const struct usage_gpu *gpu, const struct overview_process *process)
{
	for (unsigned i = 0; i < gpu->process_count; i++)
		if (gpu->process[i].pid == (unsigned)process->here ||
		    gpu->process[i].pid == (unsigned)process->seen.hostpid)
			return true;
	return false;
}

/* Whether a process without a pid here is in no list: all that there are were looked at. */
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

static uint64_t less(uint64_t sum, uint64_t part)
{
	return sum > part ? sum - part : 0;
}

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

/* Whether some GPU holds something for the dead process, or may. */
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
