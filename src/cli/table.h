/* Tables for people. A column is as wide as its longest text; one flexible column shrinks if the
 * line would be too long. All text is escaped (escape.h). Each character counts as one column. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_COLUMNS_MAX 12

enum table_colour { TABLE_PLAIN, TABLE_BOLD, TABLE_DIM, TABLE_YELLOW, TABLE_RED };

struct table_column {
	const char *title;
	bool right; /* aligned to the right */
};

struct table_cell {
	char *text; /* NULL: empty */
	enum table_colour colour;
};

struct table_row {
	struct table_cell cell[TABLE_COLUMNS_MAX];
	bool is_name; /* the text in the flexible column is cut in its middle, and only on a
		       * terminal */
	bool is_text; /* the text of the last cell continues to the line's end */
};

struct table {
	const struct table_column *column;
	unsigned column_count;
	unsigned flexible; /* the flexible column's number */
	uint32_t hidden;   /* bit c: column c is left out */
	unsigned row_count;
	struct table_row *row;
};

/* The output to which the table is printed. A terminal cuts long names off, a file or a pipe has
 * them whole. */
struct table_paper {
	unsigned width;
	bool terminal, colour;
};

/* The paper that stdout is. */
struct table_paper table_stdout(void);

/* Adds a row. Ends the program if there is no memory, as table_set does. */
struct table_row *table_add(struct table *table);
__attribute__((format(printf, 3, 4))) void
table_set(struct table_cell *cell, enum table_colour colour, const char *format, ...);
void table_print(const struct table *table, const struct table_paper *paper);
void table_free(struct table *table);

/* The number of characters of the text: bytes that do not continue a character of UTF-8. */
size_t table_length(const char *text);
/* The number of bytes in the first `width` characters of the text, or in all of it. */
size_t table_fitting(const char *text, size_t width);

/* Cuts the text to `width` characters. ".." replaces the rest at its end, or in its middle. */
void table_cut(char *text, size_t width, bool middle);
