/*
 * The memory that slices hold is the sum over the regions of slices at work
 * (overview_held_bytes). The memory of an idle slice is moved to the host once, and stays
 * there.
 *
 * A change of turns moves the memory that does not fit: held - total. A turn is TIMES as long
 * as that takes, so 1 part in TIMES + 1 of the time is lost. Pressure begins when memory does
 * not fit, and ends at END_PCT, so that it does not come and go with small allocations.
 *
 * NVML tells the total. While NVML fails, the last total counts for BLIND_LOOKS looks, as a
 * GPU's memory does not change. After that there is no pressure, so turns are not long without
 * a reason.
 *
 * Tenants write these figures. A tenant with a figure that is too large makes turns long for the
 * others. So the processes that take turns cut the length to some seconds (src/turn/).
 */
#include "pressure.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "prom.h"
#include "say.h"

/* Percent of the GPU's memory at which pressure ends. Lower: turns stay long for longer. Higher:
 * turns may change their length each second. */
#define END_PCT 90

/* Bytes a second at which the driver moves managed memory. This is an assumption for PCI Express 4
 * and 5 with 16 lanes, where a copy reaches 25 to 55 GB/s and page faults less. It is not measured.
 * Half: turns are twice as long, and waits too. Twice: where the real rate is lower, moving takes a
 * larger part of the time. */
#define MOVED_A_SECOND ((uint64_t)20000000000)

/* The length of a turn, as a multiple of the time that moving its memory takes. Half: a sixth
 * of the time is lost. Twice: a twentieth, and slices wait twice as long. */
#define TIMES 10

/* The least and the greatest length of a turn under pressure. Half of the least: the fixed
 * costs of a change become noticeable. Twice the greatest: a slice waits 8 s. */
#define LENGTH_LEAST_NS (100 * NS_PER_MS)
#define LENGTH_MOST_NS  (4 * NS_PER_S)

/* Looks, one a second, for which the last total counts after NVML stopped telling it. vgpud
 * opens NVML again at the first of them. Half: turns become short while the driver is slow.
 * Twice: slices wait longer for turns of a GPU that may be gone. */
#define BLIND_LOOKS 10

/* -- how long ---------------------------------------------------------------------------------- */

static uint64_t within(uint64_t ns)
{
	if (ns < LENGTH_LEAST_NS)
		return LENGTH_LEAST_NS;
	return ns < LENGTH_MOST_NS ? ns : LENGTH_MOST_NS;
}

uint64_t pressure_length_ns(uint64_t held_bytes, uint64_t total_bytes, uint64_t was_ns)
{
	uint64_t moved_bytes = held_bytes > total_bytes ? held_bytes - total_bytes : 0;
	bool is_pressed = was_ns ? held_bytes > total_bytes / 100 * END_PCT : moved_bytes > 0;

	if (!is_pressed || total_bytes == 0)
		return 0;
	if (moved_bytes > total_bytes)
		moved_bytes = total_bytes;
	return within((uint64_t)((double)moved_bytes * TIMES * (double)NS_PER_S /
				 (double)MOVED_A_SECOND));
}

/* -- a look ------------------------------------------------------------------------------------ */

static void tell(struct events *events, const struct pressure_gpu *gpu, uint64_t was_ns)
{
	struct json_object *event;

	if (!was_ns == !gpu->length_ns)
		return;
	event = event_of(NULL, gpu->uuid);
	event_add_number(event, "held_bytes", gpu->held_bytes);
	event_add_number(event, "size_bytes", gpu->total_bytes);
	event_add_number(event, "turn_ms", gpu->length_ns / NS_PER_MS);
	if (gpu->length_ns)
		events_tell(events, EVENT_PRESSURE, event,
			    "slices hold more than the memory of %s: turns are long", gpu->uuid);
	else if (gpu->blind_looks < BLIND_LOOKS)
		events_tell(events, EVENT_PRESSURE_OVER, event,
			    "the memory that slices hold fits %s again", gpu->uuid);
	else
		events_tell(
			events, EVENT_PRESSURE_OVER, event,
			"NVML has not reported the memory of %s for %u s: turns are not long any "
			"more; see whether the driver works",
			gpu->uuid, BLIND_LOOKS);
}

/* The GPU's entry in a look; NULL: it has none. */
static const struct pressure_gpu *find(const struct pressure *pressure, const char *uuid)
{
	for (unsigned i = 0; i < pressure->count; i++)
		if (strcmp(pressure->gpu[i].uuid, uuid) == 0)
			return &pressure->gpu[i];
	return NULL;
}

/* Computes the GPU's entry for this look. total_bytes: NVML's figure, 0 where NVML does not
 * tell. was: the GPU's entry at the last look, or NULL. */
static struct pressure_gpu look_at(const struct pressure_gpu *was, const struct overview *overview,
				   const char *uuid, uint64_t total_bytes)
{
	struct pressure_gpu gpu = {.total_bytes = total_bytes};

	snprintf(gpu.uuid, sizeof(gpu.uuid), "%s", uuid);
	gpu.held_bytes = overview_held_bytes(overview, uuid);
	if (!total_bytes && was) {
		gpu.total_bytes = was->total_bytes;
		gpu.blind_looks = was->blind_looks + 1;
	}
	if (gpu.blind_looks < BLIND_LOOKS)
		gpu.length_ns = pressure_length_ns(gpu.held_bytes, gpu.total_bytes,
						   was ? was->length_ns : 0);
	return gpu;
}

