/* Draws one snapshot on the terminal's screen. The caller starts ncurses and refreshes the screen.
 */
#pragma once

#include <stdbool.h>

struct top;

struct top_screen {
	bool utf8, colour;
};

/* Draws everything, and limits top->scroll to the table's length. */
void top_draw(struct top *top, const struct top_screen *screen);
