/* See harness.h. */
#include "harness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

const char *harness_program = "";
const char *harness_name = "";

/* Only constructors write the two lists. */
static struct harness_test *tests;
static struct harness_role *roles;

enum outcome { PASSED, FAILED, SKIPPED, OUTCOMES };

static bool is_before(const struct harness_test *a, const struct harness_test *b)
{
	int order = strcmp(a->file, b->file);

	return order ? order < 0 : a->line < b->line;
}

/* Constructors run in any order. */
void harness_add(struct harness_test *test)
{
	struct harness_test **place = &tests;

	while (*place && !is_before(test, *place))
		place = &(*place)->next;
	test->next = *place;
	*place = test;
}

void harness_add_role(struct harness_role *role)
{
	role->next = roles;
	roles = role;
}

/* An unknown name must fail: a name misspelt in CMake would otherwise run no test and pass. */
static bool is_known(const char *name)
{
	for (const struct harness_test *test = tests; test; test = test->next)
		if (!strcmp(name, test->name))
			return true;
	fprintf(stderr, "there is no test \"%s\" in this program\n", name);
	return false;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(name, argv[i]))
			return true;
	return argc < 2;
}

_Noreturn static void play_here(const struct harness_test *test)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (test->play_row)
		test->play_row(test->row);
	else
		test->play();
	fflush(NULL);
	_exit(0);
}

static enum outcome outcome_of(const char *name, int status)
{
	if (status == 0)
		return PASSED;
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_SKIPPED)
		return SKIPPED;
	fprintf(stderr, "%s: failed, status %#x\n", name, (unsigned)status);
	return FAILED;
}

static enum outcome play(const struct harness_test *test)
{
	const struct harness_fixture *fixture = test->fixture;
	uint64_t began_ms = check_now_ms();
	int status = -1;
	pid_t pid;

	harness_name = test->name;
	if (fixture && fixture->set_up)
		fixture->set_up();
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		play_here(test);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (fixture && fixture->tear_down)
		fixture->tear_down();
	printf("%s: %llu ms\n", test->name, (unsigned long long)(check_now_ms() - began_ms));
	return outcome_of(test->name, status);
}

static int run_tests(int argc, char **argv)
{
	unsigned count[OUTCOMES] = {0};

	for (int i = 1; i < argc; i++)
		if (!is_known(argv[i]))
			return 1;
	signal(SIGPIPE, SIG_IGN);
	for (const struct harness_test *test = tests; test; test = test->next)
		if (is_wanted(test->name, argc, argv))
			count[play(test)]++;
	if (count[FAILED] || !(count[PASSED] + count[SKIPPED]))
		return 1;
	return count[PASSED] ? 0 : CHECK_SKIPPED;
}

static int play_role(int argc, char **argv)
{
	for (const struct harness_role *role = roles; role; role = role->next)
		if (argc > 2 && !strcmp(role->name, argv[2])) {
			if (role->fixture && role->fixture->enter)
				role->fixture->enter();
			role->play(argc - 3, argv + 3);
			return 0;
		}
	fprintf(stderr, "there is no role \"%s\" in this program\n", argc > 2 ? argv[2] : "");
	return 2;
}

int harness_main(int argc, char **argv)
{
	harness_program = argv[0];
	if (argc > 1 && !strcmp(argv[1], HARNESS_AS))
		return play_role(argc, argv);
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (const struct harness_test *test = tests; test; test = test->next)
			puts(test->name);
		return 0;
	}
	return run_tests(argc, argv);
}
