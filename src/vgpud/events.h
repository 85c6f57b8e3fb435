/*
 * What happened on the node, told once each: a JSON line in a file or on stdout, an entry of the
 * journal with fields, and otherwise a line on stderr. vgpud(8) promises the events' names and
 * members.
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

/* KIND(kind, name, level, limited): limited: tenants can cause any number of them. */
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
	unsigned left;    /* limited ones that may be told; the others are counted */
	unsigned dropped; /* since an event said how many */
};

/* Writes where the configuration says, from now on; a file is opened again. 0, or a negative errno
 * with a fault, and all is as it was. Of zeroed events at first. */
int events_configure(struct events *events, const struct config *config, struct fault *fault);
void events_close(struct events *events);

/* A look begins: some more events may be told, and how many were not is told first. */
void events_begin(struct events *events);

/* The members of an event: a slice, or NULL; one of its GPUs, or NULL. NULL without memory, which
 * the other functions take. */
struct json_object *event_of(const struct slices_one *slice, const char *device_uuid);
void event_add_number(struct json_object *event, const char *name, uint64_t number);
void event_add_text(struct json_object *event, const char *name, const char *text);

/* Tells it, with a sentence for people, and lets go of it. */
__attribute__((format(printf, 4, 5))) void events_tell(struct events *events, enum event_kind kind,
						       struct json_object *event,
						       const char *format, ...);

/* How many there were of each. */
void events_write(struct text *text, const struct events *events);
