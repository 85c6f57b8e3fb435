/*
 * The screen, from above: a line of sums, the GPUs, the slices' table, which scrolls, and a line of
 * keys if there is space. Text beyond the right edge is cut. As the window gets narrower, parts of
 * the table are left out one by one (struct layout). Bars are of ASCII, which any terminal has.
 * Histories are of U+2581 to U+2588 if the locale is UTF-8.
 */
#include "top_draw.h"

#include <limits.h>
#include <ncurses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "escape.h"
#include "ps.h"
#include "size.h"
#include "slice.h"
#include "table.h"
#include "top.h"

#define NEARLY_FULL_PCT 95
#define PRETTY_FULL_PCT 80
#define CORES_WIDTH     12 /* "100/30-100 %" */
#define WAITS_WIDTH     11 /* "100 % turns" */

enum pair { PAIR_YELLOW = 1, PAIR_RED, PAIR_GREEN };

/* The first column and the width of each part of the table; width 0: left out. */
struct layout {
	int name, gpu, gpu_at, memory_bar, memory_bar_at, memory_at, cores_bar, cores_bar_at,
		cores_at, waits, waits_at, history, history_at, state_at;
};

struct drawing {
	struct top *top;
	const struct top_screen *screen;
	struct layout layout;
	int first, end; /* lines of the screen that scroll: [first, end) */
	unsigned line;  /* number of the table's next line */
};

/* -- pieces ------------------------------------------------------------------------------------ */

static attr_t colour_of(const struct top_screen *screen, enum pair pair)
{
	return screen->colour ? (attr_t)COLOR_PAIR(pair) : A_BOLD;
}

static attr_t colour_of_full(const struct top_screen *screen, int pct)
{
	return pct >= NEARLY_FULL_PCT   ? colour_of(screen, PAIR_RED)
	       : pct >= PRETTY_FULL_PCT ? colour_of(screen, PAIR_YELLOW)
	       : screen->colour         ? (attr_t)COLOR_PAIR(PAIR_GREEN)
					: A_NORMAL;
}

