/*
 * Each family is a row of a table: its name, its help, and a function that finds its value for
 * a GPU, a slice, or a GPU of a slice. A value of NAN means that there is none, and has no
 * line.
 */
#include "metrics.h"

#include <math.h>
#include <stdio.h>

#include "clock.h"
#include "prom.h"
#include "slice.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* -- GPUs -------------------------------------------------------------------------------------- */

/* Sums the processes on the GPU that are in no slice, and their memory in bytes. */
static void add_outside(const struct overview *overview, unsigned gpu, double *count, double *bytes)
{
	*count = *bytes = 0;
	for (unsigned i = 0; i < overview->stranger_count; i++) {
		const struct overview_stranger *stranger = &overview->stranger[i];

		if (stranger->gpu != gpu)
			continue;
		++*count;
		if (stranger->seen.bytes != USAGE_UNKNOWN_BYTES)
			*bytes += (double)stranger->seen.bytes;
	}
}

static double gpu_total(const struct overview *overview, unsigned gpu)
{
	uint64_t bytes = overview->usage.gpu[gpu].total_bytes;

	return bytes ? (double)bytes : NAN;
}

static double gpu_used(const struct overview *overview, unsigned gpu)
{
	const struct usage_gpu *usage = &overview->usage.gpu[gpu];

	return usage->total_bytes ? (double)usage->used_bytes : NAN;
}

static double gpu_busy(const struct overview *overview, unsigned gpu)
{
	int busy_pct = overview->usage.gpu[gpu].busy_pct;

	return busy_pct < 0 ? NAN : busy_pct / 100.0;
}

static double gpu_outside(const struct overview *overview, unsigned gpu)
{
	double count, bytes;

	add_outside(overview, gpu, &count, &bytes);
	return count;
}

static double gpu_outside_bytes(const struct overview *overview, unsigned gpu)
{
	double count, bytes;

	add_outside(overview, gpu, &count, &bytes);
	return bytes;
}

static double gpu_assured(const struct overview *overview, unsigned gpu)
{
	return overview_assured(overview, overview->usage.gpu[gpu].uuid).sum_pct / 100.0;
}

static const struct {
	struct prom_family family;
	double (*value)(const struct overview *overview, unsigned gpu);
} gpu_families[] = {
	{{"vgpu_gpu_memory_size_bytes", PROM_GAUGE, "Memory that the GPU has."}, gpu_total},
	{{"vgpu_gpu_memory_used_bytes", PROM_GAUGE, "Memory in use on the GPU, by whomever."},
	 gpu_used},
	{{"vgpu_gpu_utilization_ratio", PROM_GAUGE,
	  "Part of the time in which the GPU was at work, 0 to 1, as NVML has it."},
	 gpu_busy},
	{{"vgpu_gpu_outside_processes", PROM_GAUGE, "Processes on the GPU that are in no slice."},
	 gpu_outside},
	{{"vgpu_gpu_outside_memory_bytes", PROM_GAUGE,
	  "Memory of the GPU that processes outside of slices hold."},
	 gpu_outside_bytes},
	{{"vgpu_gpu_compute_assured_ratio", PROM_GAUGE,
	  "Part of the GPU's time that its slices are assured in all; above 1, each gets "
	  "proportionally less while all want the GPU."},
	 gpu_assured},
};

static void write_gpu(struct text *text, const struct usage_gpu *gpu,
		      const struct prom_family *family, double value, bool with_name)
{
	struct text labels = {0};
	char index[16];

	snprintf(index, sizeof(index), "%u", gpu->index);
	prom_label(&labels, "device_uuid", gpu->uuid);
	prom_label(&labels, "index", index);
	if (with_name)
		prom_label(&labels, "name", gpu->name);
	if (labels.failed)
		text->failed = true;
	else
		prom_sample(text, family, labels.bytes, "", value);
	text_free(&labels);
}

static void write_gpus(struct text *text, const struct overview *overview)
{
	static const struct prom_family info = {"vgpu_gpu_info", PROM_GAUGE,
						"1 for each GPU that there is."};
	const struct usage *usage = &overview->usage;

	prom_begin(text, &info);
	for (unsigned g = 0; g < usage->gpu_count; g++)
		write_gpu(text, &usage->gpu[g], &info, 1, true);
	for (size_t f = 0; f < COUNT(gpu_families); f++) {
		prom_begin(text, &gpu_families[f].family);
		for (unsigned g = 0; g < usage->gpu_count; g++)
			write_gpu(text, &usage->gpu[g], &gpu_families[f].family,
				  gpu_families[f].value(overview, g), false);
	}
}

