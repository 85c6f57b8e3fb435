/*
 * vgpu trace: prints what a slice's processes decided and saw, in the order of time.
 *
 * The processes of the slice own the trace files and may truncate them, so the files are read,
 * not mapped. Each file is read twice, and an entry is printed if both copies are equal. A
 * process may overwrite entries before this program has read them. Such entries are counted as
 * lost.
 */
#include "trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "commands.h"
#include "given.h"
#include "region.h"
#include "size.h"
#include "slices.h"
#include "sys.h"
#include "vgpu_region.h"

#define FOLLOW_NS (200 * NS_PER_MS)

enum { FOLLOW, JSON };

static const struct cli_option options[] = {
	[FOLLOW] = {"follow", NULL, "then print new decisions as they are made, until interrupted",
		    CLI_NOTHING, 'f'},
	[JSON] = {"json", NULL,
		  "print one JSON document; with --follow, one on a line for each decision",
		  CLI_NOTHING, 'j'},
	{NULL, NULL, NULL, CLI_NOTHING, 0},
};

static const struct cli_row exits[] = {
	{"0", "the decisions are printed"},
	{"1", "no process of the slice writes a trace, or has written one"},
	{"125", "vgpu failed: there is no such slice, a trace cannot be read; or this vgpu has no "
		"--json"},
	{"2", "the command line is wrong"},
	{NULL, NULL},
};

static const struct cli_row examples[] = {
	{"VGPU_TRACE=pace,memory,region vgpu run --name train --memory 8G python train.py",
	 "a program that writes a trace"},
	{"vgpu trace --follow train", "follow the decisions of a slice live"},
	{NULL, NULL},
};

/* -- reading ----------------------------------------------------------------------------------- */

/* The state of reading. trace.line has the entries of one look; trace.process keeps what is
 * known of each process from one look to the next. */
struct reader {
	struct trace trace;
	unsigned process_room, line_room; /* allocated elements of trace.process and trace.line */
	char dir[PATH_MAX];               /* the directory of the trace files */
	char prefix[PATH_MAX];            /* the files' names, up to the number of the slot */
	struct trace_file first, second;  /* the two copies of the file that is being read */
	int64_t unix_ahead_ns;            /* CLOCK_REALTIME minus clock_steady_ns */
	bool follows;                     /* another look comes after this one */
	int error; /* negative errno of the last file that this look could not open; 0: none */
};

struct trace_words trace_words_of(const struct trace_entry *entry)
{
#define KIND(name, word, a, b, c, text) [TRACE_##name] = {word, a, b, c, text},
	static const struct trace_words words[UINT8_MAX + 1] = {
		TRACE_PACE_KINDS(KIND) TRACE_MEMORY_KINDS(KIND) TRACE_REGION_KINDS(KIND)};
#undef KIND

	return words[entry->kind];
}

const char *trace_subject_word(const struct trace_entry *entry)
{
#define SUBJECT(name, word) [TRACE_##name] = word,
	static const char *const words[TRACE_SUBJECT_COUNT] = {TRACE_SUBJECTS(SUBJECT)};
#undef SUBJECT
	unsigned subject = entry->kind / TRACE_KINDS_OF_SUBJECT;

	return subject < TRACE_SUBJECT_COUNT ? words[subject] : NULL;
}

const char *trace_reason_word(const struct trace_entry *entry)
{
#define REASON(name, word, text) [TRACE_REASON_##name] = word,
	static const char *const words[UINT8_MAX + 1] = {TRACE_REASONS(REASON)};
#undef REASON

	return words[entry->reason];
}

const char *trace_class_word(const struct trace_entry *entry)
{
	static const char *const words[UINT8_MAX + 1] = {
		[1 + REGION_CONTEXT] = "context",
		[1 + REGION_MODULE] = "module",
		[1 + REGION_DATA] = "data",
		[1 + REGION_OFFSET] = "other",
	};

	return words[entry->class];
}

static void *more_room(void *array, unsigned *room, size_t size)
{
	*room = *room ? 2 * *room : 64;
	array = reallocarray(array, *room, size);
	if (!array)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	return array;
}

/* Returns the process that wrote the file. Adds the process if no earlier look has seen it. */
static struct trace_process *process_of(struct reader *reader, const struct trace_file *file,
					unsigned slot)
{
	struct trace *trace = &reader->trace;
	struct trace_process *process;

	for (unsigned i = 0; i < trace->process_count; i++)
		if (trace->process[i].slot == slot && trace->process[i].pid == file->pid &&
		    trace->process[i].begun == file->begun)
			return &trace->process[i];
	if (trace->process_count == reader->process_room)
		trace->process =
			more_room(trace->process, &reader->process_room, sizeof(*trace->process));
	process = &trace->process[trace->process_count++];
	*process = (struct trace_process){.slot = slot, .pid = file->pid, .begun = file->begun};
	return process;
}

