/*
 * The terminal of vgpu top.
 *
 * Signals are blocked except in the wait between two snapshots, so no signal interrupts a drawing.
 * A handler sets a flag, and the loop acts on it. Every end, by a key or by a signal, restores the
 * terminal. A signal is then raised again, so that the parent process sees it as the cause. A stop
 * (^Z) restores the terminal as well, and a continued process sets it up again. The window's size
 * is read before each drawing: SIGWINCH and SIGCONT only end the wait.
 */
#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "top.h"
#include "top_draw.h"

#undef lines /* term.h has words of its own */
#undef columns

#define PAGE         10
#define ESCAPE_MS    25
#define SILENT_TIMES 3 /* input was ready so many times without a byte: the terminal is gone */

/* Set by the handlers; read and cleared by the loop while the signals are blocked. */
static volatile sig_atomic_t ended_by, stopped_by, redraw;

struct terminal {
	SCREEN *screen;
	struct top_screen look;
	sigset_t mask; /* at the program's start */
	unsigned silent;
};

/* -- signals ----------------------------------------------------------------------------------- */

static void on_end(int number)
{
	ended_by = number;
}

static void on_stop(int number)
{
	stopped_by = number;
}

static void on_change(int number)
{
	(void)number;
	redraw = 1;
}

static const struct {
	int number;
	void (*handler)(int number);
} signals[] = {
	{SIGTERM, on_end},  {SIGINT, on_end},      {SIGHUP, on_end},     {SIGQUIT, on_end},
	{SIGTSTP, on_stop}, {SIGWINCH, on_change}, {SIGCONT, on_change},
};

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* Ignored signals stay ignored, as under nohup(1). This comes before ncurses is started, which sets
 * handlers of its own for signals without one. */