/* Prints at most `width` columns of the text, and nothing past the screen's edge. */
__attribute__((format(printf, 5, 6))) static void put(int y, int x, int width, attr_t attributes,
						      const char *format, ...)
{
	char text[512], shown[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (x >= COLS || width <= 0)
		return;
	escape(text, shown, sizeof(shown));
	shown[table_fitting(shown, (size_t)(width < COLS - x ? width : COLS - x))] = '\0';
	attrset((int)attributes);
	mvaddstr(y, x, shown);
	attrset(A_NORMAL);
}

/* "[||||    ]", width columns in all. */
static void put_bar(int y, int x, int width, int pct, attr_t attributes)
{
	char bar[256];
	int inside = width - 2, full;

	if (inside < 1 || inside >= (int)sizeof(bar))
		return;
	full = pct <= 0 ? 0 : pct >= 100 ? inside : (pct * inside + 50) / 100;
	memset(bar, '|', (size_t)full);
	memset(bar + full, ' ', (size_t)(inside - full));
	bar[inside] = '\0';
	put(y, x, 1, A_NORMAL, "[");
	put(y, x + 1, inside, attributes, "%s", bar);
	put(y, x + 1 + inside, 1, A_NORMAL, "]");
}

static int pct_of(uint64_t part, uint64_t whole)
{
	double pct = whole ? (double)part * 100 / (double)whole : 0;

	return pct < 999 ? (int)pct : 999;
}

static char *pair_of_sizes(uint64_t part, uint64_t whole, char *buf, size_t len)
{
	char left[32], right[32];

	size_format(part, left, sizeof(left));
	if (whole)
		snprintf(buf, len, "%s/%s", left, size_format(whole, right, sizeof(right)));
	else
		snprintf(buf, len, "%s", left);
	return buf;
}

/* -- GPUs -------------------------------------------------------------------------------------- */

static void draw_gpu(const struct drawing *drawing, int y, const struct usage_gpu *gpu)
{
	int bar = COLS >= 60 ? (COLS - 44) / 3 : 0, x = 8, full;
	char sizes[80];

	bar = bar > 30 ? 30 : bar < 5 ? 0 : bar;
	put(y, 0, 7, A_BOLD, "GPU %u", gpu->index);
	full = pct_of(gpu->used_bytes, gpu->total_bytes);
	put_bar(y, x, bar, full, colour_of_full(drawing->screen, full));
	x += bar ? bar + 1 : 0;
	put(y, x, 23, A_NORMAL, "%s",
	    pair_of_sizes(gpu->used_bytes, gpu->total_bytes, sizes, sizeof(sizes)));
	x += 24;
	if (gpu->busy_pct >= 0) {
		put_bar(y, x, bar, gpu->busy_pct,
			drawing->screen->colour ? (attr_t)COLOR_PAIR(PAIR_GREEN) : A_NORMAL);
		put(y, x + (bar ? bar + 1 : 0), 5, A_NORMAL, "%3d %%", gpu->busy_pct);
	}
	x += (bar ? bar + 1 : 0) + 7;
	put(y, x, COLS, A_NORMAL, "%s", gpu->name);
}

static bool is_shown(const struct top *top, int gpu)
{
	if (top->all || !*top->looker.name)
		return true;
	for (unsigned i = 0; i < top->now.count; i++)
		for (unsigned d = 0; d < top->now.slice[i].device_count; d++)
			if (top->now.slice[i].device[d].gpu == gpu)
				return true;
	return false;
}

/* Prints notes that concern all slices of the GPU. Returns the next line. */
static int draw_notes(const struct drawing *drawing, int y, const struct usage_gpu *gpu, int end)
{
	const struct overview *now = &drawing->top->now;
	attr_t attributes = colour_of(drawing->screen, PAIR_YELLOW);
	char word[256];

	if (y < end && *ps_assured_word(now, gpu, word, sizeof(word)))
		put(y++, 0, COLS, attributes, "%s", word);
	if (y < end && *ps_pressure_word(now, gpu, word, sizeof(word)))
		put(y++, 0, COLS, attributes, "%s", word);
	return y;
}

/* Draws the GPUs on at most a third of the screen. Returns the next line. */
static int draw_gpus(const struct drawing *drawing, int y)
{
	const struct top *top = drawing->top;
	int end = y + (LINES > 9 ? LINES / 3 : 1);

	for (unsigned i = 0; i < top->now.usage.gpu_count && y < end; i++)
		if (is_shown(top, (int)i))
			draw_gpu(drawing, y++, &top->now.usage.gpu[i]);
	for (unsigned i = 0; i < top->now.usage.gpu_count; i++)
		y = draw_notes(drawing, y, &top->now.usage.gpu[i], end);
	if (!top->looker.usage)
		put(y++, 0, COLS, A_NORMAL, "%s", top->looker.no_usage.text);
	return y;
}

/* -- the order --------------------------------------------------------------------------------- */

struct place {
	const struct overview_slice *slice;
	double key; /* sorted from high to low */
};

static double key_of(const struct overview_slice *slice, enum top_sort sort)
{
	double key = sort == TOP_BY_PID ? -1e10 : -1;

	for (unsigned d = 0; sort == TOP_BY_MEMORY && d < slice->device_count; d++)
		key += (double)slice->device[d].seen.used_bytes;
	for (unsigned d = 0; sort == TOP_BY_CORES && d < slice->device_count; d++)
		if (slice->device[d].cores_used_pct > (int)key)
			key = slice->device[d].cores_used_pct;
	for (unsigned p = 0; sort == TOP_BY_PID && p < slice->process_count; p++) {
		const struct overview_process *process = &slice->process[p];
		double pid = process->here ? process->here : process->seen.pid;

		if (-pid > key)
			key = -pid;
	}
	return key;
}

static int by_key(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->key != b->key)
		return a->key > b->key ? -1 : 1;
	return a->slice < b->slice ? -1 : a->slice > b->slice; /* by name */
}

/* The slices in order; NULL without memory. */
static struct place *sort_slices(const struct top *top)
{
	struct place *places = calloc(top->now.count + 1, sizeof(*places));

	for (unsigned i = 0; places && i < top->now.count; i++)
		places[i] = (struct place){
			&top->now.slice[i],
			top->sort == TOP_BY_NAME ? 0 : key_of(&top->now.slice[i], top->sort)};
	if (places)
		qsort(places, top->now.count, sizeof(*places), by_key);
	return places;
}

/* -- the table --------------------------------------------------------------------------------- */

/* Each part takes its width and a blank. Bars and histories divide the rest in thirds. */
static struct layout lay_out(int width)
{
	enum { GPU = 4, MEMORY = 20, CORES = CORES_WIDTH, NAME_LEAST = 16, NAME_MOST = 40 };
	struct layout at = {.name = width / 5};
	int left, x, state = width < 100 ? 16 : 18;

