/*
 * Compares two looks at the slices: how much GPU time each slice used between them, and for how
 * long its launches waited.
 *
 * A figure is the difference of a counter of the region at the two looks. Neither look counts
 * work that was submitted and cannot have finished yet (sight.h). The region of a slice without
 * a compute limit does not count GPU time; overview.c then takes NVML's figures for the slice's
 * processes.
 *
 * Tenants write regions, so a counter may have any value. Differences wrap around, as unsigned
 * numbers do, and each result is limited to 0 to 100 percent.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "overview_internal.h"

/* took_ns in percent of wall_ns, rounded, and limited to 0 to 100. */
static int share_pct(int64_t took_ns, uint64_t wall_ns)
{
	if (took_ns <= 0 || wall_ns == 0)
		return 0;
	if ((uint64_t)took_ns >= wall_ns)
		return 100;
	return (int)(((uint64_t)took_ns * 100 + wall_ns / 2) / wall_ns);
}

bool overview_is_counted(const struct overview_slice *slice, const struct overview_device *device)
{
	return device->seen.cores_pct > 0 && device->seen.cores_most_pct < 100 && !slice->lifted;
}

/* Whether launches of the slice to the device may wait, for its compute quota or for a turn. */
static bool may_wait(const struct overview_slice *slice, const struct overview_device *device)
{
	return slice->state == OVERVIEW_RUNNING &&
	       ((device->seen.cores_pct > 0 && !slice->lifted) || device->seen.turns.turns > 0);
}

/* Sets the device's figures for the time between the looks `then` and `now`, which are wall_ns
 * apart. waited_ns is the sum of the waits of all processes, so it is divided by their number.
 */
static void compare_device(const struct overview_slice *slice, struct overview_device *device,
			   const struct sight_device *now, const struct sight_device *then,
			   uint64_t wall_ns)
{
	uint64_t waited_ns = now->turns.waited_ns - then->turns.waited_ns;

	if (overview_is_counted(slice, device)) {
		device->cores_used_pct =
			share_pct((int64_t)(now->done_ns - then->done_ns), wall_ns);
		device->counter = OVERVIEW_REGION;
	}
	device->throttled_pct =
		share_pct((int64_t)(now->throttled_ns - then->throttled_ns), wall_ns);
	device->turn_waited_pct =
		share_pct((int64_t)waited_ns / (slice->running ? slice->running : 1), wall_ns);
}

/* Whether the look that found the slice knew its pods' names, and not only a UID. */
static bool has_pod_names(const struct slices_one *one)
{
	return one->pods && *one->pods->user[0].name_space;
}

/* Keeps the names of a HAMi container's pod if this look has not found them. The container is
 * searched for, not the slice, because the names of slices change with their number. */
static void keep_pod(const struct slices_one *one, const struct overview *earlier)
{
	if (one->kind != SLICES_HAMI || !one->pods || one->shares_pods || has_pod_names(one))
		return;
	for (unsigned i = 0; i < earlier->count; i++) {
		const struct slices_one *before = earlier->slice[i].one;

		if (has_pod_names(before) && slices_is_same_container(one, before)) {
			*one->pods = *before->pods;
			return;
		}
	}
}

/* Keeps pods that the earlier look has by control groups, if this look knows less. */
static void keep_pods_by_cgroup(struct slices_one *one, const struct slices_one *before)
{
	if (!before->pods_by_cgroup || (one->pods && !one->pods_by_cgroup) || has_pod_names(one) ||
	    (one->pods && !has_pod_names(before)))
		return;
	if (!one->pods)
		one->pods = malloc(sizeof(*one->pods));
	if (!one->pods)
		return;
	*one->pods = *before->pods;
	one->pods_by_cgroup = true;
}

void overview_compare(struct overview *overview, const struct overview *earlier)
{
	for (unsigned i = 0; i < overview->count; i++) {
		struct overview_slice *slice = &overview->slice[i];
		const struct overview_slice *before = overview_find(earlier, slice->one);

		keep_pod(slice->one, earlier);
		if (before)
			keep_pods_by_cgroup(slice->one, before->one);
		for (unsigned d = 0; before && d < slice->device_count; d++) {
			struct overview_device *device = &slice->device[d];
			const struct overview_device *then =
				overview_find_device(before, device->seen.uuid);

			if (then && may_wait(slice, device) && slice->looked_ns > before->looked_ns)
				compare_device(slice, device, &device->seen, &then->seen,
					       slice->looked_ns - before->looked_ns);
		}
	}
}

/* Whether launches of the slice to any device may wait. */
static bool any_may_wait(const struct overview_slice *slice)
{
	for (unsigned d = 0; d < slice->device_count; d++)
		if (may_wait(slice, &slice->device[d]))
			return true;
	return false;
}

bool overview_has_counts(const struct overview *overview)
{
	for (unsigned i = 0; i < overview->count; i++)
		if (any_may_wait(&overview->slice[i]))
			return true;
	return false;
}

/* Looks at the slice's region again, and compares this look with the one in `slice`. */
static void measure_slice(struct overview_slice *slice)
{
	static struct sight_process processes[VGPU_SLOTS_MAX];
	struct sight later = {.process = processes};

	if (overview_see(slice->one->region_path, &later, NULL) ||
	    later.looked_ns <= slice->looked_ns)
		return;
	for (unsigned d = 0; d < slice->device_count && d < later.device_count; d++) {
		struct overview_device *device = &slice->device[d];

		if (may_wait(slice, device) && strcmp(device->seen.uuid, later.device[d].uuid) == 0)
			compare_device(slice, device, &later.device[d], &device->seen,
				       later.looked_ns - slice->looked_ns);
	}
}

void overview_measure(struct overview *overview, uint64_t wait_ns)
{
	struct timespec pause = {(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)};

	nanosleep(&pause, NULL);
	for (unsigned i = 0; i < overview->count; i++)
		if (any_may_wait(&overview->slice[i]))
			measure_slice(&overview->slice[i]);
}

/* -- finding a slice in another look ----------------------------------------------------------- */

const struct overview_slice *overview_find(const struct overview *overview,
					   const struct slices_one *one)
{
	for (unsigned low = 0, high = overview->count; low < high;) {
		unsigned middle = low + (high - low) / 2;
		int order = slices_compare(one, overview->slice[middle].one);

		if (order == 0)
			return &overview->slice[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const struct overview_device *overview_find_device(const struct overview_slice *slice,
						   const char *uuid)
{
	for (unsigned i = 0; slice && i < slice->device_count; i++)
		if (strcmp(slice->device[i].seen.uuid, uuid) == 0)
			return &slice->device[i];
	return NULL;
}
