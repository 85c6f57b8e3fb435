/* How vgpu ps and vgpu top put things. */
#include "ps.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "policy.h"
#include "size.h"

char *ps_gpu_word(const struct overview *overview, const struct overview_device *device, char *buf,
		  size_t len)
{
	if (device->gpu >= 0)
		snprintf(buf, len, "%u", overview->usage.gpu[device->gpu].index);
	else
		snprintf(buf, len, "%.12s", *device->seen.uuid ? device->seen.uuid : "?");
	return buf;
}

char *ps_cores_word(const struct overview_slice *slice, const struct overview_device *device,
		    char *buf, size_t len)
{
	char used[16] = "-", limit[32];

	if (device->counter != OVERVIEW_NOBODY)
		snprintf(used, sizeof(used), "%s%d", device->counter == OVERVIEW_NVML ? "~" : "",
			 device->cores_used_pct);
	if (device->seen.cores_pct && !slice->lifted)
		snprintf(buf, len, "%s/%s %%", used,
			 policy_cores_name(device->seen.cores_pct, device->seen.cores_most_pct,
					   limit, sizeof(limit)));
	else
		snprintf(buf, len, "%s%s", used, device->counter == OVERVIEW_NOBODY ? "" : " %");
	return buf;
}

char *ps_waits_word(const struct overview_device *device, char *buf, size_t len)
{
	int limit_pct = device->throttled_pct, turns_pct = device->turn_waited_pct;

	if (limit_pct < 0 && turns_pct < 0)
		snprintf(buf, len, "-");
	else if (limit_pct <= 0 && turns_pct <= 0)
		snprintf(buf, len, "0 %%");
	else if (limit_pct >= turns_pct)
		snprintf(buf, len, "%d %% limit", limit_pct);
	else
		snprintf(buf, len, "%d %% turns", turns_pct);
	return buf;
}

bool ps_has_waits(const struct overview *overview)
{
	for (unsigned i = 0; i < overview->count; i++)
		for (unsigned d = 0; d < overview->slice[i].device_count; d++)
			if (overview->slice[i].device[d].throttled_pct >= 0 ||
			    overview->slice[i].device[d].turn_waited_pct >= 0)
				return true;
	return false;
}

char *ps_assured_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		      size_t len)
{
	struct overview_assured assured = overview_assured(overview, gpu->uuid);

	*buf = '\0';
	if (assured.sum_pct > 100)
		snprintf(buf, len,
			 "GPU %u: %u slices are assured %u %% in all; while all of them want it, "
			 "the one of %u %% gets %u %%",
			 gpu->index, assured.count, assured.sum_pct, assured.most_pct,
			 (assured.most_pct * 100 + assured.sum_pct / 2) / assured.sum_pct);
	return buf;
}

char *ps_pressure_word(const struct overview *overview, const struct usage_gpu *gpu, char *buf,
		       size_t len)
{
	uint64_t held_bytes = overview_held_bytes(overview, gpu->uuid);
	char held[32], total[32], turns[64] = "each change of them moves memory";

	*buf = '\0';
	if (!gpu->turn_least_ns && (!gpu->total_bytes || held_bytes <= gpu->total_bytes))
		return buf;
	if (gpu->turn_least_ns)
		snprintf(turns, sizeof(turns),
			 "turns last for %.1f s at least, as each moves memory",
			 (double)gpu->turn_least_ns / (double)NS_PER_S);
	snprintf(buf, len, "GPU %u: slices at work hold %s, and it has %s; %s", gpu->index,
		 size_format(held_bytes, held, sizeof(held)),
		 size_format(gpu->total_bytes, total, sizeof(total)), turns);
	return buf;
}

__attribute__((format(printf, 3, 4))) static void append(char *buf, size_t len, const char *format,
							 ...)
{
	size_t at = strlen(buf);
	va_list args;

	if (at > 0)
		at += (size_t)snprintf(buf + at, len - at, ", ");
	if (at >= len)
		return;
	va_start(args, format);
	vsnprintf(buf + at, len - at, format, args);
	va_end(args);
}

char *ps_state_word(const struct overview_slice *slice, char *buf, size_t len)
{
	*buf = '\0';
	if (slice->paused)
		append(buf, len, "paused");
	if (slice->blocked)
		append(buf, len, "blocked");
	if (slice->paused_count && !slice->paused) /* a monitor did that */
		append(buf, len, "%u paused", slice->paused_count);
	if (slice->running)
		append(buf, len, "%u running", slice->running);
	if (slice->state != OVERVIEW_RUNNING)
		append(buf, len, "%s", overview_state_name(slice->state));
	if (slice->dying)
		append(buf, len, "%u dying", slice->dying);
	if (slice->dead)
		append(buf, len, "%u dead", slice->dead);
	if (slice->lifted)
		append(buf, len, "cores lifted");
	return buf;
}

const char *ps_command_word(const char *command)
{
	const char *end = command + strcspn(command, " "), *at = command;

	for (const char *c = command; c < end; c++)
		if (*c == '/' && c + 1 < end)
			at = c + 1;
	return at;
}

const char *ps_process_state(const struct overview_process *process)
{
	return process->may_be_held ? "dead, may be held" : process->seen.state;
}

char *ps_process_word(const struct overview_process *process, char *buf, size_t len)
{
	const char *command = ps_command_word(process->command);
	int pid = process->seen.pid;

	if (!process->here)
		snprintf(buf, len, "[%d]", pid);
	else if (process->here == pid)
		snprintf(buf, len, "%d %s", pid, command);
	else
		snprintf(buf, len, "%d [%d] %s", process->here, pid, command);
	return buf;
}

int ps_full_pct(const struct overview_device *device)
{
	double full;

	if (!device->seen.limit_bytes)
		return -1;
	full = (double)device->seen.used_bytes * 100 / (double)device->seen.limit_bytes;
	return full < 999 ? (int)full : 999;
}

bool ps_needs_eyes(const struct overview_slice *slice)
{
	return slice->paused || slice->blocked || slice->paused_count || slice->dying ||
	       slice->dead || slice->lifted || slice->state == OVERVIEW_LEFTOVER ||
	       slice->state == OVERVIEW_UNREADABLE;
}
