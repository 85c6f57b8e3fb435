/*
 * Policies: reading, and writing what is read.
 *
 * A file is read whole, and then by lines: blanks and a comment are cut off, the rest is split at
 * the first "=", and a table says what its key may hold. Devices are kept in the order of their
 * UUIDs, so that a policy is the same whatever order the directory lists its files in.
 *
 * Nothing is ever guessed: a policy that cannot be read to its last byte is an error, because half
 * of one is a limit lost. For the same reason a file that vanishes while it is read is an error,
 * never -ENOENT, which means that there is no policy at all.
 */
#include "policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "file.h"
#include "size.h"
#include "slice_internal.h"
#include "sys.h"

#define FILE_MAX   6144 /* bytes of one file: the longest path, and room for remarks */
#define PATH_MAX_  4096
#define SLICE_FILE "slice"
#define UNLIMITED  "unlimited"

/* Where we are, for faults. */
struct place {
	const char *file;
	unsigned line;
};

/* What a file has said so far. */
struct entry {
	struct policy *policy;
	int device; /* its index, or -1 in the file "slice" */
	unsigned seen;
};

/* A key: which files have it, and what takes its value. */
struct key {
	const char *name;
	bool of_device;
	int (*set)(const struct entry *entry, const char *value, const struct place *place,
		   struct fault *fault);
};

static int bad_value(const struct place *place, const char *value, const char *cure,
		     struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN];

	return fault_set(fault, -EINVAL, "%s, line %u: \"%s\" %s", place->file, place->line,
			 slice_quote(value, quoted), cure);
}

static int set_memory(const struct entry *entry, const char *value, const struct place *place,
		      struct fault *fault)
{
	uint64_t bytes = 0;

	if (strcmp(value, UNLIMITED) == 0)
		return 0;
	if (size_parse(value, &bytes))
		return bad_value(place, value,
				 "is no size: write bytes or a number with k, m or g, such as 8G, "
				 "or " UNLIMITED,
				 fault);
	if (bytes == 0)
		return bad_value(place, value,
				 "would be no memory at all: for no limit, write " UNLIMITED,
				 fault);
	entry->policy->device[entry->device].memory_bytes = bytes;
	return 0;
}

bool policy_cores_parse(const char *text, struct policy_cores *ret_cores)
{
	const char *dash = strchr(text, '-');
	char first[32];
	uint64_t pct, most_pct;

	if (snprintf(first, sizeof(first), "%.*s", (int)(dash ? dash - text : (long)strlen(text)),
		     text) >= (int)sizeof(first))
		return false;
	if (percent_parse(first, 100, &pct) || pct == 0)
		return false;
	most_pct = pct;
	if (dash && (percent_parse(dash + 1, 100, &most_pct) || most_pct < pct))
		return false;
	ret_cores->pct = (unsigned)pct;
	ret_cores->most_pct = most_pct > pct ? (unsigned)most_pct : 0;
	return true;
}

char *policy_cores_name(unsigned pct, unsigned most_pct, char *buf, size_t len)
{
	if (most_pct)
		snprintf(buf, len, "%u-%u", pct, most_pct);
	else
		snprintf(buf, len, "%u", pct);
	return buf;
}

static int set_cores(const struct entry *entry, const char *value, const struct place *place,
		     struct fault *fault)
{
	struct policy_device *device = &entry->policy->device[entry->device];
	struct policy_cores cores;

	if (strcmp(value, UNLIMITED) == 0)
		return 0;
	if (!policy_cores_parse(value, &cores))
		return bad_value(place, value,
				 "is no share of the GPU's time: write a percentage from 1 to 100, "
				 "or two with a \"-\" between them, what is assured and the most, "
				 "or " UNLIMITED,
				 fault);
	device->cores_pct = cores.pct;
	device->cores_most_pct = cores.most_pct;
	return 0;
}

bool policy_burst_parse(const char *text, uint64_t *ret_burst_ns)
{
	uint64_t ns;

	if (time_parse(text, VGPU_BURST_MAX_NS, &ns))
		return false;
	*ret_burst_ns = ns ? ns : POLICY_NO_BURST;
	return true;
}

