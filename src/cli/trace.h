/* The entries that vgpu trace found in the trace files of a slice (trace/trace_file.h). */
#pragma once

#include <stdint.h>

#include "trace_file.h"

/* One entry of a trace, with the process that wrote it. */
struct trace_line {
	unsigned slot;             /* the process's slot in the region */
	int pid;                   /* the process, in its own pid namespace */
	uint64_t number;           /* the entry's number in its process's trace, from 0 */
	uint64_t unix_ns;          /* the time of the entry, by CLOCK_REALTIME */
	struct trace_entry entry;  /* .kind is not 0, but this vgpu may not know the kind */
	char call[TRACE_CALL_LEN]; /* name of the driver's function; "": none */
};

/* A process that has a trace. slot, pid and begun together identify the process. The three
 * counts are of entries since the process began, so they never decrease. */
struct trace_process {
	unsigned slot;
	int pid;
	uint64_t begun;    /* as in the file's header */
	uint64_t seen;     /* entries with lower numbers were read or are lost */
	uint64_t lost;     /* entries that could not be read whole, most of them overwritten */
	uint64_t reported; /* lost entries that need no further warning */
	uint64_t stuck;    /* 1 + the number of an entry that the last look found incomplete;
			    * 0: none */
};

/* The result of one look at the traces of a slice. */
struct trace {
	unsigned process_count, line_count;
	struct trace_process *process;
	struct trace_line *line; /* sorted by time */
};

/* The names of an entry's kind and of its figures a, b and c, as --json prints them, and the
 * text for people. A figure that the kind lacks is NULL. All are NULL for an unknown kind. */
struct trace_words {
	const char *name, *a, *b, *c, *text;
};
struct trace_words trace_words_of(const struct trace_entry *entry);

/* The names of the entry's subject, of its reason, and of its class of memory. NULL: the entry
 * has none, or this vgpu does not know it. */
const char *trace_subject_word(const struct trace_entry *entry);
const char *trace_reason_word(const struct trace_entry *entry);
const char *trace_class_word(const struct trace_entry *entry);

/* Prints the entries on stdout: trace_print_json as one JSON document, trace_print_json_lines
 * as one JSON object on a line for each entry. vgpu-trace(1) documents the names. Returns 0, or
 * the exit status after a line on stderr. */
int trace_print_json(const struct trace *trace);
int trace_print_json_lines(const struct trace *trace);