/* Whether both copies of the entry are equal, and are complete. */
static bool is_whole(const struct reader *reader, uint64_t number)
{
	const struct trace_entry *entry = &reader->first.entry[number % TRACE_ENTRIES];

	return entry->kind && entry->lap == (uint16_t)(number / TRACE_ENTRIES) &&
	       memcmp(entry, &reader->second.entry[number % TRACE_ENTRIES], sizeof(*entry)) == 0;
}

/* Copies the name of the driver's function with that number. A tenant can write the file, so a
 * text that cannot be the name of a function counts as no name. */
static void copy_call(const struct trace_file *file, unsigned number, char call[TRACE_CALL_LEN])
{
	const char *name = number < TRACE_CALLS ? file->call[number] : "";
	size_t len = strnlen(name, TRACE_CALL_LEN);

	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_')
			len = 0;
	if (len == TRACE_CALL_LEN)
		len = 0;
	memcpy(call, name, len);
	call[len] = '\0';
}

static void add_line(struct reader *reader, const struct trace_process *process, uint64_t number)
{
	const struct trace_entry *entry = &reader->first.entry[number % TRACE_ENTRIES];
	struct trace *trace = &reader->trace;

	if (trace->line_count == reader->line_room)
		trace->line = more_room(trace->line, &reader->line_room, sizeof(*trace->line));
	trace->line[trace->line_count++] = (struct trace_line){
		.slot = process->slot,
		.pid = process->pid,
		.number = number,
		.unix_ns = entry->at + (uint64_t)reader->unix_ahead_ns,
		.entry = *entry,
	};
	copy_call(&reader->first, entry->call, trace->line[trace->line_count - 1].call);
}

/*
 * Adds a line for each new entry of the first copy. If an entry is incomplete, its writer may
 * be writing it now, or has died or been stopped. With --follow, the next look reads such an
 * entry again, and counts it as lost if it is still incomplete.
 */
static void read_entries(struct reader *reader, struct trace_process *process)
{
	uint64_t next = reader->first.next;

	if (next < process->seen) /* a tenant damaged the header */
		return;
	if (next - process->seen > TRACE_ENTRIES) {
		process->lost += next - TRACE_ENTRIES - process->seen;
		process->seen = next - TRACE_ENTRIES;
	}
	for (; process->seen < next; process->seen++) {
		if (is_whole(reader, process->seen)) {
			add_line(reader, process, process->seen);
		} else if (reader->follows && process->stuck != process->seen + 1) {
			process->stuck = process->seen + 1;
			return;
		} else {
			process->lost++;
		}
	}
}

/* Reads one copy of the file. False: it is shorter than a trace, or not a trace of this
 * version. */
static bool read_once(int fd, struct trace_file *ret_file)
{
	return lseek(fd, 0, SEEK_SET) == 0 &&
	       sys_read(fd, ret_file, sizeof(*ret_file)) == (long)sizeof(*ret_file) &&
	       ret_file->magic == TRACE_MAGIC &&
	       ret_file->entry_size == sizeof(struct trace_entry) &&
	       ret_file->entry_count == TRACE_ENTRIES;
}

static int open_regular(const char *path)
{
	int fd = sys_open_regular(path, O_RDONLY | O_NONBLOCK);

	return fd == -ENXIO ? -EINVAL : fd;
}

static int read_file(void *arg, const char *name)
{
	struct reader *reader = arg;
	size_t len = strlen(reader->prefix);
	char path[2 * PATH_MAX];
	uint64_t slot;
	int fd;

	if (strncmp(name, reader->prefix, len) != 0 ||
	    number_parse(name + len, VGPU_SLOTS_MAX - 1, &slot) != 0)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", reader->dir, name);
	fd = open_regular(path);
	if (fd < 0) {
		if (fd != -ENOENT) /* the file was removed after it was listed */
			reader->error = fd;
		return 0;
	}
	if (read_once(fd, &reader->first) && read_once(fd, &reader->second))
		read_entries(reader, process_of(reader, &reader->first, (unsigned)slot));
	sys_close(fd);
	return 0;
}

