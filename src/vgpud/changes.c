/*
 * A slice is the same in two looks if its kind, name and region's path are. A slice that was
 * made and removed between two looks is not seen. The first refusal of a slice on a GPU is
 * reported at once. Later ones are reported together, with their number, once in
 * REFUSALS_AGAIN_NS.
 */
#include "changes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "size.h"
#include "slice.h"

#define REFUSALS_AGAIN_NS (60 * NS_PER_S)

/* -- slices ------------------------------------------------------------------------------------ */

static void tell_made(struct events *events, const struct overview_slice *slice)
{
	events_tell(events, EVENT_SLICE_MADE, event_of(slice->one, NULL), "slice %s was made",
		    slice->one->name);
}

static void tell_removed(struct events *events, const struct overview_slice *slice)
{
	events_tell(events, EVENT_SLICE_REMOVED, event_of(slice->one, NULL), "slice %s was removed",
		    slice->one->name);
}

/* Reports the pods that use the slice, if they are known and have changed. */
static void tell_pods(struct events *events, const struct slices_one *before,
		      const struct slices_one *one)
{
	char line[POD_LINE_LEN], more[48] = "";
	bool has_name;

	if (!one->pods || pod_users_are_same(before->pods, one->pods))
		return;
	if (one->pods->count > 1)
		snprintf(more, sizeof(more), " and %u more", one->pods->count - 1);
	has_name = *one->pods->user[0].container != '\0';
	events_tell(events, EVENT_SLICE_PODS, event_of(one, NULL), "slice %s is used by %s %s%s",
		    one->name, has_name ? "the container" : "a container of the pod",
		    pod_line(&one->pods->user[0], line), more);
}

static void tell_paused(struct events *events, const struct overview_slice *slice)
{
	events_tell(events, slice->paused ? EVENT_SLICE_PAUSED : EVENT_SLICE_RESUMED,
		    event_of(slice->one, NULL), "slice %s was %s", slice->one->name,
		    slice->paused ? "paused" : "resumed");
}

static void tell_unreadable(struct events *events, const struct overview_slice *slice)
{
	struct json_object *event = event_of(slice->one, NULL);

	event_add_text(event, "error", slice->why);
	events_tell(events, EVENT_SLICE_UNREADABLE, event, "slice %s cannot be looked at: %s",
		    slice->one->name, slice->why);
}

/* -- limits ------------------------------------------------------------------------------------ */

static const char *size_word(uint64_t bytes, char *buf, size_t len)
{
	return bytes ? size_format(bytes, buf, len) : "no limit";
}

/* The upper bound of the compute limit in percent; 0: no limit. */
static unsigned cores_most(const struct sight_device *device)
{
	return slice_cores_most(device->cores_pct, device->cores_most_pct);
}

static void tell_changed(struct events *events, const struct overview_slice *slice,
			 const struct sight_device *then, const struct sight_device *now)
{
	struct json_object *event = event_of(slice->one, now->uuid);
	char before[32], after[32], cores[32], cores_before[32], burst[32], burst_before[32];

	event_add_number(event, "memory_limit_bytes_before", then->limit_bytes);
	event_add_number(event, "memory_limit_bytes", now->limit_bytes);
	event_add_number(event, "cores_limit_pct_before", cores_most(then));
	event_add_number(event, "cores_limit_pct", cores_most(now));
	event_add_number(event, "cores_assured_pct_before", then->cores_pct);
	event_add_number(event, "cores_assured_pct", now->cores_pct);
	event_add_number(event, "burst_ns_before", then->burst_ns);
	event_add_number(event, "burst_ns", now->burst_ns);
	events_tell(events, EVENT_SLICE_CHANGED, event,
		    "slice %s has other limits on %s: memory %s, was %s; cores %s %%, were %s %% "
		    "(0: no limit); burst %s, was %s",
		    slice->one->name, now->uuid, size_word(now->limit_bytes, after, sizeof(after)),
		    size_word(then->limit_bytes, before, sizeof(before)),
		    policy_cores_name(now->cores_pct, now->cores_most_pct, cores, sizeof(cores)),
		    policy_cores_name(then->cores_pct, then->cores_most_pct, cores_before,
				      sizeof(cores_before)),
		    policy_burst_name(now->burst_ns, burst, sizeof(burst)),
		    policy_burst_name(then->burst_ns, burst_before, sizeof(burst_before)));
}

static bool has_changed(const struct sight_device *then, const struct sight_device *now)
{
	return then->limit_bytes != now->limit_bytes || then->cores_pct != now->cores_pct ||
	       then->cores_most_pct != now->cores_most_pct || then->burst_ns != now->burst_ns;
}

/* -- refusals ---------------------------------------------------------------------------------- */

/* The number of refusals after the first `told`, which were reported. The region counts modulo
 * 2^32, and restarts at 0 when it is reset. */
static uint32_t refused_since(const struct sight_device *now, uint32_t told)
{
	return now->refused >= told ? now->refused - told : now->refused;
}

static void tell_refused(struct events *events, const struct overview_slice *slice,
			 const struct sight_device *now, struct track_device *track)
{
	uint64_t now_ns = clock_now_ns();
	uint32_t count = refused_since(now, track->refused_told);
	struct json_object *event;
	char used[32], limit[32];

	if (count == 0 || (track->refused_ns && now_ns - track->refused_ns < REFUSALS_AGAIN_NS))
		return;
	track->refused_told = now->refused;
	track->refused_ns = now_ns;
	event = event_of(slice->one, now->uuid);
	event_add_number(event, "count", count);
	event_add_number(event, "memory_used_bytes", now->used_bytes);
	event_add_number(event, "memory_limit_bytes", now->limit_bytes);
	events_tell(events, EVENT_REFUSED, event,
		    "slice %s was refused %" PRIu32 " allocation%s on %s: it holds %s of %s",
		    slice->one->name, count, count == 1 ? "" : "s", now->uuid,
		    size_format(now->used_bytes, used, sizeof(used)),
		    size_word(now->limit_bytes, limit, sizeof(limit)));
}