	at.name = at.name < NAME_LEAST ? NAME_LEAST : at.name > NAME_MOST ? NAME_MOST : at.name;
	left = width - at.name - 1 - (GPU + 1) - (MEMORY + 1) - (CORES + 1) - state;
	at.waits = left >= WAITS_WIDTH + 1 ? WAITS_WIDTH : 0;
	left -= at.waits ? at.waits + 1 : 0;
	at.memory_bar = left >= 24 ? left / 3 - 1 : left >= 8 ? left - 1 : 0;
	at.cores_bar = left >= 24 ? left / 3 - 1 : 0;
	at.history = left >= 24 ? left / 3 - 1 : 0;
	at.history = at.history > TOP_HISTORY ? TOP_HISTORY : at.history;
	x = at.name + 1;
	at.gpu = GPU;
	at.gpu_at = x;
	x += GPU + 1;
	at.memory_bar_at = x;
	x += at.memory_bar ? at.memory_bar + 1 : 0;
	at.memory_at = x;
	x += MEMORY + 1;
	at.cores_bar_at = x;
	x += at.cores_bar ? at.cores_bar + 1 : 0;
	at.cores_at = x;
	x += CORES + 1;
	at.waits_at = x;
	x += at.waits ? at.waits + 1 : 0;
	at.history_at = x;
	x += at.history ? at.history + 1 : 0;
	at.state_at = x;
	return at;
}

static void draw_titles(const struct drawing *drawing, int y)
{
	const struct layout *at = &drawing->layout;

	attrset(A_REVERSE);
	mvhline(y, 0, (chtype)' ' | A_REVERSE, COLS);
	attrset(A_NORMAL);
	put(y, 0, at->name, A_REVERSE, "SLICE");
	put(y, at->gpu_at, at->gpu, A_REVERSE, "GPU");
	put(y, at->memory_bar_at, 6, A_REVERSE, "MEMORY");
	put(y, at->cores_bar_at, 5, A_REVERSE, "CORES");
	put(y, at->waits_at, at->waits, A_REVERSE, "WAITS");
	if (at->history)
		put(y, at->history_at, at->history, A_REVERSE, "HISTORY");
	put(y, at->state_at, 5, A_REVERSE, "STATE");
}

/* The screen's line for the next line of the table; -1: it is off the screen. */
static int next_line(struct drawing *drawing)
{
	unsigned line = drawing->line++;
	int y;

	if (line < drawing->top->scroll)
		return -1;
	y = drawing->first + (int)(line - drawing->top->scroll);
	return y < drawing->end ? y : -1;
}

/* The most that the slice may take, percent. */
static unsigned cores_most(const struct overview_slice *slice, const struct overview_device *device)
{
	const struct sight_device *seen = &device->seen;

	if (!seen->cores_pct || slice->lifted)
		return 100;
	return slice_cores_most(seen->cores_pct, seen->cores_most_pct);
}

