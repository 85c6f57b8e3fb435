/*
 * Labels are made when a slice is first seen, and again when other pods use it. Otherwise they
 * stay: a slice keeps its label when another slice of its name appears. No two slices have the
 * same labels, and no two GPUs of a slice. Prometheus refuses a whole answer that has one
 * series twice, and tenants choose the names.
 */
#include "track.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prom.h"

static void free_slice(struct track_slice *slice)
{
	for (unsigned i = 0; i < slice->device_count; i++) {
		free(slice->device[i].labels);
		free(slice->device[i].hami_labels);
	}
	free(slice->device);
	free(slice->labels);
}

void track_free(struct track *track)
{
	for (unsigned i = 0; i < track->count; i++)
		free_slice(&track->slice[i]);
	free(track->slice);
	track->slice = NULL;
	track->count = 0;
}

/* -- labels ------------------------------------------------------------------------------------ */

static bool has_namesake(const struct overview *overview, const struct slices_one *one)
{
	for (unsigned i = 0; i < overview->count; i++) {
		const struct slices_one *other = overview->slice[i].one;

		if (other != one && other->kind == one->kind && other->owner == one->owner &&
		    strcmp(other->name, one->name) == 0)
			return true;
	}
	return false;
}

/* Returns the bytes of text, which the caller frees, or NULL if memory ran out. */
static char *take_text(struct text *text)
{
	char *bytes = text->failed ? NULL : text->bytes;

	if (!bytes)
		text_free(text);
	return bytes;
}

/* Adds a label for each name that all containers of the slice have. */
static void add_pod_labels(struct text *labels, const struct pod_users *pods)
{
	struct pod_names names;

	pod_shared_names(pods, &names);
	if (*names.name_space)
		prom_label(labels, "namespace", names.name_space);
	if (*names.pod)
		prom_label(labels, "pod", names.pod);
	if (*names.container)
		prom_label(labels, "container", names.container);
}

static char *slice_labels(const struct overview *overview, const struct slices_one *one)
{
	struct text labels = {0};
	char user[64];

	prom_label(&labels, "slice", has_namesake(overview, one) ? one->region_path : one->name);
	prom_label(&labels, "kind", slices_kind_name(one->kind));
	prom_label(&labels, "user", slices_user(one, user, sizeof(user)));
	if (one->pods)
		add_pod_labels(&labels, one->pods);
	return take_text(&labels);
}

static char *device_labels(const char *slice, const char *uuid)
{
	struct text labels = {0};

	text_add(&labels, "%s", slice);
	prom_label(&labels, "device_uuid", uuid);
	return take_text(&labels);
}

static char *pod_labels(const struct pod_names *names, unsigned device, const char *uuid)
{
	struct text labels = {0};
	char index[16];

	snprintf(index, sizeof(index), "%u", device);
	prom_label(&labels, "namespace", names->name_space);
	prom_label(&labels, "pod", names->pod);
	prom_label(&labels, "container", names->container);
	prom_label(&labels, "vdevice_index", index);
	prom_label(&labels, "device_uuid", uuid);
	return take_text(&labels);
}

/* Whether another region of the same container has the metrics of the GPU at that index. */
static bool has_metrics_of(const struct overview_slice *other, const struct overview_slice *slice,
			   unsigned device)
{
	if (device >= other->device_count ||
	    strcmp(other->device[device].seen.uuid, slice->device[device].seen.uuid) != 0)
		return false;
	return other->state == slice->state ? other < slice : other->state == OVERVIEW_RUNNING;
}

/* Whether another region has the metrics of the container's GPU with HAMi's names. Several regions
 * may have the labels of one container. They are those of its directory, after the container was
 * started again with other GPUs, and that of an earlier pod of the same name. If a GPU is in
 * several, the first region in use has its metrics, or else the first. */
static bool is_in_other_region(const struct overview *overview, const struct overview_slice *slice,
			       unsigned device)
{
	for (unsigned i = 0; i < overview->count; i++) {
		const struct overview_slice *other = &overview->slice[i];

		if (other != slice && other->one->kind == SLICES_HAMI &&
		    pod_users_are_same(other->one->pods, slice->one->pods) &&
		    has_metrics_of(other, slice, device))
			return true;
	}
	return false;
}

