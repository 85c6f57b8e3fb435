/*
 * Reading policies.
 *
 * A file is read whole, and then by lines. Blanks and a comment are cut off, and the rest is split
 * at the first "=". A table has the values that each key may hold (policy_key.c). Devices are kept
 * in the order of their UUIDs, so that a policy is the same whatever order the directory lists its
 * files in.
 *
 * Nothing is ever guessed. A policy that cannot be read to its last byte is an error, because half
 * of a policy may lack a limit. For the same reason a file that vanishes while it is read is an
 * error. It is never -ENOENT, which means that there is no policy at all.
 */
#include "policy_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "slice_internal.h"
#include "sys.h"

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

char *policy_trim(char *line)
{
	size_t len;

	while (is_blank(*line))
		line++;
	len = strlen(line);
	while (len > 0 && is_blank(line[len - 1]))
		line[--len] = '\0';
	return line;
}

void policy_cut_comment(char *line)
{
	for (char *p = line; *p; p++)
		if (*p == '#' && (p == line || is_blank(p[-1]))) {
			*p = '\0';
			return;
		}
}

static int parse_line(struct policy_entry *entry, char *line, const struct policy_place *place,
		      struct fault *fault)
{
	char quoted[SLICE_QUOTED_LEN], *equals;

	policy_cut_comment(line);
	line = policy_trim(line);
	if (*line == '\0')
		return 0;
	equals = strchr(line, '=');
	if (!equals)
		return fault_set(fault, -EINVAL,
				 "%s, line %u: \"%s\" has no \"=\": write \"key = value\"",
				 place->file, place->line, slice_quote(line, quoted));
	*equals = '\0';
	return policy_set_key(entry, policy_trim(line), policy_trim(equals + 1), place, fault);
}

/* Cuts text into lines, in place. */
static int parse_lines(struct policy_entry *entry, const char *file, char *text,
		       struct fault *fault)
{
	struct policy_place place = {file, 1};

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
 * a part of it is. So a file without a memory line is no policy. If the end of a text is cut off,
 * the rest either limits the memory to as much or less, or is refused. A compute limit that is cut
 * off is missed until the next look at the file.
 */
static int check_limits(const struct policy_entry *entry, const char *file, struct fault *fault)
{
	if (entry->device < 0 || policy_has_memory(entry))
		return 0;
	return fault_set(
		fault, -EINVAL,
		"%s does not say how much memory the slice may hold: write \"memory = 8G\" "
		"or the like, or \"memory = " POLICY_UNLIMITED
		"\"; rewrite a file by renaming another, which is whole, over it",
		file);
}

/* One file's text, which is cut up; file is what faults call it. */
static int parse_file(const char *file, const char *name, char *text, struct policy *policy,
		      struct fault *fault)
{
	struct policy_entry entry = {policy, -1, 0};
	int error;

	if (strcmp(name, POLICY_SLICE_FILE) != 0) {
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
			 POLICY_FILE_MAX);
}

int policy_parse(const char *name, const char *text, struct policy *policy, struct fault *fault)
{
	char copy[POLICY_FILE_MAX + 1];
	size_t len = strlen(text);

	if (len > POLICY_FILE_MAX)
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
	if (strcmp(name, POLICY_SLICE_FILE) != 0 || text[0] != '\0')
		return 0;
	return fault_set(fault, -EINVAL,
			 "%s is empty: write what it is to say, or remove it; rewrite a file by "
			 "renaming another, which is whole, over it",
			 file);
}

/* Reads the file whole into text, of POLICY_FILE_MAX + 1 bytes. Never returns -ENOENT. */
static int read_text(const char *file, char *text, struct fault *fault)
{
	int fd = sys_open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	long len = fd;

	if (fd >= 0) {
		len = sys_read(fd, text, POLICY_FILE_MAX + 1);
		sys_close(fd);
	}
	if (len < 0)
		return fault_set(fault, len == -ENOENT ? -EIO : (int)len,
				 "%s cannot be read (%s): a policy is read whole or not at all",
				 file, strerror((int)-len));
	if (len > POLICY_FILE_MAX)
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
	static char file[POLICY_PATH_MAX],
		text[POLICY_FILE_MAX + 1]; /* too much for a small thread's stack */
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

/* A fault that read_entry has set stays; for a directory that cannot be listed, it is set here. */
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

int policy_find(const struct policy *policy, const char *uuid)
{
	for (unsigned i = 0; i < policy->device_count; i++)
		if (strcmp(policy->device[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}
