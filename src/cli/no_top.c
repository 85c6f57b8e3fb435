/* In the place of top_screen.c and top_draw.c, where ncurses was missing. */
#include "cli.h"
#include "top.h"

int top_run(struct top *top)
{
	(void)top;
	return cli_fail(CLI_FAILED, "this vgpu was built without ncurses, but for --batch: install "
				    "it (libncurses-dev) and pkg-config, and build it again");
}
