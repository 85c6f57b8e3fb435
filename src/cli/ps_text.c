/* A look at the machine as tables: GPUs, and then slices with their processes. */
#include <stdio.h>
#include <string.h>

#include "ps.h"
#include "size.h"
#include "table.h"

#define NEARLY_FULL_PCT 95
#define PRETTY_FULL_PCT 80

static enum table_colour colour_of_full(int pct)
{
	return pct >= NEARLY_FULL_PCT   ? TABLE_RED
	       : pct >= PRETTY_FULL_PCT ? TABLE_YELLOW
					: TABLE_PLAIN;
}

static void set_size(struct table_cell *cell, uint64_t bytes)
{
	char text[32];

	table_set(cell, TABLE_PLAIN, "%s", size_format(bytes, text, sizeof(text)));
}

/* -- GPUs -------------------------------------------------------------------------------------- */

enum { GPU_INDEX, GPU_NAME, GPU_UUID, GPU_MEMORY, GPU_TOTAL, GPU_FULL, GPU_BUSY, GPU_COLUMNS };

static const struct table_column gpu_columns[] = {
	[GPU_INDEX] = {"GPU", true},   [GPU_NAME] = {"NAME", false},
	[GPU_UUID] = {"UUID", false},  [GPU_MEMORY] = {"MEMORY", true},
	[GPU_TOTAL] = {"TOTAL", true}, [GPU_FULL] = {"FULL", true},
	[GPU_BUSY] = {"BUSY", true},
};

static void add_gpu(struct table *table, const struct usage_gpu *gpu)
{
	struct table_cell *cell = table_add(table)->cell;
	int pct = gpu->total_bytes ? (int)((double)gpu->used_bytes * 100 / (double)gpu->total_bytes)
				   : -1;

	table_set(&cell[GPU_INDEX], TABLE_PLAIN, "%u", gpu->index);
	table_set(&cell[GPU_NAME], TABLE_PLAIN, "%s", gpu->name);
	table_set(&cell[GPU_UUID], TABLE_PLAIN, "%s", gpu->uuid);
	if (pct >= 0) {
		set_size(&cell[GPU_MEMORY], gpu->used_bytes);
		set_size(&cell[GPU_TOTAL], gpu->total_bytes);
		table_set(&cell[GPU_FULL], colour_of_full(pct), "%d %%", pct);
	}
	if (gpu->busy_pct >= 0)
		table_set(&cell[GPU_BUSY], TABLE_PLAIN, "%d %%", gpu->busy_pct);
	else
		table_set(&cell[GPU_BUSY], TABLE_PLAIN, "-");
}

static bool is_used(const struct overview *overview, int gpu)
{
	for (unsigned i = 0; i < overview->count; i++)
		for (unsigned d = 0; d < overview->slice[i].device_count; d++)
			if (overview->slice[i].device[d].gpu == gpu)
				return true;
	return false;
}

static void print_gpus(const struct overview *overview, bool all, const struct table_paper *paper)
{
	struct table table = {
		.column = gpu_columns, .column_count = GPU_COLUMNS, .flexible = GPU_NAME};

	for (unsigned i = 0; i < overview->usage.gpu_count; i++)
		if (all || is_used(overview, (int)i))
			add_gpu(&table, &overview->usage.gpu[i]);
	if (table.row_count > 0) {
		table_print(&table, paper);
		putchar('\n');
	}
	table_free(&table);
}

/* -- slices ------------------------------------------------------------------------------------ */

enum { WHO, USER, GPU, MEMORY, LIMIT, FULL, CONTEXT, MODULE, DATA, CORES, WAITS, STATE, COLUMNS };

