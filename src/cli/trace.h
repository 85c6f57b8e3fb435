/* vgpu trace: what it found in the traces of a slice's processes (trace/trace_file.h). */
#pragma once

#include <stdint.h>

#include "trace_file.h"

/* One entry, and whose. */
struct trace_line {
	unsigned slot;
	int pid;                   /* in its own pid namespace */
	uint64_t number;           /* of the process's entries, from 0 */
	uint64_t unix_ns;          /* when, CLOCK_REALTIME */
	struct trace_entry entry;  /* .kind is not 0, and may be one that this vgpu does not know */
	char call[TRACE_CALL_LEN]; /* the driver's function, or empty */
};

/* A process that has a trace. */
struct trace_process {
	unsigned slot;
	int pid;
	uint64_t begun;    /* with these three, it is told from others */
	uint64_t seen;     /* entries below that number have been read, or are gone */
	uint64_t lost;     /* of those, so many were written over before they were read */
	uint64_t reported; /* of those, so many have been reported */
	uint64_t stuck;    /* 1 + the number of one that was not whole at the last look, 0: none */
};

struct trace {
	unsigned process_count, line_count;
	struct trace_process *process;
	struct trace_line *line; /* in the order of time */
};

/* What the entry's kind is called, and its figures; NULL: there is none, or it is not known. */
struct trace_words {
	const char *name, *a, *b, *c, *text;
};
struct trace_words trace_words_of(const struct trace_entry *entry);

/* The names of what an entry has, or NULL where it has none, or one that is not known. */
const char *trace_subject_word(const struct trace_entry *entry);
const char *trace_reason_word(const struct trace_entry *entry);
const char *trace_class_word(const struct trace_entry *entry);

/* As one document, or as one line for each entry: 0, or what to exit with after a line on stderr.
 * vgpu-trace(1) promises the names. */
int trace_print_json(const struct trace *trace);
int trace_print_json_lines(const struct trace *trace);