char *policy_burst_name(uint64_t burst_ns, char *buf, size_t len)
{
	if (burst_ns)
		return time_format(burst_ns == POLICY_NO_BURST ? 0 : burst_ns, buf, len);
	snprintf(buf, len, "default");
	return buf;
}

static int set_burst(const struct entry *entry, const char *value, const struct place *place,
		     struct fault *fault)
{
	if (policy_burst_parse(value, &entry->policy->device[entry->device].burst_ns))
		return 0;
	return bad_value(place, value,
			 "is no time that a slice may save: write 0 to 1s, such as 25ms, or leave "
			 "the line out",
			 fault);
}

static int set_region(const struct entry *entry, const char *value, const struct place *place,
		      struct fault *fault)
{
	size_t len = strlen(value);

	if (value[0] != '/' || len >= sizeof(entry->policy->region_path))
		return bad_value(place, value,
				 "is not where a region can lie: write the file's absolute path",
				 fault);
	memcpy(entry->policy->region_path, value, len + 1);
	return 0;
}

static int set_name(const struct entry *entry, const char *value, const struct place *place,
		    struct fault *fault)
{
	size_t len = strlen(value);

	if (len == 0 || len >= sizeof(entry->policy->name))
		return bad_value(place, value, "is no name for a slice: write 1 to 63 bytes",
				 fault);
	memcpy(entry->policy->name, value, len + 1);
	return 0;
}

static int set_oversubscribe(const struct entry *entry, const char *value,
			     const struct place *place, struct fault *fault)
{
	int word = slice_word(value);

	if (word < 0)
		return bad_value(place, value, "is no answer: write yes or no", fault);
	entry->policy->oversubscribe = word;
	return 0;
}

const char *policy_gang_word(const struct policy_gang *gang)
{
	switch (gang->rule) {
	case POLICY_GANG_YES:
		return "yes";
	case POLICY_GANG_NO:
		return "no";
	case POLICY_GANG_NAMED:
		return gang->name;
	case POLICY_GANG_FOUND:
		break;
	}
	return "found";
}

static bool names_gang(const char *word)
{
	static const char *const taken[] = {"yes", "no", "true", "false", "found"};
	size_t len = strlen(word);

	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		if (strcasecmp(word, taken[i]) == 0)
			return false;
	return len > 0 && len <= POLICY_GANG_MAX && word[0] != '.' &&
	       strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			    "0123456789._-") == len;
}

bool policy_gang_parse(const char *word, struct policy_gang *ret_gang)
{
	struct policy_gang gang = {POLICY_GANG_NAMED, ""};

	if (strcmp(word, "yes") == 0)
		gang.rule = POLICY_GANG_YES;
	else if (strcmp(word, "no") == 0)
		gang.rule = POLICY_GANG_NO;
	else if (names_gang(word))
		memcpy(gang.name, word, strlen(word));
	else
		return false;
	*ret_gang = gang;
	return true;
}

bool policy_gang_equals(const struct policy_gang *gang, const struct policy_gang *other)
{
	return gang->rule == other->rule && strcmp(gang->name, other->name) == 0;
}

static int set_gang(const struct entry *entry, const char *value, const struct place *place,
		    struct fault *fault)
{
	if (policy_gang_parse(value, &entry->policy->gang))
		return 0;
	return bad_value(place, value,
			 "does not say whether the slice is a gang: write yes or no, a gang's "
			 "name (1 to 64 letters, digits, \".\", \"_\" and \"-\", no \".\" first), "
			 "or leave the line out, and gangs are found",
			 fault);
}

static int set_group(const struct entry *entry, const char *value, const struct place *place,
		     struct fault *fault)
{
	uint64_t group;

	if (number_parse(value, POLICY_GROUP_MAX, &group))
		return bad_value(place, value, "is no group: write its number", fault);
	entry->policy->group = (unsigned)group;
	entry->policy->has_group = true;
	return 0;
}

/* The one that a GPU's file must have comes first. */
static const struct key keys[] = {
	{"memory", true, set_memory}, {"cores", true, set_cores},
	{"burst", true, set_burst},   {"region", false, set_region},
	{"name", false, set_name},    {"oversubscribe", false, set_oversubscribe},
	{"gang", false, set_gang},    {"group", false, set_group},
};

