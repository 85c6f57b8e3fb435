/*
 * No interface reports the work of neighbours, so the device is probed, as docs/design/pacing.md
 * says. While the device works for a neighbour, an event is reached when the neighbour's time slice
 * is over. On a machine that does much else, any event may take some 100 us longer. Single probes
 * miss a neighbour that works only now and then.
 */
#include "others.h"

#include "clock.h"
#include "relaxed.h"

/* Whether the device comes to the event within PROBE_NS. */
static bool is_reached_soon(const struct span *span)
{
	uint64_t began_ns = clock_steady_ns();
	bool late = false;

	while (!span_is_begun(span)) {
		if (late)
			return false;
		late = meter_since(clock_steady_ns(), began_ns) >= PROBE_NS;
	}
	return true;
}

/* The driver is asked first whether the stream is
 * busy. If costs are too low, the backlog says that the device is idle while it is at work. */
void others_probe(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(meter->probed_at_ns);
	uint32_t left = RELAXED_LOAD(meter->neighbours);
	struct span *span;

	if (meter_since(now_ns, then_ns) < PROBE_EACH_NS ||
	    !RELAXED_CAS(meter->probed_at_ns, then_ns, now_ns))
		return;
	span = span_take(work->context);
	if (!span)
		return;
	if (!pace_driver->is_busy(work) && span_begin(span, work, false))
		RELAXED_STORE(meter->neighbours, !is_reached_soon(span) ? PROBE_COUNT
						 : left                 ? left - 1
									: 0);
	span_drop(span);
}
