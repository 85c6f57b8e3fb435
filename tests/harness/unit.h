/*
 * Unit tests with cmocka. A test registers itself where it is written:
 *
 *     UNIT_TEST(test_name)
 *     {
 *             assert_true(...); // `state` is what the fixture's set-up made
 *     }
 *
 * A table of rows that have a member `name` makes one test of each row:
 *
 *     static const struct row rows[] = {{"short", 50}, {"long", 2000}};
 *     UNIT_ROWS(rows)
 *     {
 *             assert_true(...); // of `row`, and of `state` as above
 *     }
 *
 * The program's arguments name the tests that it runs. Without arguments it runs all tests, in
 * the order of their files, lines and rows. An unknown name fails. `--list` prints the names.
 *
 * A fixture's header defines UNIT_SET_UP and UNIT_TEAR_DOWN, which run before and after each
 * test. UNIT_TEST_AROUND names others for one test, and UNIT_TEST_ALONE uses none.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs those four before it. */
#include <cmocka.h>

#ifndef UNIT_SET_UP
#define UNIT_SET_UP    NULL
#define UNIT_TEAR_DOWN NULL
#endif

/* Registers a test. Constructors call this. */
void unit_add(const struct CMUnitTest *test, const char *file, unsigned line);

/* Runs the tests that the arguments name, and returns the program's exit status. A program
 * without a main function gets one that calls this. */
int unit_main(int argc, char **argv);

#define UNIT_TEST_AROUND(test, set_up, tear_down)                                              \
	static void test(void **state);                                                        \
	__attribute__((constructor)) static void unit_add_##test(void)                         \
	{                                                                                      \
		unit_add(&(struct CMUnitTest){#test, test, set_up, tear_down, NULL}, __FILE__, \
			 __LINE__);                                                            \
	}                                                                                      \
	static void test(__attribute__((unused)) void **state)

#define UNIT_TEST(test)       UNIT_TEST_AROUND(test, UNIT_SET_UP, UNIT_TEAR_DOWN)
#define UNIT_TEST_ALONE(test) UNIT_TEST_AROUND(test, NULL, NULL)

#define UNIT_ROWS(table)                                                                   \
	static __typeof__(&(table)[0]) unit_row_##table;                                   \
	static void unit_play_##table(void **state, __typeof__(&(table)[0]) row);          \
	static int unit_set_up_##table(void **state)                                       \
	{                                                                                  \
		int (*unit_set_up)(void **) = UNIT_SET_UP;                                 \
		unit_row_##table = *state;                                                 \
		*state = NULL;                                                             \
		return unit_set_up ? unit_set_up(state) : 0;                               \
	}                                                                                  \
	static void unit_test_##table(void **state)                                        \
	{                                                                                  \
		unit_play_##table(state, unit_row_##table);                                \
	}                                                                                  \
	__attribute__((constructor)) static void unit_add_##table(void)                    \
	{                                                                                  \
		for (size_t i = 0; i < sizeof(table) / sizeof(*(table)); i++)              \
			unit_add(&(struct CMUnitTest){(table)[i].name, unit_test_##table,  \
						      unit_set_up_##table, UNIT_TEAR_DOWN, \
						      (void *)(uintptr_t) & (table)[i]},   \
				 __FILE__, __LINE__);                                      \
	}                                                                                  \
	static void unit_play_##table(__attribute__((unused)) void **state,                \
				      __attribute__((unused)) __typeof__(&(table)[0]) row)