#define KEY_COUNT   (sizeof(keys) / sizeof(keys[0]))
#define SEEN_MEMORY 1u /* its bit in struct entry's `seen` */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends of line, in place. */
static char *trim(char *line)
{
	size_t len;

	while (is_blank(*line))
		line++;
	len = strlen(line);
	while (len > 0 && is_blank(line[len - 1]))
		line[--len] = '\0';
	return line;
}

/* A "#" starts a comment where the line does, or after a blank: paths may have one inside. */
static void cut_comment(char *line)
{
	for (char *p = line; *p; p++)
		if (*p == '#' && (p == line || is_blank(p[-1]))) {
			*p = '\0';
			return;
		}
}

static int set_key(struct entry *entry, const char *name, const char *value,
		   const struct place *place, struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN];
	bool of_device = entry->device >= 0;

	for (unsigned i = 0; i < KEY_COUNT; i++) {
		if (keys[i].of_device != of_device || strcmp(keys[i].name, name) != 0)
			continue;
		if (entry->seen & 1u << i)
			return fault_set(fault, -EINVAL,
					 "%s, line %u: \"%s\" is there a second time: leave one",
					 place->file, place->line, name);
		entry->seen |= 1u << i;
		return keys[i].set(entry, value, place, fault);
	}
	return fault_set(fault, -EINVAL, "%s, line %u: \"%s\" means nothing here: write %s",
			 place->file, place->line, slice_quote(name, quoted),
			 of_device ? "memory, cores or burst"
				   : "region, name, oversubscribe, gang or group");
}

static int parse_line(struct entry *entry, char *line, const struct place *place,
		      struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN], *equals;

	cut_comment(line);
	line = trim(line);
	if (*line == '\0')
		return 0;
	equals = strchr(line, '=');
	if (!equals)
		return fault_set(fault, -EINVAL,
				 "%s, line %u: \"%s\" has no \"=\": write \"key = value\"",
				 place->file, place->line, slice_quote(line, quoted));
	*equals = '\0';
	return set_key(entry, trim(line), trim(equals + 1), place, fault);
}

/* Cuts text into lines, in place. */
static int parse_lines(struct entry *entry, const char *file, char *text, struct fault *fault)
{
	struct place place = {file, 1};

	for (;; place.line++) {
		char *end = text + strcspn(text, "\n");
		bool last = *end == '\0';
		int error;

		*end = '\0';
		error = parse_line(entry, text, &place, fault);
		if (error || last)
			return error;
		text = end + 1;
	}
}

/* A file's name as a UUID: letters, digits and "-" to its end. */
static bool names_device(const char *name)
{
	size_t len = strlen(name);

	if (!slice_is_uuid(name) || len >= VGPU_UUID_LEN)
		return false;
	for (const char *p = name; *p; p++)
		if (!(*p == '-' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') ||
		      (*p >= 'A' && *p <= 'Z')))
			return false;
	return true;
}

/* Makes room for the device among the others and returns its index, or a negative errno. */
static int add_device(struct policy *policy, const char *uuid, const char *file,
		      struct fault *fault)
{
	unsigned at = 0, count = policy->device_count;

	while (at < count && strcmp(policy->device[at].uuid, uuid) < 0)
		at++;
	if (at < count && strcmp(policy->device[at].uuid, uuid) == 0)
		return fault_set(fault, -EINVAL, "%s: this GPU has an entry already", file);
	if (count == VGPU_DEVICES_MAX)
		return fault_set(fault, -EINVAL, "%s: a slice has at most %d GPUs: remove some",
				 file, VGPU_DEVICES_MAX);
	memmove(&policy->device[at + 1], &policy->device[at],
		(count - at) * sizeof(policy->device[0]));
	memset(&policy->device[at], 0, sizeof(policy->device[0]));
	memcpy(policy->device[at].uuid, uuid, strlen(uuid));
	policy->device_count++;
	return (int)at;
}

/*
 * A reader may meet a GPU's file after it was emptied and before its text is written, or when only
 * a part of it is. So a file without a word on memory is no policy: what is left of a text after
 * its end is cut off limits the memory to as much or less, or is refused. A compute limit that is
 * cut off is missed until the next look at the file.
 */
