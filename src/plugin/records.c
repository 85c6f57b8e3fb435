#include "records.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot.h"
#include "bytes.h"
#include "clock.h"
#include "disk.h"
#include "file.h"
#include "sys.h"

#define RECORD     "record"
#define RECORD_MAX ((size_t)256 * 1024) /* bytes */

/* -- time -------------------------------------------------------------------------------------- */

static uint64_t uptime_s(void)
{
	return clock_now_ns() / NS_PER_S;
}

/* Whether the boot IDs are of two starts of the machine. An unknown one may be the same start. */
static bool are_two_starts(const char *boot, const char *other)
{
	return *boot && *other && strcmp(boot, other) != 0;
}

bool records_is_old(const struct record *record, unsigned span_s)
{
	char boot[BOOT_LEN];

	boot_read(boot);
	return are_two_starts(boot, record->boot) || uptime_s() >= record->made_s + span_s;
}

bool records_is_later(const struct record *other, const struct record *record, unsigned span_s)
{
	if (other->number <= record->number)
		return false;
	return are_two_starts(other->boot, record->boot) ||
	       other->made_s >= record->made_s + span_s;
}

/* -- reading ----------------------------------------------------------------------------------- */

void records_free(struct records *records)
{
	for (unsigned i = 0; i < records->count; i++)
		free(records->record[i].text);
	free(records->record);
	*records = (struct records){0, NULL};
}

/* Reads a file's text, which the caller frees, into *ret_text; NULL: the file cannot be read.
 * Returns 0, or a negative errno where the machine lacks descriptors or memory. */
static int read_text(const char *path, char **ret_text)
{
	char *text = malloc(RECORD_MAX + 1);
	long len = text ? file_read(path, text, RECORD_MAX + 1) : -ENOMEM;

	if (len < 0) {
		free(text);
		text = NULL;
	}
	if (fault_is_shortage((int)len))
		return (int)len;
	*ret_text = text;
	return 0;
}

/* Returns 1; 0: there is no record; or a negative errno where the machine lacks descriptors or
 * memory. */
static int read_record(const char *state, const char *name, struct record *ret_record)
{
	struct record record = {.number = 0};
	char path[PATH_MAX], *end, *resource;
	int error;

	snprintf(path, sizeof(path), "%s/%s/" RECORD, state, name);
	error = read_text(path, &record.text);
	if (error)
		return error;
	resource = record.text ? strchr(record.text, '\n') : NULL;
	record.ids = resource ? strchr(resource + 1, '\n') : NULL;
	if (!record.ids) {
		free(record.text);
		return 0;
	}
	record.number = strtoull(record.text, &end, 10);
	record.made_s = *end == ' ' ? strtoull(end, &end, 10) : 0;
	if (*end == ' ')
		snprintf(record.boot, sizeof(record.boot), "%.*s", (int)strcspn(end + 1, "\n"),
			 end + 1);
	snprintf(record.name, sizeof(record.name), "%s", name);
	*ret_record = record;
	return 1;
}

bool records_is_name(const char *name)
{
	return strlen(name) == RECORDS_NAME_LEN - 1 &&
	       strspn(name, "0123456789abcdef") == RECORDS_NAME_LEN - 1;
}

struct reader {
	const char *state;
	struct records *records;
};

static int add_record(void *arg, const char *name)
{
	const struct reader *reader = arg;
	struct records *records = reader->records;
	struct record *more;
	int found;

	if (!records_is_name(name))
		return 0;
	more = realloc(records->record, (records->count + 1) * sizeof(*records->record));
	if (!more)
		return -ENOMEM;
	records->record = more;
	found = read_record(reader->state, name, &records->record[records->count]);
	records->count += found > 0;
	return found < 0 ? found : 0;
}

int records_read(const char *state, struct records *ret_records)
{
	struct records records = {0, NULL};
	struct reader reader = {state, &records};
	int error = sys_list_directory(state, add_record, &reader);

	if (error)
		records_free(&records);
	else
		*ret_records = records;
	return error;
}

uint64_t records_next_number(const struct records *records)
{
	uint64_t last = 0;

	for (unsigned i = 0; i < records->count; i++)
		if (records->record[i].number > last)
			last = records->record[i].number;
	return last + 1;
}

/* -- IDs --------------------------------------------------------------------------------------- */

bool records_any_id(const struct record *record,
		    bool (*found)(const void *arg, const char *id, size_t len), const void *arg)
{
	for (const char *id = record->ids + 1; *id;) {
		const char *end = strchrnul(id, '\n');

		if (found(arg, id, (size_t)(end - id)))
			return true;
		id = *end ? end + 1 : end;
	}
	return false;
}

struct wanted {
	const char *id;
	size_t len;
};

static bool is_wanted(const void *arg, const char *id, size_t len)
{
	const struct wanted *wanted = arg;

	return len == wanted->len && memcmp(id, wanted->id, len) == 0;
}

bool records_has_id(const struct record *record, const char *id, size_t len)
{
	const struct wanted wanted = {id, len};

	return records_any_id(record, is_wanted, &wanted);
}

const struct record *records_newest(const struct records *records, const char *id, size_t len)
{
	const struct record *newest = NULL;

	for (unsigned i = 0; i < records->count; i++) {
		const struct record *record = &records->record[i];

		if (records_has_id(record, id, len) && (!newest || record->number > newest->number))
			newest = record;
	}
	return newest;
}

/* -- writing ----------------------------------------------------------------------------------- */

int records_write(const char *dir, uint64_t number, const char *resource, const char *const *ids)
{
	char path[PATH_MAX], line[128], boot[BOOT_LEN];
	struct bytes text = {0};
	int error;

	boot_read(boot);
	snprintf(line, sizeof(line), "%llu %llu %s\n", (unsigned long long)number,
		 (unsigned long long)uptime_s(), boot);
	bytes_add(&text, line, strlen(line));
	bytes_add(&text, resource, strlen(resource));
	for (; *ids; ids++) {
		bytes_add(&text, "\n", 1);
		bytes_add(&text, *ids, strlen(*ids));
	}
	bytes_add(&text, "\n", 1);
	snprintf(path, sizeof(path), "%s/" RECORD, dir);
	error = text.failed ? -ENOMEM : disk_write(path, text.data, text.len);
	bytes_free(&text);
	return error;
}