static const struct table_column columns[] = {
	[WHO] = {"SLICE", false},      [USER] = {"USER", false},    [GPU] = {"GPU", true},
	[MEMORY] = {"MEMORY", true},   [LIMIT] = {"LIMIT", true},   [FULL] = {"FULL", true},
	[CONTEXT] = {"CONTEXT", true}, [MODULE] = {"MODULE", true}, [DATA] = {"DATA", true},
	[CORES] = {"CORES", true},     [WAITS] = {"WAITS", true},   [STATE] = {"STATE", false},
};

static void set_held(struct table_cell cell[COLUMNS], const struct sight_held *held)
{
	set_size(&cell[CONTEXT], held->context);
	set_size(&cell[MODULE], held->module);
	set_size(&cell[DATA], held->data);
}

static struct table_row *add_name(struct table *table, const struct overview_slice *slice)
{
	struct table_row *row = table_add(table);
	char user[64];

	row->is_name = true;
	table_set(&row->cell[WHO], TABLE_BOLD, "%s", slice->one->name);
	table_set(&row->cell[USER], TABLE_PLAIN, "%s", slices_user(slice->one, user, sizeof(user)));
	return row;
}

/* The name, and the slice's state. */
static struct table_cell *add_name_and_state(struct table *table,
					     const struct overview_slice *slice)
{
	struct table_row *row = add_name(table, slice);
	char state[128];

	table_set(&row->cell[STATE], ps_needs_eyes(slice) ? TABLE_YELLOW : TABLE_PLAIN, "%s",
		  ps_state_word(slice, state, sizeof(state)));
	return row->cell;
}

static void add_device(struct table *table, const struct overview *overview,
		       const struct overview_slice *slice, const struct overview_device *device)
{
	struct table_cell *cell = add_name_and_state(table, slice);
	int full = ps_full_pct(device);
	char word[32];

	table_set(&cell[GPU], TABLE_PLAIN, "%s", ps_gpu_word(overview, device, word, sizeof(word)));
	set_size(&cell[MEMORY], device->seen.used_bytes);
	if (full < 0) {
		table_set(&cell[LIMIT], TABLE_PLAIN, "none");
	} else {
		set_size(&cell[LIMIT], device->seen.limit_bytes);
		table_set(&cell[FULL], colour_of_full(full), "%d %%", full);
	}
	set_held(cell, &device->held);
	table_set(&cell[CORES], TABLE_PLAIN, "%s",
		  ps_cores_word(slice, device, word, sizeof(word)));
	table_set(&cell[WAITS], TABLE_PLAIN, "%s", ps_waits_word(device, word, sizeof(word)));
}

static void add_process(struct table *table, const struct overview *overview,
			const struct overview_slice *slice, const struct overview_process *process,
			unsigned d)
{
	struct table_cell *cell = table_add(table)->cell;
	char word[OVERVIEW_COMMAND_LEN + 32];

	table_set(&cell[WHO], TABLE_PLAIN, "  %s", ps_process_word(process, word, sizeof(word)));
	if (d < slice->device_count) {
		table_set(&cell[GPU], TABLE_PLAIN, "%s",
			  ps_gpu_word(overview, &slice->device[d], word, sizeof(word)));
		set_size(&cell[MEMORY], process->seen.held[d].total);
		set_held(cell, &process->seen.held[d]);
	}
	table_set(&cell[STATE],
		  strcmp(process->seen.state, "running") == 0 ? TABLE_PLAIN : TABLE_YELLOW, "%s",
		  ps_process_state(process));
}

/* A line for each container of Kubernetes that uses it, where that is known. */
static void add_pods(struct table *table, const struct overview_slice *slice)
{
	const struct pod_users *pods = slice->one->pods;
	char line[POD_LINE_LEN];

	for (unsigned i = 0; pods && i < pods->count; i++) {
		struct table_row *row = table_add(table);

		row->is_name = true;
		table_set(&row->cell[WHO], TABLE_PLAIN, "  pod %s", pod_line(&pods->user[i], line));
	}
}

