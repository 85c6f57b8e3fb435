/*
 * Unit tests with cmocka. A test registers itself where it is written:
 *
 *     UNIT_TEST(test_name)
 *     {
 *             assert_true(...); // `state` is what the fixture's set-up made
 *     }
 *
 * The program's arguments name the tests that it runs. Without arguments it runs all tests, in
 * the order of their files and lines. An unknown name fails. `--list` prints the names.
 *
 * A fixture's header defines UNIT_SET_UP and UNIT_TEAR_DOWN, which run before and after each
 * test. UNIT_TEST_AROUND names others for one test, and UNIT_TEST_ALONE uses none. Include this
 * header after cmocka.h and the headers that cmocka.h needs.
 */
#pragma once

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