/* Compares by time, for qsort. Slot and number make the order of equal times definite. */
static int in_time(const void *left, const void *right)
{
	const struct trace_line *a = left, *b = right;

	if (a->entry.at != b->entry.at)
		return a->entry.at < b->entry.at ? -1 : 1;
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Reads all trace files of the slice, and replaces the lines of the look before. Returns 0, or
 * a negative errno if the directory cannot be read. */
static int look(struct reader *reader)
{
	int error;

	reader->trace.line_count = 0;
	reader->error = 0;
	reader->unix_ahead_ns = (int64_t)(clock_wall_ns() - clock_steady_ns());
	error = sys_list_directory(reader->dir, read_file, reader);
	if (reader->trace.line_count)
		qsort(reader->trace.line, reader->trace.line_count, sizeof(*reader->trace.line),
		      in_time);
	return error;
}

/* -- printing ---------------------------------------------------------------------------------- */

static void print_time(int64_t value, char *buf, size_t len)
{
	double ns = (double)value, size = ns < 0 ? -ns : ns;

	if (size < 1e3)
		snprintf(buf, len, "%.0f ns", ns);
	else if (size < 1e6)
		snprintf(buf, len, "%.1f us", ns / 1e3);
	else if (size < 1e9)
		snprintf(buf, len, "%.2f ms", ns / 1e6);
	else
		snprintf(buf, len, "%.2f s", ns / 1e9);
}

static void print_bytes(int64_t value, char *buf, size_t len)
{
	if (value < 0 && len) {
		*buf++ = '-';
		len--;
	}
	size_format(value < 0 ? -(uint64_t)value : (uint64_t)value, buf, len);
}

/* The length of the name without that end; 0: the name has another end. */
static size_t stem_len(const char *name, const char *end)
{
	size_t name_len = strlen(name), end_len = strlen(end);
	bool ends_so = name_len > end_len && strcmp(name + name_len - end_len, end) == 0;

	return ends_so ? name_len - end_len : 0;
}

/*
 * Appends a figure to the text in buf. name is the figure's name in --json, and its end is the
 * unit: "level_ns" becomes "level -4.1 ms", and "used_bytes" "used 2 MiB". For the name
 * "bytes", only the amount is printed. Nothing is appended for a NULL name, or for a time of
 * -1, which is not known.
 */
static void print_figure(const char *name, int64_t value, char *buf, size_t len)
{
	size_t at = strlen(buf), time_len = name ? stem_len(name, "_ns") : 0;
	size_t bytes_len = name ? stem_len(name, "_bytes") : 0;
	bool is_bytes = bytes_len || (name && strcmp(name, "bytes") == 0);

	if (!name || (time_len && value == -1))
		return;
	at += (size_t)snprintf(buf + at, len - at, "%s", at ? ", " : "");
	if (is_bytes) {
		at += (size_t)snprintf(buf + at, len - at, "%.*s%s", (int)bytes_len, name,
				       bytes_len ? " " : "");
		print_bytes(value, buf + at, len - at);
	} else if (time_len) {
		at += (size_t)snprintf(buf + at, len - at, "%.*s ", (int)time_len, name);
		print_time(value, buf + at, len - at);
	} else {
		snprintf(buf + at, len - at, "%s %lld", name, (long long)value);
	}
}

/* Appends `before` and the word to the text in buf, unless the word is NULL or empty. */
static void print_word(const char *before, const char *word, char *buf, size_t len)
{
	size_t at = strlen(buf);

	if (word && *word)
		snprintf(buf + at, len - at, "%s%s%s", at ? ", " : "", before, word);
}

static void print_line(const struct trace_line *line)
{
	const struct trace_entry *entry = &line->entry;
	struct trace_words words = trace_words_of(entry);
	time_t seconds = (time_t)(line->unix_ns / NS_PER_S);
	char figures[256] = "", clock[16], device[8] = "-";
	struct tm local;

	print_word("", line->call, figures, sizeof(figures));
	print_word("", trace_class_word(entry), figures, sizeof(figures));
	print_figure(words.a, entry->a, figures, sizeof(figures));
	print_figure(words.b, entry->b, figures, sizeof(figures));
	print_figure(words.c, entry->c, figures, sizeof(figures));
	print_word("why: ", trace_reason_word(entry), figures, sizeof(figures));
	if (!localtime_r(&seconds, &local) || !strftime(clock, sizeof(clock), "%T", &local))
		snprintf(clock, sizeof(clock), "-");
	if (entry->device >= 0)
		snprintf(device, sizeof(device), "%d", entry->device);
	printf("%s.%06u  %7d  %7u  %6s  %s%s%s%s\n", clock,
	       (unsigned)(line->unix_ns % NS_PER_S / 1000), line->pid, entry->thread, device,
	       words.text ? words.text : "a decision that this vgpu does not know",
	       *figures ? " (" : "", figures, *figures ? ")" : "");
}

static int print(const struct trace *trace, bool json, bool follows, bool first)
{
	if (json)
		return follows ? trace_print_json_lines(trace) : trace_print_json(trace);
	if (first)
		printf("%-15s  %7s  %7s  %6s  %s\n", "time", "pid", "thread", "device", "decision");
	for (unsigned i = 0; i < trace->line_count; i++)
		print_line(&trace->line[i]);
	return cli_written(0);
}

/* -- the command ------------------------------------------------------------------------------- */

/* Finds the directory of the slice's trace files, and how their names begin. */
static int find_files(const char *name, struct reader *reader, struct fault *fault)
{
	const struct slices_one *one;
	struct slices slices = {0, NULL};
	char path[PATH_MAX] = "";
	const char *slash;
	int error = slices_list(&slices, fault);

	if (!error)
		error = slices_find(&slices, name, &one, fault);
	if (!error)
		snprintf(path, sizeof(path), "%s", one->region_path);
	slices_free(&slices);
	slash = strrchr(path, '/');
	if (error || !slash)
		return error ? error : fault_set(fault, -EINVAL, "%.300s is no path", path);
	snprintf(reader->dir, sizeof(reader->dir), "%.*s/", (int)(slash - path), path);
	snprintf(reader->prefix, sizeof(reader->prefix), "%s" TRACE_SUFFIX, slash + 1);
	return 0;
}

/* Warns of entries that were lost between two looks. Losses before the first look are no news:
 * the ring of a trace keeps the last entries only. */
static void report_lost(struct trace *trace, bool first)
{
	for (unsigned i = 0; i < trace->process_count; i++) {
		struct trace_process *process = &trace->process[i];

		if (!first && process->lost > process->reported)
			cli_fail(0,
				 "warning: %llu decisions of process %d were overwritten before "
				 "they "
				 "were read",
				 (unsigned long long)(process->lost - process->reported),
				 process->pid);
		process->reported = process->lost;
	}
}

/* Prints new entries until the directory disappears, as it does with the slice. Returns 0, the
 * exit status after a line on stderr, or a negative errno if no trace can be read. */
static int follow(struct reader *reader, bool json)
{
	int status, error;

	for (bool first = true;; first = false) {
		error = look(reader);
		if (error == -ENOENT)
			return 0;
		if (!error && !reader->trace.process_count)
			error = reader->error;
		if (error)
			return error;
		status = print(&reader->trace, json, true, first);
		report_lost(&reader->trace, first);
		if (status)
			return status;
		sys_sleep_ns(FOLLOW_NS);
	}
}

static int show(struct reader *reader, const char *name, bool json)
{
	int error = look(reader);

	if (error)
		return error;
	if (!reader->trace.process_count && reader->error)
		return reader->error;
	if (!reader->trace.process_count)
		return cli_fail(CLI_WRONG,
				"no process of the slice %s writes a trace: start one with "
				"VGPU_TRACE=pace,memory,region in its environment",
				name);
	return print(&reader->trace, json, false, true);
}

static int trace(const struct cli_line *line)
{
	static struct reader reader;
	bool json = line->value[JSON] != NULL;
	struct fault fault = {""};
	int status;

	if (line->count != 1)
		return cli_fail(CLI_USAGE, "%s: vgpu trace [OPTION...] NAME",
				line->count > 1 ? "one slice at a time" : "no slice to trace");
	if (find_files(line->argument[0], &reader, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	reader.follows = line->value[FOLLOW] != NULL;
	status = reader.follows ? follow(&reader, json) : show(&reader, line->argument[0], json);
	free(reader.trace.process);
	free(reader.trace.line);
	return status < 0 ? cli_fail(CLI_FAILED,
				     "a trace in %s cannot be read (%s): run this as its owner, or "
				     "as root",
				     reader.dir, strerror(-status))
			  : status;
}

const struct cli_command trace_command = {
	.name = "trace",
	.summary = "print what a slice's processes decide, and why",
	.arguments = "NAME",
	.about = "Prints what processes of the slice NAME decided about launches and memory, and "
		 "what they saw of the slice, with reasons and figures, in the order of time. A "
		 "process writes a trace if it was started with VGPU_TRACE in its environment, a "
		 "list of the subjects pace, memory and region. The last 4096 entries of each "
		 "process are kept, also after the process has ended.",
	.options = options,
	.environment = given_environment,
	.exits = exits,
	.examples = examples,
	.offer = CLI_SLICE,
	.run = trace,
};