/* -- GPUs of slices ---------------------------------------------------------------------------- */

typedef double device_value(const struct overview_device *device, const struct track_device *track);

static double memory_used(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return (double)device->seen.used_bytes;
}

static double memory_limit(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return device->seen.limit_bytes ? (double)device->seen.limit_bytes : NAN;
}

static double compute_share(const struct overview_device *device, const struct track_device *track)
{
	(void)device;
	return track->share < 0 ? NAN : track->share;
}

static double compute_seconds(const struct overview_device *device,
			      const struct track_device *track)
{
	(void)device;
	return seconds(track->compute_ns);
}

static double compute_limit(const struct overview_device *device, const struct track_device *track)
{
	unsigned pct = slice_cores_most(device->seen.cores_pct, device->seen.cores_most_pct);

	(void)track;
	return pct ? pct / 100.0 : NAN;
}

static double compute_assured(const struct overview_device *device,
			      const struct track_device *track)
{
	(void)track;
	return device->seen.cores_pct ? device->seen.cores_pct / 100.0 : NAN;
}

static double turns(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return (double)device->seen.turns.turns;
}

static double turn_seconds(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return seconds(device->seen.turn_ns);
}

static double throttled(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return (double)device->seen.throttled;
}

static double throttled_seconds(const struct overview_device *device,
				const struct track_device *track)
{
	(void)track;
	return seconds(device->seen.throttled_ns);
}

static double launches_held(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return (double)device->seen.held;
}

static double refused(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return device->seen.refused;
}

static double excess(const struct overview_device *device, const struct track_device *track)
{
	return device->gpu >= 0 ? (double)track->excess_bytes : NAN;
}

static double gang_members(const struct overview_device *device, const struct track_device *track)
{
	(void)track;
	return device->seen.gang_members;
}

static const struct {
	struct prom_family family;
	device_value *value;
} device_families[] = {
	{{"vgpu_slice_memory_used_bytes", PROM_GAUGE,
	  "Memory of the GPU that the slice holds, as its limit counts it."},
	 memory_used},
	{{"vgpu_slice_memory_limit_bytes", PROM_GAUGE,
	  "Memory of the GPU that the slice may hold; absent without a limit."},
	 memory_limit},
	{{"vgpu_slice_compute_used_ratio", PROM_GAUGE,
	  "Part of the GPU's time that the slice took between the last two looks, 0 to 1."},
	 compute_share},
	{{"vgpu_slice_compute_limit_ratio", PROM_GAUGE,
	  "Part of the GPU's time that the slice may take, 0 to 1; absent without a limit."},
	 compute_limit},
	{{"vgpu_slice_compute_assured_ratio", PROM_GAUGE,
	  "Part of the GPU's time that the slice gets where all slices want it, 0 to 1; absent "
	  "without a limit."},
	 compute_assured},
	{{"vgpu_slice_compute_seconds_total", PROM_COUNTER,
	  "GPU time that the slice took since vgpud first saw it."},
	 compute_seconds},
	{{"vgpu_slice_throttles_total", PROM_COUNTER,
	  "How often the slice was throttled because it had used its share."},
	 throttled},
	{{"vgpu_slice_throttled_seconds_total", PROM_COUNTER,
	  "How long the slice was throttled, in all."},
	 throttled_seconds},
	{{"vgpu_slice_launches_held_total", PROM_COUNTER,
	  "Launches of the slice that had to wait."},
	 launches_held},
	{{"vgpu_slice_allocations_refused_total", PROM_COUNTER,
	  "Allocations of the slice that its limit refused."},
	 refused},
	{{"vgpu_slice_excess_bytes", PROM_GAUGE,
	  "Memory of the GPU that NVML counts for the slice's processes above their ledger."},
	 excess},
	{{"vgpu_slice_turns_total", PROM_COUNTER,
	  "Turns that the slice had on the GPU while other slices used it."},
	 turns},
	{{"vgpu_slice_turn_seconds_total", PROM_COUNTER, "How long these turns were, in all."},
	 turn_seconds},
	{{"vgpu_slice_gang_members", PROM_GAUGE,
	  "Processes of the slice whose work on the GPU is in its gang."},
	 gang_members},
};

