/* One look at the machine, on the terminal's screen: ncurses is started, and refreshed by the
 * caller. */
#pragma once

#include <stdbool.h>

struct top;

struct top_screen {
	bool utf8, colour;
};

/* Draws all of it; brings top->scroll within its bounds. */
void top_draw(struct top *top, const struct top_screen *screen);
