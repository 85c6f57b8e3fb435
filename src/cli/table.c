/* The widths of all columns are measured first; then the rows are printed. */
#include "table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "escape.h"
#include "size.h"

#define PAPER_WIDTH 112
#define LEAST_WIDTH 12 /* of the flexible column */
#define GAP         2  /* between columns; 1 if the line would be too long otherwise */

/* -- making ------------------------------------------------------------------------------------ */

struct table_row *table_add(struct table *table)
{
	struct table_row *more = realloc(table->row, (table->row_count + 1) * sizeof(*table->row));

	if (!more)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	table->row = more;
	more += table->row_count++;
	memset(more, 0, sizeof(*more));
	return more;
}

void table_set(struct table_cell *cell, enum table_colour colour, const char *format, ...)
{
	char *plain = NULL;
	va_list args;
	size_t size;
	int len;

	free(cell->text);
	va_start(args, format);
	len = vasprintf(&plain, format, args);
	va_end(args);
	size = 4 * (size_t)(len < 0 ? 0 : len) + 1; /* each byte becomes \xNN at most */
	cell->text = len < 0 ? NULL : malloc(size);
	if (!cell->text)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	escape(plain, cell->text, size);
	free(plain);
	cell->colour = colour;
}

void table_free(struct table *table)
{
	for (unsigned i = 0; i < table->row_count; i++)
		for (unsigned c = 0; c < table->column_count; c++)
			free(table->row[i].cell[c].text);
	free(table->row);
	table->row = NULL;
	table->row_count = 0;
}

/* Whether the byte continues a character of UTF-8. */
static bool goes_on(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

size_t table_length(const char *text)
{
	size_t count = 0;

	for (; *text; text++)
		count += !goes_on(*text);
	return count;
}

size_t table_fitting(const char *text, size_t width)
{
	size_t at = 0;

	for (; text[at]; at++)
		if (!goes_on(text[at]) && width-- == 0)
			break;
	return at;
}

void table_cut(char *text, size_t width, bool middle)
{
	size_t len = table_length(text), head, tail, end;

	if (len <= width)
		return;
	if (width < 3) {
		text[table_fitting(text, width)] = '\0';
		return;
	}
	tail = middle ? (width - 2) / 2 : 0;
	head = table_fitting(text, width - 2 - tail);
	end = table_fitting(text, len - tail);
	memcpy(text + head, "..", 2); /* at least three characters are left out */
	memmove(text + head + 2, text + end, strlen(text + end) + 1);
}

/* -- the width --------------------------------------------------------------------------------- */

struct table_paper table_stdout(void)
{
	struct table_paper paper = {.width = PAPER_WIDTH, .terminal = isatty(STDOUT_FILENO)};
	const char *columns = getenv("COLUMNS"), *no_colour = getenv("NO_COLOR"),
		   *terminal = getenv("TERM");
	struct winsize size;
	uint64_t number;

	if (columns && number_parse(columns, 10000, &number) == 0 && number > 0)
		paper.width = (unsigned)number;
	else if (paper.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		paper.width = size.ws_col;
	paper.colour = paper.terminal && !(no_colour && *no_colour) && terminal &&
		       strcmp(terminal, "dumb") != 0;
	return paper;
}

static void print_in_colour(const char *text, enum table_colour colour,
			    const struct table_paper *paper)
{
	static const char *const codes[] = {
		[TABLE_PLAIN] = "",         [TABLE_BOLD] = "\33[1m", [TABLE_DIM] = "\33[2m",
		[TABLE_YELLOW] = "\33[33m", [TABLE_RED] = "\33[31m",
	};

	if (paper->colour && colour != TABLE_PLAIN)
		printf("%s%s\33[0m", codes[colour], text);
	else
		fputs(text, stdout);
}

/* -- printing ---------------------------------------------------------------------------------- */

static size_t length(const struct table_cell *cell)
{
	return cell->text ? table_length(cell->text) : 0;
}

static bool is_hidden(const struct table *table, unsigned column)
{
	return table->hidden >> column & 1;
}

/* The number of the row's cells up to the last one that is not empty. */
static unsigned filled(const struct table *table, const struct table_row *row)
{
	unsigned count = table->column_count;

	while (count > 1 && !row->cell[count - 1].text)
		count--;
	return count;
}

static size_t longest(const struct table *table, unsigned column)
{
	size_t width = strlen(table->column[column].title);

	for (unsigned i = 0; i < table->row_count; i++) {
		const struct table_row *row = &table->row[i];

		if (!(row->is_text && column + 1 == filled(table, row)) &&
		    length(&row->cell[column]) > width)
			width = length(&row->cell[column]);
	}
	return width;
}

/* The least width to which the flexible column may shrink. */
static size_t least_width(const struct table *table, const struct table_paper *paper)
{
	size_t width = LEAST_WIDTH;

	for (unsigned i = 0; i < table->row_count && !paper->terminal; i++)
		if (table->row[i].is_name && length(&table->row[i].cell[table->flexible]) > width)
			width = length(&table->row[i].cell[table->flexible]);
	return width;
}

struct widths {
	size_t column[TABLE_COLUMNS_MAX], gap;
};

static struct widths measure(const struct table *table, const struct table_paper *paper)
{
	size_t sum = 0, over, least = least_width(table, paper), *flexible, gaps = 0;
	struct widths widths = {.gap = GAP};

	for (unsigned c = 0; c < table->column_count; c++) {
		if (is_hidden(table, c))
			continue;
		widths.column[c] = longest(table, c);
		sum += widths.column[c];
		gaps += c > 0;
	}
	flexible = &widths.column[table->flexible];
	if (sum - *flexible + least + GAP * gaps > paper->width)
		widths.gap = 1;
	sum += gaps * widths.gap;
	over = sum > paper->width ? sum - paper->width : 0;
	if (*flexible > least)
		*flexible = *flexible - least > over ? *flexible - over : least;
	return widths;
}

static void print_cell(const struct table *table, const struct table_row *row, unsigned c,
		       bool is_last, const struct widths *widths, const struct table_paper *paper)
{
	const struct table_cell *cell = &row->cell[c];
	size_t len = length(cell), width = widths->column[c];

	if (c > 0)
		printf("%*s", (int)widths->gap, "");
	if (table->column[c].right && len < width && !row->is_text)
		printf("%*s", (int)(width - len), "");
	if (cell->text) {
		if (c == table->flexible)
			table_cut(cell->text, width, row->is_name);
		len = length(cell);
		print_in_colour(cell->text, cell->colour, paper);
	}
	if (!table->column[c].right && len < width && !is_last)
		printf("%*s", (int)(width - len), "");
}

static void print_row(const struct table *table, const struct table_row *row,
		      const struct widths *widths, const struct table_paper *paper)
{
	unsigned count = filled(table, row); /* no blanks at the line's end */

	for (unsigned c = 0; c < count; c++)
		if (!is_hidden(table, c))
			print_cell(table, row, c, c + 1 == count, widths, paper);
	putchar('\n');
}

void table_print(const struct table *table, const struct table_paper *paper)
{
	struct widths widths = measure(table, paper);
	struct table_row titles;

	memset(&titles, 0, sizeof(titles));
	for (unsigned c = 0; c < table->column_count; c++)
		titles.cell[c] = (struct table_cell){(char *)table->column[c].title, TABLE_BOLD};
	print_row(table, &titles, &widths, paper);
	for (unsigned i = 0; i < table->row_count; i++)
		print_row(table, &table->row[i], &widths, paper);
}
