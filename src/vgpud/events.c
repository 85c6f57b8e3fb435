/*
 * Text in an event may be a tenant's. All of it is escaped, so that a line stays one line, and
 * a terminal obeys nothing in it. A line is flushed before the next event.
 */
#include "events.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"
#include "prom.h"

#define EACH_LOOK 10  /* limited events that are reported per look, on average */
#define AT_ONCE   200 /* the most at one look, after looks with fewer */

#define TEXT_LEN   1024
#define FIELDS_MAX 24
#define FIELD_LEN  1200

static const struct {
	const char *name;
	int level;
	bool limited;
} kinds[] = {
#define EVENT_ROW(kind, name, level, limited) [kind] = {name, level, limited},
	EVENTS(EVENT_ROW)
#undef EVENT_ROW
};

/* -- where they go ----------------------------------------------------------------------------- */

static FILE *open_file(const char *path)
{
	int fd = strcmp(path, "-") == 0
			 ? dup(STDOUT_FILENO)
			 : open(path,
				O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY,
				0640);
	FILE *file = fd >= 0 ? fdopen(fd, "a") : NULL;

	if (fd >= 0 && !file)
		close(fd);
	return file;
}

int events_configure(struct events *events, const struct config *config, struct fault *fault)
{
	FILE *file = NULL;

	if (*config->events_file) {
		file = open_file(config->events_file);
		if (!file)
			return fault_set(fault, -errno,
					 "events cannot be written to %.200s (%s): set file under "
					 "events in vgpud.conf to another",
					 config->events_file, strerror(errno));
	}
	events_close(events);
	events->file = file;
	events->journal =
		config->events_journal && access("/run/systemd/journal/socket", F_OK) == 0;
	return 0;
}

void events_close(struct events *events)
{
	if (events->file)
		fclose(events->file);
	events->file = NULL;
}

/* -- members ----------------------------------------------------------------------------------- */

void event_add_text(struct json_object *event, const char *name, const char *text)
{
	char safe[TEXT_LEN];

	if (event)
		json_object_object_add(event, name,
				       json_object_new_string(escape(text, safe, sizeof(safe))));
}

void event_add_number(struct json_object *event, const char *name, uint64_t number)
{
	if (event)
		json_object_object_add(event, name, json_object_new_uint64(number));
}

/* The names that all containers of the slice have. */
static void add_pod(struct json_object *event, const struct pod_users *pods)
{
	struct pod_names names;

	pod_shared_names(pods, &names);
	if (*names.name_space)
		event_add_text(event, "namespace", names.name_space);
	if (*names.pod)
		event_add_text(event, "pod", names.pod);
	if (*names.container)
		event_add_text(event, "container", names.container);
}

struct json_object *event_of(const struct slices_one *slice, const char *device_uuid)
{
	struct json_object *event = json_object_new_object();

	if (slice) {
		event_add_text(event, "slice", slice->name);
		event_add_text(event, "kind", slices_kind_name(slice->kind));
		event_add_number(event, "owner_uid", slice->owner);
		event_add_text(event, "region", slice->region_path);
		if (slice->pods)
			add_pod(event, slice->pods);
	}
	if (device_uuid)
		event_add_text(event, "device_uuid", device_uuid);
	return event;
}

static void add_time(struct json_object *event)
{
	char day[32], all[64];
	struct timespec now;
	struct tm parts;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &parts);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(all, sizeof(all), "%s.%03ldZ", day, now.tv_nsec / 1000000);
	event_add_text(event, "time", all);
}

/* -- telling ----------------------------------------------------------------------------------- */

/* A member as a field of the journal: VGPU_DEVICE_UUID=GPU-… */
static size_t make_field(const char *name, struct json_object *value, char field[FIELD_LEN])
{
	int len = snprintf(field, FIELD_LEN, "VGPU_%s=%s", name, json_object_get_string(value));

	for (char *at = field; *at && *at != '='; at++)
		*at = (char)toupper((unsigned char)*at);
	return len < FIELD_LEN ? (size_t)len : FIELD_LEN - 1;
}

static void tell_journal(int level, struct json_object *event, const char *message)
{
	static char field[FIELDS_MAX][FIELD_LEN]; /* static as it is large; vgpud has one thread */
	struct iovec fields[FIELDS_MAX];
	int count = 2;

	snprintf(field[0], FIELD_LEN, "MESSAGE=%s", message);
	snprintf(field[1], FIELD_LEN, "PRIORITY=%d", level);
	for (int i = 0; i < count; i++)
		fields[i] = (struct iovec){field[i], strlen(field[i])};
	json_object_object_foreach(event, name, value)
	{
		if (count == FIELDS_MAX)
			break;
		fields[count].iov_base = field[count];
		fields[count].iov_len = make_field(name, value, field[count]);
		count++;
	}
	sd_journal_sendv(fields, count);
}

static void write_line(FILE *file, struct json_object *event)
{
	fprintf(file, "%s\n",
		json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN |
							      JSON_C_TO_STRING_NOSLASHESCAPE));
	fflush(file); /* on a full disk, only this line is lost */
	clearerr(file);
}

void events_begin(struct events *events)
{
	struct json_object *event;
	unsigned dropped = events->dropped;

	events->left = events->left + EACH_LOOK < AT_ONCE ? events->left + EACH_LOOK : AT_ONCE;
	if (dropped == 0)
		return;
	events->dropped = 0;
	event = event_of(NULL, NULL);
	event_add_number(event, "count", dropped);
	events_tell(events, EVENT_DROPPED, event,
		    "%u events were not reported: there were too many at once", dropped);
}

/* Whether the event exceeds the limit and is only counted. Otherwise it is taken off the
 * limit. */
static bool is_too_many(struct events *events, enum event_kind kind)
{
	if (!kinds[kind].limited)
		return false;
	if (events->left == 0) {
		events->dropped++;
		return true;
	}
	events->left--;
	return false;
}

void events_tell(struct events *events, enum event_kind kind, struct json_object *event,
		 const char *format, ...)
{
	char plain[TEXT_LEN], message[TEXT_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(plain, sizeof(plain), format, args);
	va_end(args);
	escape(plain, message, sizeof(message));
	events->count[kind]++;
	if (is_too_many(events, kind)) {
		json_object_put(event);
		return;
	}
	if (!events->journal || !event)
		say(kinds[kind].level, "%s", plain);
	if (!event)
		return;
	add_time(event);
	event_add_text(event, "event", kinds[kind].name);
	event_add_text(event, "message", plain);
	if (events->journal)
		tell_journal(kinds[kind].level, event, message);
	if (events->file)
		write_line(events->file, event);
	json_object_put(event);
}

void events_write(struct text *text, const struct events *events)
{
	static const struct prom_family family = {"vgpud_events_total", PROM_COUNTER,
						  "Events since vgpud started, by their name."};

	prom_begin(text, &family);
	for (unsigned i = 0; i < EVENT_KINDS; i++) {
		char label[64];

		snprintf(label, sizeof(label), "event=\"%s\"", kinds[i].name);
		prom_sample(text, &family, "", label, (double)events->count[i]);
	}
}