static void add_waits(struct text *text, const struct prom_family *family, const char *labels,
		      const struct vgpu_region_waits *waits)
{
	static const uint32_t bounds_us[] = {VGPU_WAITS_BOUNDS_US};
	double bounds[VGPU_WAITS - 1], counts[VGPU_WAITS];

	for (unsigned i = 0; i < VGPU_WAITS; i++)
		counts[i] = waits->count[i];
	for (unsigned i = 0; i < VGPU_WAITS - 1; i++)
		bounds[i] = bounds_us[i] / 1e6;
	prom_histogram(text, family, labels, bounds, counts, VGPU_WAITS - 1,
		       seconds(waits->waited_ns));
}

static void write_waits(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family family = {
		"vgpu_slice_turn_wait_seconds", PROM_HISTOGRAM,
		"How long the slice's processes waited for a turn on the GPU."};

	prom_begin(text, &family);
	for (unsigned i = 0; i < source->overview->count; i++)
		for (unsigned d = 0; d < source->overview->slice[i].device_count; d++)
			if (source->track->slice[i].device[d].labels)
				add_waits(text, &family, source->track->slice[i].device[d].labels,
					  &source->overview->slice[i].device[d].seen.turns);
}

static void write_device_family(struct text *text, const struct metrics_source *source,
				const struct prom_family *family, device_value *value)
{
	prom_begin(text, family);
	for (unsigned i = 0; i < source->overview->count; i++) {
		const struct overview_slice *slice = &source->overview->slice[i];

		for (unsigned d = 0; d < slice->device_count; d++) {
			const struct track_device *track = &source->track->slice[i].device[d];

			if (track->labels)
				prom_sample(text, family, track->labels, "",
					    value(&slice->device[d], track));
		}
	}
}

static void write_held(struct text *text, const struct prom_family *family,
		       const struct overview_device *device, const char *labels)
{
	const struct sight_held *held = &device->held;

	prom_sample(text, family, labels, "class=\"context\"", (double)held->context);
	prom_sample(text, family, labels, "class=\"module\"", (double)held->module);
	prom_sample(text, family, labels, "class=\"data\"", (double)held->data);
	prom_sample(text, family, labels, "class=\"offset\"", (double)held->offset);
}

static void write_devices(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family held = {
		"vgpu_slice_memory_held_bytes", PROM_GAUGE,
		"Memory of the GPU that the slice's processes hold, by its purpose."};

	prom_begin(text, &held);
	for (unsigned i = 0; i < source->overview->count; i++)
		for (unsigned d = 0; d < source->overview->slice[i].device_count; d++)
			if (source->track->slice[i].device[d].labels)
				write_held(text, &held, &source->overview->slice[i].device[d],
					   source->track->slice[i].device[d].labels);
	for (size_t f = 0; f < COUNT(device_families); f++)
		write_device_family(text, source, &device_families[f].family,
				    device_families[f].value);
	write_waits(text, source);
}

/* -- slices ------------------------------------------------------------------------------------ */

static double is_paused(const struct overview_slice *slice)
{
	return slice->paused;
}

static double is_blocked(const struct overview_slice *slice)
{
	return slice->blocked;
}

static double is_lifted(const struct overview_slice *slice)
{
	return slice->lifted;
}

static double launched(const struct overview_slice *slice)
{
	return slice->launched_s ? (double)slice->launched_s : NAN;
}

static double gang_seconds(const struct overview_slice *slice)
{
	return seconds(slice->gang.used_ns);
}

static double gang_shut(const struct overview_slice *slice)
{
	return slice->gang.shut;
}

static double joint_processes(const struct overview_slice *slice)
{
	return slice->gang.joint_processes;
}

static double joint_seconds(const struct overview_slice *slice)
{
	return seconds(slice->gang.joint_used_ns);
}

static const struct {
	struct prom_family family;
	double (*value)(const struct overview_slice *slice);
} slice_families[] = {
	{{"vgpu_slice_paused", PROM_GAUGE, "1 while vgpu pause has paused the slice."}, is_paused},
	{{"vgpu_slice_blocked", PROM_GAUGE, "1 while HAMi's monitor blocks the slice's launches."},
	 is_blocked},
	{{"vgpu_slice_compute_limit_lifted", PROM_GAUGE,
	  "1 while HAMi's monitor has lifted the slice's compute limit."},
	 is_lifted},
	{{"vgpu_slice_last_launch_timestamp_seconds", PROM_GAUGE,
	  "When the slice last launched work, in unix time; absent if it never did."},
	 launched},
	{{"vgpu_slice_gang_used_seconds_total", PROM_COUNTER,
	  "For how long a member of the slice's gang had work in flight."},
	 gang_seconds},
	{{"vgpu_slice_gang_shut", PROM_GAUGE, "1 while the slice's gang is throttled."}, gang_shut},
	{{"vgpu_slice_joint_gang_processes", PROM_GAUGE,
	  "Processes of the slice that are in a gang of several slices."},
	 joint_processes},
	{{"vgpu_slice_joint_gang_used_seconds_total", PROM_COUNTER,
	  "GPU time that one of the slice's GPUs was charged for a gang of several slices, the "
	  "most."},
	 joint_seconds},
};