/* -- processes --------------------------------------------------------------------------------- */

static bool has_ended(const struct overview_process *process)
{
	return strcmp(process->seen.state, "dying") == 0 ||
	       strcmp(process->seen.state, "dead") == 0;
}

static uint64_t held_bytes(const struct overview_slice *slice,
			   const struct overview_process *process)
{
	uint64_t sum = 0;

	for (unsigned d = 0; d < slice->device_count; d++)
		sum += process->seen.held[d].total;
	return sum;
}

static const struct overview_process *find_process(const struct overview_slice *slice,
						   const struct overview_process *process)
{
	for (unsigned i = 0; i < slice->process_count; i++)
		if (slice->process[i].seen.slot == process->seen.slot &&
		    slice->process[i].seen.pid == process->seen.pid)
			return &slice->process[i];
	return NULL;
}

static void tell_died(struct events *events, const struct overview_slice *slice,
		      const struct overview_process *process, const struct overview_process *then)
{
	struct json_object *event = event_of(slice->one, NULL);
	const char *command = then ? then->command : "";
	uint64_t bytes = held_bytes(slice, process);
	char size[32];

	event_add_number(event, "pid", (uint64_t)process->seen.pid);
	if (then && then->here > 0)
		event_add_number(event, "host_pid", (uint64_t)then->here);
	if (*command)
		event_add_text(event, "command", command);
	event_add_number(event, "memory_held_bytes", bytes);
	events_tell(events, EVENT_PROCESS_DIED, event,
		    "process %d of slice %s ended and held %s, which count until the GPU has freed "
		    "them",
		    process->seen.pid, slice->one->name, size_format(bytes, size, sizeof(size)));
}

static void compare_processes(struct events *events, const struct overview_slice *before,
			      const struct overview_slice *slice)
{
	for (unsigned i = 0; i < slice->process_count; i++) {
		const struct overview_process *process = &slice->process[i], *then;

		if (!has_ended(process) || held_bytes(slice, process) == 0)
			continue;
		then = find_process(before, process);
		if (!then || !has_ended(then))
			tell_died(events, slice, process, then);
	}
}

/* -- GPUs -------------------------------------------------------------------------------------- */

static void tell_assured(struct events *events, const struct usage_gpu *gpu,
			 const struct overview_assured *assured)
{
	bool exceed = assured->sum_pct > 100;
	struct json_object *event = event_of(NULL, gpu->uuid);

	event_add_number(event, "slices", assured->count);
	event_add_number(event, "cores_assured_pct", assured->sum_pct);
	events_tell(events, exceed ? EVENT_ASSURED : EVENT_ASSURED_FITS, event,
		    exceed ? "slices of GPU %u are assured %u %% in all: while all of them want "
			     "the GPU, each gets proportionally less"
			   : "slices of GPU %u are assured %u %% in all again",
		    gpu->index, assured->sum_pct);
}

static void compare_assured(struct events *events, const struct overview *earlier,
			    const struct overview *overview)
{
	for (unsigned g = 0; g < overview->usage.gpu_count; g++) {
		const struct usage_gpu *gpu = &overview->usage.gpu[g];
		struct overview_assured then = overview_assured(earlier, gpu->uuid);
		struct overview_assured now = overview_assured(overview, gpu->uuid);

		if ((then.sum_pct > 100) != (now.sum_pct > 100))
			tell_assured(events, gpu, &now);
	}
}

/* -- all --------------------------------------------------------------------------------------- */

static void compare_slice(struct events *events, const struct overview_slice *before,
			  const struct overview_slice *slice, struct track_slice *track)
{
	tell_pods(events, before->one, slice->one);
	if (slice->state == OVERVIEW_UNREADABLE && before->state != OVERVIEW_UNREADABLE)
		tell_unreadable(events, slice);
	if (slice->state == OVERVIEW_UNREADABLE || before->state == OVERVIEW_UNREADABLE)
		return;
	if (slice->paused != before->paused)
		tell_paused(events, slice);
	compare_processes(events, before, slice);
	for (unsigned d = 0; d < slice->device_count; d++) {
		const struct sight_device *now = &slice->device[d].seen;
		const struct overview_device *then = overview_find_device(before, now->uuid);

		if (then && has_changed(&then->seen, now))
			tell_changed(events, slice, &then->seen, now);
		tell_refused(events, slice, now, &track->device[d]);
	}
}

void changes_tell(struct events *events, const struct overview *earlier,
		  const struct overview *overview, struct track *track)
{
	for (unsigned i = 0; i < overview->count; i++) {
		const struct overview_slice *slice = &overview->slice[i];
		const struct overview_slice *before = overview_find(earlier, slice->one);

		if (before)
			compare_slice(events, before, slice, &track->slice[i]);
		else
			tell_made(events, slice);
	}
	for (unsigned i = 0; i < earlier->count; i++)
		if (!overview_find(overview, earlier->slice[i].one))
			tell_removed(events, &earlier->slice[i]);
	compare_assured(events, earlier, overview);
}
