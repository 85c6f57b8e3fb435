/* Tables for people: columns as wide as what is in them, one of which gives way where the line
 * would be too long. All text is escaped (escape.h); each character counts as one column wide. */
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
	bool is_name; /* what is in the column that gives way is cut in its middle, and only on a
		       * terminal */
	bool is_text; /* its last cell goes on to the line's end */
};

struct table {
	const struct table_column *column;
	unsigned column_count;
	unsigned flexible; /* the column that gives way */
	uint32_t hidden;   /* bit c: column c is left out */
	unsigned row_count;
	struct table_row *row;
};

/* How to print: for a terminal, or for a file or a pipe, where a name matters more than the width.
 */
struct table_paper {
	unsigned width;
	bool terminal, colour;
};

/* What stdout is. */
struct table_paper table_stdout(void);

/* A new row; ends the program without memory, as table_set does. */
struct table_row *table_add(struct table *table);
__attribute__((format(printf, 3, 4))) void
table_set(struct table_cell *cell, enum table_colour colour, const char *format, ...);
void table_print(const struct table *table, const struct table_paper *paper);
void table_free(struct table *table);

/* How many characters it has: bytes, but for those that go on with a character of UTF-8. */
size_t table_length(const char *text);
/* How many bytes of it make its first `width` characters, or all of it. */
size_t table_fitting(const char *text, size_t width);

/* text in at most width characters, and ".." where some are left out: at its end, or in its middle.
 */
void table_cut(char *text, size_t width, bool middle);
