/* Assertions: which level aborts on a false condition, and that the others do not evaluate it. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assertion.h"
#include "unit.h"

static int level;
#undef ASSERTION_LEVEL
#define ASSERTION_LEVEL level

static void assert_first(bool holds)
{
	ASSERT(holds);
}

static void assert_second(bool holds)
{
	ASSERT_INTERNAL(holds);
}

static void assert_third(bool holds)
{
	ASSERT_EXPENSIVE(holds);
}

static void (*const assertions[])(bool) = {assert_first, assert_second, assert_third};

/* Runs it in a process of its own; the signal that ended the process, or 0. What it prints is in
 * ret_text. */
static int signal_of(void (*play)(bool holds), bool holds, char ret_text[1024])
{
	int pipes[2], status;
	ssize_t len;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		dup2(pipes[1], STDERR_FILENO);
		play(holds);
		_exit(0);
	}
	close(pipes[1]);
	len = read(pipes[0], ret_text, 1023);
	ret_text[len > 0 ? len : 0] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

UNIT_TEST(test_levels)
{
	char text[1024];

	for (level = 0; level <= 3; level++)
		for (int of = 1; of <= 3; of++) {
			assert_int_equal(signal_of(assertions[of - 1], true, text), 0);
			assert_string_equal(text, "");
			assert_int_equal(signal_of(assertions[of - 1], false, text),
					 of <= level ? SIGABRT : 0);
			if (of <= level && !strstr(text, ": this does not hold: holds\n"))
				fail_msg("\"%s\"", text);
		}
}

UNIT_TEST(test_no_effect_where_off)
{
	int evaluated = 0;

	level = 1;
	ASSERT(++evaluated);
	assert_int_equal(evaluated, 1);
	ASSERT_INTERNAL(++evaluated);
	ASSERT_EXPENSIVE(++evaluated);
	assert_int_equal(evaluated, 1);
}

static void fail_at_length(bool holds)
{
	static char file[1000];

	(void)holds;
	memset(file, 'x', sizeof(file) - 1);
	assertion_failed(file, 1, "condition");
}

UNIT_TEST(test_long_line)
{
	char text[1024];

	assert_int_equal(signal_of(fail_at_length, false, text), SIGABRT);
	assert_int_equal(strlen(text), 511);
	assert_int_equal(text[510], '\n');
}