static const char *enforcement_of(const struct overview_slice *slice)
{
	if (slice->one->policy_path)
		return "level=\"policy\"";
	for (unsigned d = 0; d < slice->device_count; d++)
		if (slice->device[d].seen.limit_bytes || slice->device[d].seen.cores_pct)
			return "level=\"region\"";
	return "level=\"none\"";
}

static void write_enforcement(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family family = {
		"vgpu_slice_enforcement_info", PROM_GAUGE,
		"The source of the slice's limits: a policy that its "
		"processes cannot lift, its region, which they "
		"can write, or none."};

	prom_begin(text, &family);
	for (unsigned i = 0; i < source->overview->count; i++)
		if (source->overview->slice[i].state != OVERVIEW_UNREADABLE)
			prom_sample(text, &family, source->track->slice[i].labels,
				    enforcement_of(&source->overview->slice[i]), 1);
}

static void write_lifted(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family family = {
		"vgpu_slice_policy_lifted", PROM_GAUGE,
		"1 while the slice's region has limits above those of its policy."};

	prom_begin(text, &family);
	for (unsigned i = 0; i < source->overview->count; i++)
		if (source->overview->slice[i].one->policy_path)
			prom_sample(text, &family, source->track->slice[i].labels, "",
				    source->track->slice[i].policy_lifted);
}

static void write_processes(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family family = {"vgpu_slice_processes", PROM_GAUGE,
						  "Processes of the slice, by their state."};

	prom_begin(text, &family);
	for (unsigned i = 0; i < source->overview->count; i++) {
		const struct overview_slice *slice = &source->overview->slice[i];
		const char *labels = source->track->slice[i].labels;

		prom_sample(text, &family, labels, "state=\"running\"", slice->running);
		prom_sample(text, &family, labels, "state=\"paused\"", slice->paused_count);
		prom_sample(text, &family, labels, "state=\"dying\"", slice->dying);
		prom_sample(text, &family, labels, "state=\"dead\"", slice->dead);
	}
}

/* Writes the number of slices in each state. */
static void write_states(struct text *text, const struct overview *overview)
{
	static const struct prom_family family = {"vgpu_slices", PROM_GAUGE,
						  "Slices on the machine, by their state."};
	static const enum overview_state states[] = {OVERVIEW_RUNNING, OVERVIEW_IDLE,
						     OVERVIEW_EMPTY, OVERVIEW_LEFTOVER,
						     OVERVIEW_UNREADABLE};

	prom_begin(text, &family);
	for (size_t s = 0; s < COUNT(states); s++) {
		char label[32];
		unsigned count = 0;

		for (unsigned i = 0; i < overview->count; i++)
			count += overview->slice[i].state == states[s];
		snprintf(label, sizeof(label), "state=\"%s\"", overview_state_name(states[s]));
		prom_sample(text, &family, "", label, count);
	}
}

static void write_left_out(struct text *text, const struct overview *overview)
{
	static const struct prom_family family = {
		"vgpu_slices_left_out", PROM_GAUGE,
		"Slices that are not looked at, as a user or container has too many."};

	prom_begin(text, &family);
	prom_sample(text, &family, "", "", overview->left_out);
}

static void write_slices(struct text *text, const struct metrics_source *source)
{
	write_states(text, source->overview);
	write_left_out(text, source->overview);
	for (size_t f = 0; f < COUNT(slice_families); f++) {
		prom_begin(text, &slice_families[f].family);
		for (unsigned i = 0; i < source->overview->count; i++)
			if (source->overview->slice[i].state != OVERVIEW_UNREADABLE)
				prom_sample(text, &slice_families[f].family,
					    source->track->slice[i].labels, "",
					    slice_families[f].value(&source->overview->slice[i]));
	}
	write_processes(text, source);
	write_enforcement(text, source);
	write_lifted(text, source);
}

/* -- all --------------------------------------------------------------------------------------- */

void metrics_write(struct text *text, const struct metrics_source *source)
{
	write_gpus(text, source->overview);
	write_slices(text, source);
	write_devices(text, source);
	if (source->with_hami)
		metrics_write_hami(text, source);
	self_write(text, source->self);
}