/* A line for each GPU that it has something of; one without figures, if that is none. */
static void add_processes(struct table *table, const struct overview *overview,
			  const struct overview_slice *slice)
{
	for (unsigned p = 0; p < slice->process_count; p++) {
		const struct overview_process *process = &slice->process[p];
		bool added = false;

		for (unsigned d = 0; d < slice->device_count; d++)
			if (sight_holds(&process->seen, d)) {
				add_process(table, overview, slice, process, d);
				added = true;
			}
		if (!added)
			add_process(table, overview, slice, process, slice->device_count);
	}
}

static void add_unreadable(struct table *table, const struct overview_slice *slice)
{
	struct table_row *row = add_name(table, slice);

	row->is_text = true;
	table_set(&row->cell[GPU], TABLE_RED, "%s", slice->why);
}

static void add_slice(struct table *table, const struct overview *overview,
		      const struct overview_slice *slice)
{
	if (slice->state == OVERVIEW_UNREADABLE) {
		add_unreadable(table, slice);
		add_pods(table, slice);
		return;
	}
	for (unsigned d = 0; d < slice->device_count; d++)
		add_device(table, overview, slice, &slice->device[d]);
	if (slice->device_count == 0)
		add_name_and_state(table, slice);
	add_pods(table, slice);
	add_processes(table, overview, slice);
}

/* -- who is in none ---------------------------------------------------------------------------- */

static void add_stranger(struct table *table, const struct overview *overview,
			 const struct overview_stranger *stranger)
{
	struct table_cell *cell = table_add(table)->cell;

	table_set(&cell[WHO], TABLE_PLAIN, "  %u %s", stranger->seen.pid,
		  ps_command_word(stranger->command));
	table_set(&cell[GPU], TABLE_PLAIN, "%u", overview->usage.gpu[stranger->gpu].index);
	if (stranger->seen.bytes != USAGE_UNKNOWN_BYTES)
		set_size(&cell[MEMORY], stranger->seen.bytes);
	else
		table_set(&cell[MEMORY], TABLE_PLAIN, "-");
	if (stranger->seen.busy_pct >= 0)
		table_set(&cell[CORES], TABLE_PLAIN, "~%d %%", stranger->seen.busy_pct);
	table_set(&cell[STATE], TABLE_YELLOW, "in no slice");
}

static void add_strangers(struct table *table, const struct overview *overview)
{
	if (overview->stranger_count > 0)
		table_set(&table_add(table)->cell[WHO], TABLE_BOLD, "(in no slice)");
	for (unsigned i = 0; i < overview->stranger_count; i++)
		add_stranger(table, overview, &overview->stranger[i]);
}

/* -- what concerns all slices of a GPU ----------------------------------------------------------
 */

static void print_note(const char *word, bool *printed)
{
	if (!*word)
		return;
	printf("%s%s\n", *printed ? "" : "\n", word);
	*printed = true;
}

static void print_notes(const struct overview *overview)
{
	bool printed = false;
	char word[256];

	for (unsigned i = 0; i < overview->usage.gpu_count; i++) {
		const struct usage_gpu *gpu = &overview->usage.gpu[i];

		print_note(ps_assured_word(overview, gpu, word, sizeof(word)), &printed);
		print_note(ps_pressure_word(overview, gpu, word, sizeof(word)), &printed);
	}
}

void ps_print_text(const struct overview *overview, bool all, const struct table_paper *paper)
{
	struct table table = {
		.column = columns,
		.column_count = COLUMNS,
		.flexible = WHO,
		.hidden = (overview->many_users ? 0 : 1u << USER) |
			  (ps_has_waits(overview) ? 0 : 1u << WAITS),
	};

	print_gpus(overview, all, paper);
	for (unsigned i = 0; i < overview->count; i++)
		add_slice(&table, overview, &overview->slice[i]);
	if (all)
		add_strangers(&table, overview);
	if (overview->count == 0)
		puts("no slice is here");
	if (table.row_count > 0)
		table_print(&table, paper);
	table_free(&table);
	print_notes(overview);
}