static void put(struct turns_file *file, uint64_t length_ns)
{
	__atomic_store_n(&file->at->header.pressure_ns, length_ns, __ATOMIC_RELAXED);
}

/* Writes the lengths of the GPUs with pressure in the format of least_turns.h. */
static void write_lengths(const struct pressure *pressure, char text[LEAST_TURNS_LEN])
{
	size_t at = 0;

	*text = '\0';
	for (unsigned i = 0; i < pressure->count; i++)
		if (pressure->gpu[i].length_ns && at + VGPU_UUID_LEN + 24 < LEAST_TURNS_LEN)
			at += (size_t)snprintf(text + at, LEAST_TURNS_LEN - at, "%s %llu\n",
					       pressure->gpu[i].uuid,
					       (unsigned long long)pressure->gpu[i].length_ns);
}

/* Writes the file next to the socket. Returns whether the file has the text now, or socket is
 * "". A failure that lasts is logged once. */
static bool write_next_to(struct pressure *pressure, const char *socket, const char *text)
{
	struct fault fault = {""};

	if (!*socket || least_turns_write(socket, text, &fault) == 0) {
		pressure->failed = false;
		return true;
	}
	if (!pressure->failed)
		say(LOG_WARNING, "vgpu ps does not see the length of turns: %s", fault.text);
	pressure->failed = true;
	return false;
}

/* Writes the file when the lengths or the socket have changed, and retries at the next look
 * after a failure. The file next to a socket that is no longer served is emptied. */
static void publish(struct pressure *pressure, const char *socket)
{
	char text[LEAST_TURNS_LEN];
	bool moved = strcmp(socket, pressure->published_at) != 0;

	write_lengths(pressure, text);
	if (pressure->is_published && !moved && strcmp(text, pressure->published) == 0)
		return;
	if (moved && *pressure->published_at)
		least_turns_write(pressure->published_at, "", NULL);
	pressure->is_published = write_next_to(pressure, socket, text);
	memcpy(pressure->published, text, sizeof(text));
	snprintf(pressure->published_at, sizeof(pressure->published_at), "%s", socket);
}

static void look(struct pressure *pressure, const struct pressure *before,
		 const struct overview *overview, const char *uuid, uint64_t total_bytes,
		 struct turns_server *server, struct events *events)
{
	const struct pressure_gpu *was = find(before, uuid);
	struct pressure_gpu gpu = look_at(was, overview, uuid, total_bytes);
	struct turns_file *file = turns_store_find(&server->store, uuid);

	if (pressure->count == TURNS_FILES_MAX)
		return;
	tell(events, &gpu, was ? was->length_ns : 0);
	if (file)
		put(file, gpu.length_ns);
	pressure->gpu[pressure->count++] = gpu;
}

void pressure_look(struct pressure *pressure, const struct overview *overview,
		   struct turns_server *server, struct events *events)
{
	static struct pressure before; /* static as it is large; vgpud has one thread */

	before = *pressure;
	pressure->count = 0;
	for (unsigned g = 0; g < overview->usage.gpu_count; g++)
		look(pressure, &before, overview, overview->usage.gpu[g].uuid,
		     overview->usage.gpu[g].total_bytes, server, events);
	for (unsigned g = 0; g < before.count; g++)
		if (!find(pressure, before.gpu[g].uuid) && before.gpu[g].blind_looks < BLIND_LOOKS)
			look(pressure, &before, overview, before.gpu[g].uuid, 0, server, events);
	publish(pressure, server->socket.fd < 0 ? "" : server->socket.path);
}

void pressure_end(struct pressure *pressure, struct turns_server *server)
{
	for (unsigned i = 0; i < server->store.count; i++)
		put(&server->store.file[i], 0);
	pressure->count = 0;
	publish(pressure, server->socket.fd < 0 ? "" : server->socket.path);
}

/* -- metrics ----------------------------------------------------------------------------------- */

static void write_one(struct text *text, const struct prom_family *family, const char *uuid,
		      double value)
{
	struct text labels = {0};

	prom_label(&labels, "device_uuid", uuid);
	if (labels.failed)
		text->failed = true;
	else
		prom_sample(text, family, labels.bytes, "", value);
	text_free(&labels);
}

void pressure_write(struct text *text, const struct pressure *pressure)
{
	static const struct prom_family held = {"vgpu_gpu_memory_pressure_ratio", PROM_GAUGE,
						"What slices at work hold of the GPU's memory, by "
						"their ledgers; above 1, it does not fit."};
	static const struct prom_family length = {
		"vgpu_gpu_pressure_turn_seconds", PROM_GAUGE,
		"The least length of turns because of memory pressure; 0 without it."};

	prom_begin(text, &held);
	for (unsigned i = 0; i < pressure->count; i++) /* no line where the total is not known */
		write_one(text, &held, pressure->gpu[i].uuid,
			  (double)pressure->gpu[i].held_bytes /
				  (double)pressure->gpu[i].total_bytes);
	prom_begin(text, &length);
	for (unsigned i = 0; i < pressure->count; i++)
		write_one(text, &length, pressure->gpu[i].uuid,
			  (double)pressure->gpu[i].length_ns / (double)NS_PER_S);
}