static int check_limits(const struct entry *entry, const char *file, struct fault *fault)
{
	if (entry->device < 0 || entry->seen & SEEN_MEMORY)
		return 0;
	return fault_set(
		fault, -EINVAL,
		"%s does not say how much memory the slice may hold: write \"memory = 8G\" "
		"or the like, or \"memory = " UNLIMITED
		"\"; rewrite a file by renaming another, which is whole, over it",
		file);
}

/* One file's text, which is cut up; file is what faults call it. */
static int parse_file(const char *file, const char *name, char *text, struct policy *policy,
		      struct fault *fault)
{
	struct entry entry = {policy, -1, 0};
	int error;

	if (strcmp(name, SLICE_FILE) != 0) {
		if (!names_device(name))
			return fault_set(fault, -EINVAL,
					 "%s: a file here is named \"slice\", or as a GPU's UUID "
					 "(nvidia-smi -L lists them): rename or remove it",
					 file);
		entry.device = add_device(policy, name, file, fault);
		if (entry.device < 0)
			return entry.device;
	}
	error = parse_lines(&entry, file, text, fault);
	return error ? error : check_limits(&entry, file, fault);
}

static int too_long(const char *file, struct fault *fault)
{
	return fault_set(fault, -EINVAL, "%s is longer than %d bytes, as no policy is", file,
			 FILE_MAX);
}

int policy_parse(const char *name, const char *text, struct policy *policy, struct fault *fault)
{
	char copy[FILE_MAX + 1];
	size_t len = strlen(text);

	if (len > FILE_MAX)
		return too_long(name, fault);
	memcpy(copy, text, len + 1);
	return parse_file(name, name, copy, policy, fault);
}

