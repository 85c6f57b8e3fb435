#include "meter.h"

#include "clock.h"

const struct pace_driver *pace_driver;

static PACE_OF_THREAD char own; /* its address names the thread */

void meter_reset(struct meter *meter)
{
	meter->scale = SCALE_ONE;
	meter->window.busy_ns = meter->window.unscaled_ns = SCALE_WINDOWS * (double)WINDOW_NS;
	meter->patience_ns = PATIENCE_NS;
	meter->fenced = true; /* until it turns out otherwise */
}

const void *meter_stream(const struct pace_work *work)
{
	static const char legacy;
	uintptr_t stream = (uintptr_t)work->stream;

	if (stream > PACE_LAST_DEFAULT_STREAM)
		return work->stream;
	return stream == PACE_PER_THREAD_STREAM || (!stream && work->per_thread) ? &own : &legacy;
}

bool meter_is_own(const struct meter *meter)
{
	return RELAXED_LOAD(meter->thread) == &own;
}

void meter_note_stream(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	const void *stream = meter_stream(work), *last = RELAXED_LOAD(meter->stream);
	const void *last_context = RELAXED_LOAD(meter->context),
		   *last_thread = RELAXED_LOAD(meter->thread);

	if (last_thread != &own) {
		RELAXED_STORE(meter->thread, &own);
		if (last_thread)
			RELAXED_STORE(meter->threads_at_ns, now_ns);
	}
	if (last_context != work->context) {
		RELAXED_STORE(meter->context, work->context);
		if (last_context)
			RELAXED_STORE(meter->contexts_at_ns, now_ns);
	}
	if (last == stream)
		return;
	RELAXED_STORE(meter->stream, stream);
	if (last)
		RELAXED_STORE(meter->mixed_at_ns, now_ns);
}

bool meter_is_busy(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	bool busy = pace_driver->is_busy(work);

	if (busy && !meter_stalls(meter, now_ns) && backlog_is_idle(&meter->backlog, now_ns))
		backlog_set_busy(&meter->backlog, now_ns);
	return busy;
}