/* Makes the labels with HAMi's names, where the container's pod is known. Returns false without
 * memory. */
static bool label_container(struct track_slice *track, const struct overview *overview,
			    const struct overview_slice *slice)
{
	if (slice->one->kind != SLICES_HAMI || !slice->one->pods)
		return true;
	for (unsigned d = 0; d < slice->device_count; d++) {
		struct track_device *device = &track->device[d];

		if (!device->labels || is_in_other_region(overview, slice, d))
			continue;
		device->hami_labels =
			pod_labels(&slice->one->pods->user[0], d, slice->device[d].seen.uuid);
		if (!device->hami_labels)
			return false;
	}
	return true;
}

/* -- devices ----------------------------------------------------------------------------------- */

static bool is_listed_before(const struct overview_slice *slice, unsigned device)
{
	return overview_find_device(slice, slice->device[device].seen.uuid) !=
	       &slice->device[device];
}

/* The GPU time that the slice used since the last look: 0 to wall_ns. */
static uint64_t took_ns(const struct overview_device *device, const struct overview_device *then,
			uint64_t wall_ns)
{
	int64_t took = (int64_t)(device->seen.done_ns - then->seen.done_ns);

	if (device->counter == OVERVIEW_NVML)
		return wall_ns / 100 * (uint64_t)device->cores_used_pct;
	if (took < 0)
		return 0;
	return (uint64_t)took < wall_ns ? (uint64_t)took : wall_ns;
}

static void count_time(struct track_device *track, const struct overview_device *device,
		       const struct overview_device *then, uint64_t wall_ns)
{
	uint64_t took;

	track->share = -1;
	if (device->counter == OVERVIEW_NOBODY || device->cores_used_pct < 0 || !then || !wall_ns)
		return;
	took = took_ns(device, then, wall_ns);
	track->share = (double)took / (double)wall_ns;
	track->compute_ns += took;
}

static bool follow_device(struct track_slice *track, unsigned index,
			  const struct overview_slice *slice, const struct overview_slice *before,
			  const struct track_slice *track_before)
{
	const struct overview_device *device = &slice->device[index];
	const struct overview_device *then = overview_find_device(before, device->seen.uuid);
	struct track_device *now = &track->device[index];

	if (is_listed_before(slice, index))
		return true;
	if (then) {
		*now = track_before->device[then - before->device];
	} else {
		now->refused_told = device->seen.refused;
		track->policy_inode = 0; /* so the audit reads the policy again */
	}
	now->hami_labels = NULL;
	now->labels = device_labels(track->labels, device->seen.uuid);
	if (!now->labels)
		return false;
	count_time(now, device, then, before ? slice->looked_ns - before->looked_ns : 0);
	return true;
}

/* -- slices ------------------------------------------------------------------------------------ */

static bool follow_slice(struct track_slice *track, const struct track *track_before,
			 const struct overview *overview, const struct overview *earlier,
			 const struct overview_slice *slice)
{
	const struct overview_slice *before = overview_find(earlier, slice->one);
	const struct track_slice *was =
		before ? &track_before->slice[before - earlier->slice] : NULL;

	if (was) {
		*track = *was;
		track->labels = NULL;
		track->device = NULL;
		track->device_count = 0;
	}
	track->labels = was && pod_users_are_same(before->one->pods, slice->one->pods)
				? strdup(was->labels)
				: slice_labels(overview, slice->one);
	track->device = calloc(slice->device_count + 1, sizeof(*track->device));
	if (!track->labels || !track->device)
		return false;
	track->device_count = slice->device_count;
	for (unsigned d = 0; d < slice->device_count; d++)
		if (!follow_device(track, d, slice, before, was))
			return false;
	return label_container(track, overview, slice);
}

int track_follow(struct track *track, const struct overview *earlier,
		 const struct overview *overview)
{
	struct track now = {0, calloc(overview->count + 1, sizeof(*now.slice))};
	bool going = now.slice != NULL;

	for (unsigned i = 0; going && i < overview->count; i++) {
		now.count++;
		going = follow_slice(&now.slice[i], track, overview, earlier, &overview->slice[i]);
	}
	if (!going) {
		track_free(&now);
		return -ENOMEM;
	}
	track_free(track);
	*track = now;
	return 0;
}
