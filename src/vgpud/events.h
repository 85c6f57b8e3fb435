/*
 * Events of the node, each of which is reported once. An event is a JSON line in a file or on
 * stdout. It is also an entry of the journal with fields, or else a line on stderr. vgpud(8)
 * promises the events' names and members.
 */
#pragma once

#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>

#include "config.h"
#include "fault.h"
#include "overview.h"
#include "say.h"
#include "text.h"

/* KIND(kind, name, level, limited). limited: tenants can cause any number of these events, so
 * their rate is bounded. */
#define EVENTS(KIND)                                                        \
	KIND(EVENT_SLICE_MADE, "slice_made", LOG_INFO, true)                \
	KIND(EVENT_SLICE_REMOVED, "slice_removed", LOG_INFO, true)          \
	KIND(EVENT_SLICE_PODS, "slice_pods", LOG_INFO, true)                \
	KIND(EVENT_SLICE_CHANGED, "slice_changed", LOG_NOTICE, true)        \
	KIND(EVENT_SLICE_PAUSED, "slice_paused", LOG_NOTICE, true)          \
	KIND(EVENT_SLICE_RESUMED, "slice_resumed", LOG_NOTICE, true)        \
	KIND(EVENT_SLICE_UNREADABLE, "slice_unreadable", LOG_WARNING, true) \
	KIND(EVENT_REFUSED, "allocation_refused", LOG_NOTICE, true)         \
	KIND(EVENT_PROCESS_DIED, "process_died", LOG_NOTICE, true)          \
	KIND(EVENT_OUTSIDE, "process_outside", LOG_WARNING, true)           \
	KIND(EVENT_EXCESS, "slice_excess", LOG_WARNING, true)               \
	KIND(EVENT_LIFTED, "policy_lifted", LOG_WARNING, true)              \
	KIND(EVENT_PRESSURE, "memory_pressure", LOG_NOTICE, true)           \
	KIND(EVENT_PRESSURE_OVER, "memory_pressure_over", LOG_INFO, true)   \
	KIND(EVENT_ASSURED, "assured_exceeds_gpu", LOG_WARNING, true)       \
	KIND(EVENT_ASSURED_FITS, "assured_fits_gpu", LOG_INFO, true)        \
	KIND(EVENT_TURNS_WRITTEN, "turns_overwritten", LOG_WARNING, true)   \
	KIND(EVENT_TURNS_REFUSED, "turns_refused", LOG_WARNING, true)       \
	KIND(EVENT_ENDED, "process_ended", LOG_WARNING, false)              \
	KIND(EVENT_DROPPED, "events_dropped", LOG_WARNING, false)

#define EVENT_KIND(kind, name, level, limited) kind,
enum event_kind { EVENTS(EVENT_KIND) EVENT_KINDS };
#undef EVENT_KIND

struct events {
	FILE *file; /* NULL: no JSON lines are written */
	bool journal;
	uint64_t count[EVENT_KINDS];
	unsigned left;    /* limited events that may still be reported */
	unsigned dropped; /* limited events that were not, since EVENT_DROPPED */
};

/* Events are written where the configuration says from now on; the file is opened again.
 * Returns 0; or a negative errno with a fault, and nothing has changed. Zero the struct before
 * the first call. */
int events_configure(struct events *events, const struct config *config, struct fault *fault);
void events_close(struct events *events);

/* Call it when a look begins. It allows some more limited events, and reports how many were
 * dropped. */
void events_begin(struct events *events);

/* Makes an event with the members of a slice and of one of its GPUs; each may be NULL. Returns
 * NULL without memory, which the functions below accept. events_tell() frees the event. */
struct json_object *event_of(const struct slices_one *slice, const char *device_uuid);
void event_add_number(struct json_object *event, const char *name, uint64_t number);
void event_add_text(struct json_object *event, const char *name, const char *text);

/* Reports the event, with the format's sentence for people, and frees it. */
__attribute__((format(printf, 4, 5))) void events_tell(struct events *events, enum event_kind kind,
						       struct json_object *event,
						       const char *format, ...);

/* Adds the metrics of events: the number of each kind since vgpud started. */
void events_write(struct text *text, const struct events *events);