static void draw_history(const struct drawing *drawing, int y, const struct overview_slice *slice,
			 const struct overview_device *device)
{
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char *const ascii[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
	const struct top_history *history = top_find_history(drawing->top, slice, device);
	int width = drawing->layout.history, most;

	if (!history || width == 0)
		return;
	most = (int)cores_most(slice, device);
	for (int i = 0; i < width && drawing->layout.history_at + i < COLS; i++) {
		int pct = history->pct[TOP_HISTORY - width + i], level;

		if (pct < 0)
			continue;
		level = pct >= most ? 7 : pct * 8 / most;
		mvaddstr(y, drawing->layout.history_at + i,
			 drawing->screen->utf8 ? blocks[level] : ascii[level]);
	}
}

static void draw_name(const struct drawing *drawing, int y, const struct overview_slice *slice,
		      int width)
{
	char plain[PATH_MAX], name[PATH_MAX], state[128], user[80];
	bool many = drawing->top->now.many_users;

	snprintf(plain, sizeof(plain), "%s%s%s",
		 many ? slices_user(slice->one, user, sizeof(user)) : "", many ? "/" : "",
		 slice->one->name);
	escape(plain, name, sizeof(name));
	table_cut(name, (size_t)width, true);
	put(y, 0, width, A_BOLD, "%s", name);
	put(y, drawing->layout.state_at, COLS,
	    ps_needs_eyes(slice) ? colour_of(drawing->screen, PAIR_YELLOW) : A_NORMAL, "%s",
	    ps_state_word(slice, state, sizeof(state)));
}

static void draw_device(struct drawing *drawing, const struct overview_slice *slice,
			const struct overview_device *device)
{
	const struct layout *at = &drawing->layout;
	int y = next_line(drawing), full = ps_full_pct(device);
	unsigned cores = cores_most(slice, device);
	char word[80];

	if (y < 0)
		return;
	draw_name(drawing, y, slice, at->name);
	put(y, at->gpu_at, at->gpu, A_NORMAL, "%s",
	    ps_gpu_word(&drawing->top->now, device, word, sizeof(word)));
	if (full >= 0)
		put_bar(y, at->memory_bar_at, at->memory_bar, full,
			colour_of_full(drawing->screen, full));
	put(y, at->memory_at, 20, A_NORMAL, "%s",
	    pair_of_sizes(device->seen.used_bytes, device->seen.limit_bytes, word, sizeof(word)));
	if (device->counter != OVERVIEW_NOBODY)
		put_bar(y, at->cores_bar_at, at->cores_bar,
			device->cores_used_pct * 100 / (int)cores,
			drawing->screen->colour ? (attr_t)COLOR_PAIR(PAIR_GREEN) : A_NORMAL);
	put(y, at->cores_at, CORES_WIDTH, A_NORMAL, "%s",
	    ps_cores_word(slice, device, word, sizeof(word)));
	put(y, at->waits_at, at->waits, A_NORMAL, "%s", ps_waits_word(device, word, sizeof(word)));
	draw_history(drawing, y, slice, device);
}

static void draw_process(struct drawing *drawing, const struct overview_slice *slice,
			 const struct overview_process *process, unsigned d)
{
	const struct layout *at = &drawing->layout;
	char word[OVERVIEW_COMMAND_LEN + 32];
	int y = next_line(drawing);

	if (y < 0)
		return;
	ps_process_word(process, word, sizeof(word));
	table_cut(word, (size_t)at->name - 2, false);
	put(y, 2, at->name - 2, A_NORMAL, "%s", word);
	if (d < slice->device_count) {
		put(y, at->gpu_at, at->gpu, A_NORMAL, "%s",
		    ps_gpu_word(&drawing->top->now, &slice->device[d], word, sizeof(word)));
		put(y, at->memory_at, 20, A_NORMAL, "%s",
		    size_format(process->seen.held[d].total, word, sizeof(word)));
	}
	put(y, at->state_at, COLS, A_NORMAL, "%s", ps_process_state(process));
}

static void draw_processes(struct drawing *drawing, const struct overview_slice *slice)
{
	for (unsigned p = 0; p < slice->process_count; p++) {
		bool drawn = false;

		for (unsigned d = 0; d < slice->device_count; d++)
			if (sight_holds(&slice->process[p].seen, d)) {
				draw_process(drawing, slice, &slice->process[p], d);
				drawn = true;
			}
		if (!drawn)
			draw_process(drawing, slice, &slice->process[p], slice->device_count);
	}
}

/* A line for each container of Kubernetes that uses the slice, where that is known. */
static void draw_pods(struct drawing *drawing, const struct overview_slice *slice)
{
	const struct pod_users *pods = slice->one->pods;
	char line[POD_LINE_LEN];

	for (unsigned i = 0; pods && i < pods->count; i++) {
		int y = next_line(drawing);

		if (y >= 0)
			put(y, 2, COLS, A_NORMAL, "pod %s", pod_line(&pods->user[i], line));
	}
}

static void draw_slice(struct drawing *drawing, const struct overview_slice *slice)
{
	for (unsigned d = 0; d < slice->device_count; d++)
		draw_device(drawing, slice, &slice->device[d]);
	if (slice->device_count == 0) {
		int y = next_line(drawing), x = drawing->layout.gpu_at;

		if (y >= 0)
			draw_name(drawing, y, slice, drawing->layout.name);
		if (y >= 0 && slice->why) {
			move(y, x < COLS ? x : COLS - 1);
			clrtoeol();
			put(y, x, COLS, colour_of(drawing->screen, PAIR_RED), "%s", slice->why);
		}
	}
	draw_pods(drawing, slice);
	if (!drawing->top->folded)
		draw_processes(drawing, slice);
}

static void draw_stranger(struct drawing *drawing, const struct overview_stranger *stranger)
{
	const struct layout *at = &drawing->layout;
	char word[OVERVIEW_COMMAND_LEN + 32];
	int y = next_line(drawing);

	if (y < 0)
		return;
	snprintf(word, sizeof(word), "%u %s", stranger->seen.pid,
		 ps_command_word(stranger->command));
	table_cut(word, (size_t)at->name - 2, false);
	put(y, 2, at->name - 2, A_NORMAL, "%s", word);
	put(y, at->gpu_at, at->gpu, A_NORMAL, "%u",
	    drawing->top->now.usage.gpu[stranger->gpu].index);
	if (stranger->seen.bytes != USAGE_UNKNOWN_BYTES)
		put(y, at->memory_at, 20, A_NORMAL, "%s",
		    size_format(stranger->seen.bytes, word, sizeof(word)));
	if (stranger->seen.busy_pct >= 0)
		put(y, at->cores_at, CORES_WIDTH, A_NORMAL, "~%d %%", stranger->seen.busy_pct);
	put(y, at->state_at, COLS, colour_of(drawing->screen, PAIR_YELLOW), "in no slice");
}

static void draw_table(struct drawing *drawing)
{
	const struct overview *now = &drawing->top->now;
	struct place *places = sort_slices(drawing->top);

	drawing->line = 0;
	for (unsigned i = 0; i < now->count; i++)
		draw_slice(drawing, places ? places[i].slice : &now->slice[i]);
	for (unsigned i = 0; drawing->top->all && i < now->stranger_count; i++)
		draw_stranger(drawing, &now->stranger[i]);
	free(places);
}

/* -- the whole screen -------------------------------------------------------------------------- */

static void draw_sums(const struct top *top)
{
	unsigned living = 0, odd = 0;
	char clock[16] = "";
	time_t now = time(NULL);
	struct tm local;

	for (unsigned i = 0; i < top->now.count; i++) {
		living += top->now.slice[i].running + top->now.slice[i].paused_count;
		odd += ps_needs_eyes(&top->now.slice[i]);
	}
	if (localtime_r(&now, &local))
		strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	if (*top->trouble.text)
		put(0, 0, COLS, A_BOLD, "vgpu top  %s  %s", clock, top->trouble.text);
	else
		put(0, 0, COLS, A_BOLD,
		    "vgpu top  %s  slices: %u, processes: %u, to look after: %u", clock,
		    top->now.count, living, odd);
}

static void draw_help(int y)
{
	static const char *const lines[] = {
		"m           sort by the memory that slices hold",
		"c           by the GPU time that they take",
		"n           by their names",
		"p           by their processes' pids",
		"f           fold processes away, or show them",
		"up, down    scroll; also k and j, PgUp and PgDn, Home and End",
		"space       look now",
		"h, ?        this, and back",
		"q           end",
		"",
		"CORES is what a slice takes of a GPU's time, and may take; ~ is by NVML.",
		"WAITS is how long it was held back: by its own limit, or for turns of others.",
		"HISTORY is that again, of its limit.",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && y < LINES; i++)
		put(y++, 2, COLS, A_NORMAL, "%s", lines[i]);
}

static void draw_keys(const struct top *top)
{
	static const char *const sorts[] = {"name", "memory", "cores", "pid"};

	put(LINES - 1, 0, COLS - 1, A_DIM, "h help  q end  m c n p sort (by %s)  f %s processes",
	    sorts[top->sort], top->folded ? "show" : "fold");
}

/* Draws the table, and once more if it was scrolled too far. */
static void draw_scrolled(struct drawing *drawing)
{
	unsigned room = (unsigned)(drawing->end - drawing->first), most;

	draw_table(drawing);
	most = drawing->line > room ? drawing->line - room : 0;
	if (drawing->top->scroll <= most)
		return;
	drawing->top->scroll = most;
	move(drawing->first, 0);
	clrtobot();
	draw_table(drawing);
}

void top_draw(struct top *top, const struct top_screen *screen)
{
	struct drawing drawing = {.top = top, .screen = screen, .layout = lay_out(COLS)};
	int y = 1;

	erase();
	draw_sums(top);
	if (LINES > 4)
		y = draw_gpus(&drawing, y);
	if (LINES > 12)
		y++;
	if (top->help) {
		draw_help(y);
		return;
	}
	if (y < LINES)
		draw_titles(&drawing, y++);
	drawing.first = y;
	drawing.end = LINES > 12 ? LINES - 1 : LINES;
	if (drawing.first < drawing.end)
		draw_scrolled(&drawing);
	if (LINES > 12)
		draw_keys(top);
}
