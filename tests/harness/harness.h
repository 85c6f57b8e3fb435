/*
 * Test programs of the simulated layers. A program is a set of tests, each of which registers
 * itself where it is written:
 *
 *     TEST(name)
 *     {
 *             CHECK(...);
 *     }
 *
 * The program's arguments name the tests that it runs; without any it runs all of them, in the
 * order of their files and lines. An unknown name fails. `--list` prints the names. Each test runs
 * in a forked process. The program's exit status is 1 if a test failed, and 77 if all of them were
 * skipped.
 *
 * A table of rows that have a member `name` makes one test of each row:
 *
 *     static const struct row rows[] = {{"short", 50}, {"long", 2000}};
 *     TEST_TABLE(rows, holds) // static void holds(const struct row *row)
 *
 * Some tests start their own program again, in another role. `TEST_ROLE(name)` registers such a
 * role; the program plays it if its arguments begin with `as name`.
 *
 * A file that defines TEST_FIXTURE before its tests gives each of them what that fixture makes.
 */
#pragma once

#include <stddef.h>

#include "check.h"

struct harness_fixture {
	void (*set_up)(void);    /* in the runner, before the test's process is forked */
	void (*tear_down)(void); /* in the runner, when that process has ended */
	void (*enter)(void);     /* in a program that plays a role */
};

struct harness_test {
	const char *name, *file;
	unsigned line;
	void (*play)(void);
	void (*play_row)(const void *row); /* if the test is a row of a table */
	const void *row;
	const struct harness_fixture *fixture; /* may be NULL */
	struct harness_test *next;
};

struct harness_role {
	const char *name;
	void (*play)(int argc, char **argv); /* the arguments after the role's name */
	const struct harness_fixture *fixture;
	struct harness_role *next;
};

#define HARNESS_AS "as" /* the first argument of a program that plays a role */

/* Registers a test. Constructors call this; *test must stay valid. */
void harness_add(struct harness_test *test);
void harness_add_role(struct harness_role *role);

/* Runs the tests that the arguments name, or plays a role. Returns the program's exit status. A
 * program without a main function of its own has one that is this. */
int harness_main(int argc, char **argv);

extern const char *harness_program; /* argv[0]; after harness_main */
extern const char *harness_name;    /* of the test that runs, or "" */

#define HARNESS_FIRST(function) __attribute__((constructor)) static void function(void)

/* A file without a fixture has TEST_FIXTURE as NULL; a header with a fixture redefines it. */
#ifndef TEST_FIXTURE
#define TEST_FIXTURE NULL
#endif

#define TEST(test)                                                            \
	static void test(void);                                               \
	HARNESS_FIRST(harness_add_##test)                                     \
	{                                                                     \
		static struct harness_test entry = {.name = #test,            \
						    .file = __FILE__,         \
						    .line = __LINE__,         \
						    .play = test,             \
						    .fixture = TEST_FIXTURE}; \
		harness_add(&entry);                                          \
	}                                                                     \
	static void test(void)

#define TEST_TABLE(table, function)                                                          \
	static void harness_play_##table(const void *row)                                    \
	{                                                                                    \
		function(row);                                                               \
	}                                                                                    \
	HARNESS_FIRST(harness_add_##table)                                                   \
	{                                                                                    \
		static struct harness_test entries[sizeof(table) / sizeof(*(table))];        \
		for (size_t i = 0; i < sizeof(table) / sizeof(*(table)); i++) {              \
			entries[i] = (struct harness_test){.name = (table)[i].name,          \
							   .file = __FILE__,                 \
							   .line = __LINE__,                 \
							   .play_row = harness_play_##table, \
							   .row = &(table)[i],               \
							   .fixture = TEST_FIXTURE};         \
			harness_add(&entries[i]);                                            \
		}                                                                            \
	}                                                                                    \
	_Static_assert(1, "a table of tests")

#define TEST_ROLE(role)                                                        \
	static void role(int argc, char **argv);                               \
	HARNESS_FIRST(harness_add_role_##role)                                 \
	{                                                                      \
		static struct harness_role entry = {                           \
			.name = #role, .play = role, .fixture = TEST_FIXTURE}; \
		harness_add_role(&entry);                                      \
	}                                                                      \
	static void role(int argc, char **argv)
