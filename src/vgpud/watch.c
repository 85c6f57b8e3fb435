/*
 * NVML stays open from one look to the next. Where it is missing, it is opened again every
 * NVML_AGAIN_NS. The same holds when NVML reports no GPU any more, as after the driver was
 * loaded again.
 */
#include "watch.h"

#include <string.h>

#include "changes.h"
#include "clock.h"
#include "metrics.h"
#include "say.h"

#define NVML_AGAIN_NS  (30 * NS_PER_S)
#define MOST_OF_TENANT 256 /* slices of a tenant that a look reads */

static char *all_slices[] = {NULL};

int watch_open(struct watch *watch, const struct config *config, struct fault *fault)
{
	memset(watch, 0, sizeof(*watch));
	if (watch_configure(watch, config, fault))
		return -1;
	watch->self.started_s = (double)clock_wall_ns() / (double)NS_PER_S;
	watch->nvml_next_ns = clock_now_ns() + NVML_AGAIN_NS;
	watch->looker.most_of_tenant = MOST_OF_TENANT;
	watch->looker.only_reads =
		true; /* takes no locks, so that nothing waits for a stopped vgpud */
	if (overview_open(&watch->looker, all_slices, fault))
		return -1;
	if (!watch->looker.usage)
		say(LOG_WARNING, "the GPUs are not looked at: %s", watch->looker.no_usage.text);
	return 0;
}

int watch_configure(struct watch *watch, const struct config *config, struct fault *fault)
{
	int error = events_configure(&watch->events, config, fault);

	if (error)
		return error;
	watch->config = config;
	watch->looker.pod_logs = config->pods;
	watch->looker.pod_links = config->containers;
	return 0;
}

void watch_close(struct watch *watch)
{
	audit_close(&watch->audit);
	events_close(&watch->events);
	track_free(&watch->track);
	overview_free(&watch->overview);
	overview_close(&watch->looker);
}

/* Opens NVML again if NVML_AGAIN_NS have passed. */
static void renew_nvml(struct watch *watch)
{
	uint64_t now_ns = clock_now_ns();

	if (watch->self.has_nvml || now_ns < watch->nvml_next_ns)
		return;
	watch->nvml_next_ns = now_ns + NVML_AGAIN_NS;
	usage_close(watch->looker.usage);
	watch->looker.usage = usage_open(&watch->looker.no_usage);
}

static void note_nvml(struct watch *watch)
{
	bool has_nvml = watch->overview.usage.gpu_count > 0;

	if (has_nvml != watch->self.has_nvml && watch->self.looks > 0)
		say(has_nvml ? LOG_NOTICE : LOG_WARNING,
		    has_nvml ? "NVML answers again"
			     : "NVML reports no GPU any more: see whether the driver works");
	watch->self.has_nvml = has_nvml;
}

static void note_left_out(const struct overview *before, const struct overview *now)
{
	if (now->left_out > 0 && before->left_out == 0)
		say(LOG_WARNING,
		    "%u slices are not looked at: a user or container has more than %u of them; "
		    "vgpu ps lists all",
		    now->left_out, MOST_OF_TENANT);
}

static void note_failure(struct watch *watch, const char *why)
{
	watch->self.failed_looks++;
	if (say_changed(&watch->failure, why))
		say(LOG_ERR, "a look at the machine failed, and older figures stay: %s", why);
}

static void note_success(struct watch *watch)
{
	watch->self.looks++;
	if (say_changed(&watch->failure, ""))
		say(LOG_NOTICE, "looks at the machine succeed again");
}

void watch_look(struct watch *watch)
{
	struct fault fault = {""};
	struct overview overview;
	uint64_t began_ns = clock_now_ns();

	renew_nvml(watch);
	events_begin(&watch->events);
	if (overview_take(&watch->looker, &overview, &fault)) {
		note_failure(watch, fault.text);
		return;
	}
	overview_compare(&overview, &watch->overview);
	if (track_follow(&watch->track, &watch->overview, &overview)) {
		overview_free(&overview);
		note_failure(watch, "there is no memory to follow the slices");
		return;
	}
	if (watch->self.looks > 0) /* the first look has nothing to compare with */
		changes_tell(&watch->events, &watch->overview, &overview, &watch->track);
	note_left_out(&watch->overview, &overview);
	audit_look(&watch->audit, watch->config, &overview, watch->looker.procs, &watch->track,
		   &watch->events);
	overview_free(&watch->overview);
	watch->overview = overview;
	note_nvml(watch);
	note_success(watch);
	watch->self.look_ns = clock_now_ns() - began_ns;
}

void watch_write(struct text *text, void *arg)
{
	const struct watch *watch = arg;
	struct metrics_source source = {
		.overview = &watch->overview,
		.track = &watch->track,
		.self = &watch->self,
		.with_hami = watch->config->hami,
	};

	metrics_write(text, &source);
	events_write(text, &watch->events);
}
