/* Prints traces as JSON. vgpu-trace(1) documents the names. Members may be added, but are never
 * renamed. */
#include "trace.h"

#include "json.h"

static void add_figure(struct json_object *to, const char *name, int64_t value)
{
	if (name)
		json_add(to, name, json_object_new_int64(value));
}

static void add_word(struct json_object *to, const char *name, const char *word)
{
	json_add(to, name, word ? json_object_new_string(word) : NULL);
}

static struct json_object *line_value(const struct trace_line *line)
{
	const struct trace_entry *entry = &line->entry;
	struct trace_words words = trace_words_of(entry);
	struct json_object *value = json_object_new_object();

	json_add_number(value, "time_ns", entry->at);
	json_add_number(value, "unix_ns", line->unix_ns);
	json_add_number(value, "slot", line->slot);
	json_add(value, "pid", json_object_new_int(line->pid));
	json_add_number(value, "thread", entry->thread);
	json_add(value, "device", entry->device < 0 ? NULL : json_object_new_int(entry->device));
	add_word(value, "subject", trace_subject_word(entry));
	add_word(value, "decision", words.name);
	if (entry->call)
		add_word(value, "call", *line->call ? line->call : NULL);
	if (entry->class)
		add_word(value, "class", trace_class_word(entry));
	if (entry->reason)
		add_word(value, "reason", trace_reason_word(entry));
	add_figure(value, words.a, entry->a);
	add_figure(value, words.b, entry->b);
	add_figure(value, words.c, entry->c);
	return value;
}

static struct json_object *processes_value(const struct trace *trace)
{
	struct json_object *processes = json_object_new_array();

	for (unsigned i = 0; i < trace->process_count; i++) {
		const struct trace_process *from = &trace->process[i];
		struct json_object *process = json_object_new_object();

		json_add_number(process, "slot", from->slot);
		json_add(process, "pid", json_object_new_int(from->pid));
		json_add_number(process, "written", from->seen);
		json_add_number(process, "lost", from->lost);
		json_object_array_add(processes, process);
	}
	return processes;
}

int trace_print_json(const struct trace *trace)
{
	struct json_object *all = json_object_new_object();
	struct json_object *decisions = json_object_new_array();

	for (unsigned i = 0; i < trace->line_count; i++)
		json_object_array_add(decisions, line_value(&trace->line[i]));
	json_add(all, "processes", processes_value(trace));
	json_add(all, "decisions", decisions);
	return json_print(all);
}

int trace_print_json_lines(const struct trace *trace)
{
	int status = 0;

	for (unsigned i = 0; !status && i < trace->line_count; i++)
		status = json_print_line(line_value(&trace->line[i]));
	return status;
}