static void take_signals(struct terminal *terminal)
{
	sigset_t ours;

	sigemptyset(&ours);
	for (size_t i = 0; i < SIGNALS; i++) {
		struct sigaction action, old;

		memset(&action, 0, sizeof(action));
		action.sa_handler = signals[i].handler;
		if (sigaction(signals[i].number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			continue;
		sigaction(signals[i].number, &action, NULL);
		sigaddset(&ours, signals[i].number);
	}
	sigprocmask(SIG_BLOCK, &ours, &terminal->mask);
	for (size_t i = 0; i < SIGNALS; i++)
		sigdelset(&terminal->mask, signals[i].number);
}

/* Raises the signal with its default action, which ends this process, or stops it for a while. */
static void raise_by_default(const struct terminal *terminal, int number)
{
	struct sigaction by_default, ours;
	sigset_t blocked;

	memset(&by_default, 0, sizeof(by_default));
	by_default.sa_handler = SIG_DFL;
	sigaction(number, &by_default, &ours);
	raise(number);
	sigprocmask(SIG_SETMASK, &terminal->mask, &blocked); /* the signal is delivered here */
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigaction(number, &ours, NULL);
}

/* -- the terminal ------------------------------------------------------------------------------ */

static void use_colours(struct terminal *terminal)
{
	const char *no_colour = getenv("NO_COLOR");

	if ((no_colour && *no_colour) || !has_colors() || start_color() == ERR)
		return;
	use_default_colors();
	init_pair(1, COLOR_YELLOW, -1);
	init_pair(2, COLOR_RED, -1);
	init_pair(3, COLOR_GREEN, -1);
	terminal->look.colour = true;
}

/* Whether the terminal has the capability: its string is neither NULL nor -1. */
static bool can(const char *capability)
{
	char *string = tigetstr((char *)capability);

	return string && string != (char *)-1;
}

static int open_terminal(struct terminal *terminal)
{
	const char *type = getenv("TERM");

	setlocale(LC_CTYPE, "");
	terminal->look.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	take_signals(terminal);
	terminal->screen = newterm(NULL, stdout, stdin);
	if (terminal->screen && !can("cup")) {
		endwin();
		delscreen(terminal->screen);
		terminal->screen = NULL;
	}
	if (!terminal->screen)
		return cli_fail(CLI_USAGE,
				"a terminal of the type \"%.40s\" (TERM) cannot be drawn on: use "
				"--batch, or vgpu ps",
				type ? type : "");
	use_colours(terminal);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(ESCAPE_MS);
	curs_set(0);
	return 0;
}

static void close_terminal(struct terminal *terminal)
{
	endwin();
	delscreen(terminal->screen);
}

static void follow_size(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
	    (size.ws_row != LINES || size.ws_col != COLS)) {
		resizeterm(size.ws_row, size.ws_col);
		clearok(stdscr, TRUE);
	}
}

static void draw(struct top *top, const struct terminal *terminal)
{
	follow_size();
	top_draw(top, &terminal->look);
	refresh();
}

/* -- keys -------------------------------------------------------------------------------------- */

enum wish { WISH_NOTHING, WISH_DRAW, WISH_LOOK, WISH_END };

static enum wish scroll_by(struct top *top, int lines_down)
{
	if (lines_down < 0 && top->scroll < (unsigned)-lines_down)
		top->scroll = 0;
	else
		top->scroll += (unsigned)lines_down; /* top_draw limits it */
	return WISH_DRAW;
}

static enum wish sort_by(struct top *top, enum top_sort sort)
{
	top->sort = sort;
	return WISH_DRAW;
}

static enum wish press(struct top *top, int key)
{
	switch (key) {
	case 'q':
	case 'Q':
		return WISH_END;
	case 'h':
	case '?':
		top->help = !top->help;
		return WISH_DRAW;
	case 'f':
		top->folded = !top->folded;
		return WISH_DRAW;
	case 'm':
		return sort_by(top, TOP_BY_MEMORY);
	case 'c':
		return sort_by(top, TOP_BY_CORES);
	case 'n':
		return sort_by(top, TOP_BY_NAME);
	case 'p':
		return sort_by(top, TOP_BY_PID);
	case KEY_UP:
	case 'k':
		return scroll_by(top, -1);
	case KEY_DOWN:
	case 'j':
		return scroll_by(top, 1);
	case KEY_PPAGE:
		return scroll_by(top, -PAGE);
	case KEY_NPAGE:
		return scroll_by(top, PAGE);
	case KEY_HOME:
		top->scroll = 0;
		return WISH_DRAW;
	case KEY_END:
		top->scroll = INT32_MAX;
		return WISH_DRAW;
	case ' ':
		return WISH_LOOK;
	case '\f': /* ^L */
		clearok(stdscr, TRUE);
		return WISH_DRAW;
	default:
		return WISH_NOTHING;
	}
}

/* Reads all keys that were pressed. Returns the strongest wish. */
static enum wish read_keys(struct top *top, struct terminal *terminal)
{
	enum wish wish = WISH_NOTHING, next;
	bool any = false;

	for (int key; wish != WISH_END && (key = getch()) != ERR; any = true) {
		next = press(top, key);
		wish = next > wish ? next : wish;
	}
	terminal->silent = any ? 0 : terminal->silent + 1;
	return terminal->silent < SILENT_TIMES ? wish : WISH_END;
}

/* -- the loop ---------------------------------------------------------------------------------- */

static void stop(struct top *top, const struct terminal *terminal)
{
	int number = stopped_by;

	stopped_by = 0;
	endwin();
	raise_by_default(terminal, number);
	clearok(stdscr, TRUE);
	draw(top, terminal);
}

/* Waits for a key, a signal or the time until_ns. Returns the user's wish. */
static enum wish wait_once(struct top *top, struct terminal *terminal, uint64_t until_ns)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t now_ns = clock_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	struct timespec left = {(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};
	int ready = ppoll(&input, 1, &left, &terminal->mask);

	if (ended_by || (ready > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL))))
		return WISH_END;
	if (stopped_by)
		stop(top, terminal);
	if (redraw) {
		redraw = 0;
		clearok(stdscr, TRUE);
		return WISH_DRAW;
	}
	return ready > 0 ? read_keys(top, terminal) : WISH_NOTHING;
}

/* Waits until the next snapshot is due or wanted. False: the user wants to end. */
static bool wait_for_look(struct top *top, struct terminal *terminal)
{
	uint64_t until_ns = clock_now_ns() + top->interval_ns;

	while (clock_now_ns() < until_ns) {
		enum wish wish = wait_once(top, terminal, until_ns);

		if (wish == WISH_END)
			return false;
		if (wish == WISH_LOOK)
			return true;
		if (wish == WISH_DRAW)
			draw(top, terminal);
	}
	return true;
}

int top_run(struct top *top)
{
	struct terminal terminal = {.silent = 0};
	int status;

	if (top_look(top))
		return cli_fail(CLI_FAILED, "%s", top->trouble.text);
	status = open_terminal(&terminal);
	if (status)
		return status;
	for (uint64_t round = 1;; round++) {
		draw(top, &terminal);
		if (round == top->rounds || !wait_for_look(top, &terminal))
			break;
		top_look(top);
	}
	close_terminal(&terminal);
	if (ended_by)
		raise_by_default(&terminal, ended_by);
	return 0;
}