/* A file that is there, or a link to one: to open a device may have effects of its own. */
static int check_kind(const char *file, struct fault *fault)
{
	struct stat st;

	if (sys_stat(file, &st) != 0 || S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
		return 0; /* where it cannot be opened or read, that says more */
	return fault_set(fault, -EINVAL, "%s is not a regular file: remove it", file);
}

/* An empty `slice` would make the slice's region one that is named nowhere. */
static int check_slice_text(const char *file, const char *name, const char *text,
			    struct fault *fault)
{
	if (strcmp(name, SLICE_FILE) != 0 || text[0] != '\0')
		return 0;
	return fault_set(fault, -EINVAL,
			 "%s is empty: write what it is to say, or remove it; rewrite a file by "
			 "renaming another, which is whole, over it",
			 file);
}

/* Reads the file whole into text, of FILE_MAX + 1 bytes. Never returns -ENOENT. */
static int read_text(const char *file, char *text, struct fault *fault)
{
	int fd = sys_open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	long len = fd;

	if (fd >= 0) {
		len = sys_read(fd, text, FILE_MAX + 1);
		sys_close(fd);
	}
	if (len < 0)
		return fault_set(fault, len == -ENOENT ? -EIO : (int)len,
				 "%s cannot be read (%s): a policy is read whole or not at all",
				 file, strerror((int)-len));
	if (len > FILE_MAX)
		return too_long(file, fault);
	text[len] = '\0';
	if (strlen(text) != (size_t)len)
		return fault_set(fault, -EINVAL, "%s is not text: it has a zero byte", file);
	return 0;
}

struct reader {
	const char *dir;
	struct policy *policy;
	struct fault *fault;
};

static int read_entry(void *arg, const char *name)
{
	const struct reader *reader = arg;
	static char file[PATH_MAX_], text[FILE_MAX + 1]; /* too much for a small thread's stack */
	int error;

	if (name[0] == '.')
		return 0;
	if (snprintf(file, sizeof(file), "%s/%s", reader->dir, name) >= (int)sizeof(file))
		return fault_set(reader->fault, -ENAMETOOLONG, "%.200s...: the path is too long",
				 reader->dir);
	error = check_kind(file, reader->fault);
	if (!error)
		error = read_text(file, text, reader->fault);
	if (!error)
		error = check_slice_text(file, name, text, reader->fault);
	if (error)
		return error;
	return parse_file(file, name, text, reader->policy, reader->fault);
}

/* There is no directory: -ENOENT. One that was removed and is mounted is there still, and lists
 * nothing. */
static int check_missing(const char *dir, struct fault *fault)
{
	struct stat st;

	if (sys_stat(dir, &st) != 0)
		return -ENOENT;
	return fault_set(fault, -EIO,
			 "the policy directory %s was removed: its slice has ended; start the "
			 "container in another",
			 dir);
}

/* What read_entry left in the fault stays; a directory that cannot be listed has none yet. */
int policy_read(const char *dir, struct policy *ret_policy, struct fault *fault)
{
	static struct policy policy; /* likewise */
	struct fault why = {""};
	struct reader reader = {dir, &policy, &why};
	int error;

	memset(&policy, 0, sizeof(policy));
	error = sys_list_directory(dir, read_entry, &reader);
	if (error == -ENOENT)
		return check_missing(dir, fault);
	if (error)
		return why.text[0] ? fault_set(fault, error, "%s", why.text)
				   : fault_set(fault, error,
					       "the policy directory %s cannot be read: %s", dir,
					       strerror(-error));
	if (policy.device_count == 0)
		return fault_set(fault, -EINVAL,
				 "the policy directory %s has no GPU: put a file in it for each, "
				 "named by its UUID (nvidia-smi -L lists them)",
				 dir);
	*ret_policy = policy;
	return 0;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* The size as size_parse reads it, without rounding. */
static void print_size(uint64_t bytes, char *buf, size_t len)
{
	if (bytes % GIB == 0)
		snprintf(buf, len, "%lluG", (unsigned long long)(bytes / GIB));
	else if (bytes % MIB == 0)
		snprintf(buf, len, "%llum", (unsigned long long)(bytes / MIB));
	else
		snprintf(buf, len, "%llu", (unsigned long long)bytes);
}

static int write_device(const char *dir, const struct policy *policy, unsigned device,
			struct fault *fault)
{
	char text[128], size[32] = UNLIMITED, cores[32], burst[32];
	int len;

	if (policy->device[device].memory_bytes)
		print_size(policy->device[device].memory_bytes, size, sizeof(size));
	len = snprintf(text, sizeof(text), "memory = %s\n", size);
	if (policy->device[device].cores_pct)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "cores = %s\n",
				policy_cores_name(policy->device[device].cores_pct,
						  policy->device[device].cores_most_pct, cores,
						  sizeof(cores)));
	if (policy->device[device].burst_ns)
		snprintf(text + len, sizeof(text) - (size_t)len, "burst = %s\n",
			 policy_burst_name(policy->device[device].burst_ns, burst, sizeof(burst)));
	return file_write(dir, policy->device[device].uuid, text, fault);
}

static int write_slice(const char *dir, const struct policy *policy, struct fault *fault)
{
	char text[FILE_MAX];
	int len = 0;

	text[0] = '\0';
	if (policy->region_path[0])
		len = snprintf(text, sizeof(text), "region = %s\n", policy->region_path);
	if (policy->name[0])
		len += snprintf(text + len, sizeof(text) - (size_t)len, "name = %s\n",
				policy->name);
	if (policy->oversubscribe)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "oversubscribe = yes\n");
	if (policy->has_group)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "group = %u\n",
				policy->group);
	if (policy->gang.rule != POLICY_GANG_FOUND)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "gang = %s\n",
				policy_gang_word(&policy->gang));
	if (len == 0)
		snprintf(text, sizeof(text), "# nothing\n"); /* an empty file is refused */
	return file_write(dir, SLICE_FILE, text, fault);
}

/* Whether reading would give the same: a line break, a comment or an outer blank would not. */
static bool survives_reading(const char *value)
{
	char line[PATH_MAX_];
	size_t len = strlen(value);

	if (len >= sizeof(line) || strchr(value, '\n'))
		return false;
	memcpy(line, value, len + 1);
	cut_comment(line);
	return strcmp(trim(line), value) == 0;
}

int policy_write(const char *dir, const struct policy *policy, struct fault *fault)
{
	int error;

	if (!survives_reading(policy->region_path) || !survives_reading(policy->name))
		return fault_set(fault, -EINVAL,
				 "\"%.300s\" cannot stand in a policy: take a path without line "
				 "breaks and without \" #\"",
				 policy->region_path);
	error = write_slice(dir, policy, fault);
	for (unsigned i = 0; !error && i < policy->device_count; i++)
		error = write_device(dir, policy, i, fault);
	return error;
}

int policy_find(const struct policy *policy, const char *uuid)
{
	for (unsigned i = 0; i < policy->device_count; i++)
		if (strcmp(policy->device[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}
