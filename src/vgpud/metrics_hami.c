/*
 * The metrics that HAMi's monitor exports, by its names, with labels for the pod, the container
 * and the GPU. So HAMi's dashboards and alerts work with vgpud in the monitor's place. Only
 * containers of HAMi's are in these metrics.
 */
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "env.h"
#include "metrics.h"
#include "prom.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* -- the host's GPUs --------------------------------------------------------------------------- */

static double host_memory(const struct usage_gpu *gpu)
{
	return gpu->total_bytes ? (double)gpu->used_bytes : NAN;
}

static double host_busy(const struct usage_gpu *gpu)
{
	return gpu->busy_pct < 0 ? NAN : (double)gpu->busy_pct;
}

static void write_host(struct text *text, const struct usage *usage,
		       const struct prom_family *family,
		       double (*value)(const struct usage_gpu *gpu))
{
	const char *named = env_get("NODE_NAME");
	char node[256] = "";

	if (named)
		snprintf(node, sizeof(node), "%s", named);
	else
		gethostname(node, sizeof(node) - 1);
	prom_begin(text, family);
	for (unsigned g = 0; g < usage->gpu_count; g++) {
		struct text labels = {0};

		prom_label(&labels, "node", node);
		prom_label(&labels, "device_uuid", usage->gpu[g].uuid);
		if (labels.failed)
			text->failed = true;
		else
			prom_sample(text, family, labels.bytes, "", value(&usage->gpu[g]));
		text_free(&labels);
	}
}

/* -- containers -------------------------------------------------------------------------------- */

typedef double container_value(const struct overview_slice *slice,
			       const struct overview_device *device,
			       const struct track_device *track);

static double used(const struct overview_slice *slice, const struct overview_device *device,
		   const struct track_device *track)
{
	(void)slice, (void)track;
	return (double)device->seen.used_bytes;
}

static double limit(const struct overview_slice *slice, const struct overview_device *device,
		    const struct track_device *track)
{
	(void)slice, (void)track;
	return (double)device->seen.limit_bytes;
}

static double busy(const struct overview_slice *slice, const struct overview_device *device,
		   const struct track_device *track)
{
	(void)slice, (void)device;
	return track->share < 0 ? NAN : track->share * 100;
}

static double since_launch(const struct overview_slice *slice, const struct overview_device *device,
			   const struct track_device *track)
{
	double elapsed_s = difftime(time(NULL), (time_t)slice->launched_s);

	(void)device, (void)track;
	if (!slice->launched_s)
		return NAN;
	return elapsed_s > 0 ? elapsed_s : 0;
}

static double context(const struct overview_slice *slice, const struct overview_device *device,
		      const struct track_device *track)
{
	(void)slice, (void)track;
	return (double)device->held.context;
}

static double module(const struct overview_slice *slice, const struct overview_device *device,
		     const struct track_device *track)
{
	(void)slice, (void)track;
	return (double)device->held.module;
}

static double buffer(const struct overview_slice *slice, const struct overview_device *device,
		     const struct track_device *track)
{
	(void)slice, (void)track;
	return (double)device->held.data;
}

static const struct {
	struct prom_family family;
	container_value *value;
} families[] = {
	{{"hami_vgpu_memory_used_bytes", PROM_GAUGE, "Memory of the GPU that the container holds."},
	 used},
	{{"hami_vgpu_memory_limit_bytes", PROM_GAUGE,
	  "Memory of the GPU that the container may hold; 0 without a limit."},
	 limit},
	{{"hami_container_device_memory_bytes", PROM_GAUGE,
	  "Memory of the GPU that the container holds."},
	 used},
	{{"hami_container_device_utilization_ratio", PROM_GAUGE,
	  "Percent of the GPU's time that the container took, 0 to 100."},
	 busy},
	{{"hami_container_last_kernel_elapsed_seconds", PROM_GAUGE,
	  "How long ago the container last launched work."},
	 since_launch},
	{{"hami_vgpu_memory_context_bytes", PROM_GAUGE,
	  "Memory of the GPU that the container's contexts take."},
	 context},
	{{"hami_vgpu_memory_module_bytes", PROM_GAUGE,
	  "Memory of the GPU that the container's code takes."},
	 module},
	{{"hami_vgpu_memory_buffer_bytes", PROM_GAUGE,
	  "Memory of the GPU that the container allocated."},
	 buffer},
};

static void write_family(struct text *text, const struct metrics_source *source,
			 const struct prom_family *family, container_value *value)
{
	prom_begin(text, family);
	for (unsigned i = 0; i < source->overview->count; i++) {
		const struct overview_slice *slice = &source->overview->slice[i];

		for (unsigned d = 0; d < slice->device_count; d++) {
			const struct track_device *track = &source->track->slice[i].device[d];

			if (track->hami_labels)
				prom_sample(text, family, track->hami_labels, "",
					    value(slice, &slice->device[d], track));
		}
	}
}

void metrics_write_hami(struct text *text, const struct metrics_source *source)
{
	static const struct prom_family memory = {"hami_host_gpu_memory_used_bytes", PROM_GAUGE,
						  "Memory in use on the host's GPU."};
	static const struct prom_family utilization = {
		"hami_host_gpu_utilization_ratio", PROM_GAUGE,
		"Percent of the time in which the host's GPU was at work, 0 to 100."};

	write_host(text, &source->overview->usage, &memory, host_memory);
	write_host(text, &source->overview->usage, &utilization, host_busy);
	for (size_t f = 0; f < COUNT(families); f++)
		write_family(text, source, &families[f].family, families[f].value);
}
