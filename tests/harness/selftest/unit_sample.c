/* Unit tests that pass and fail, for harness.sh. */

#include "unit.h"

static int set_up(void **state)
{
	static char made[] = "a place";

	*state = made;
	return 0;
}

UNIT_TEST(without_fixture)
{
	assert_null(*state);
}

#undef UNIT_SET_UP
#define UNIT_SET_UP set_up

UNIT_TEST(passes)
{
	assert_string_equal(*state, "a place");
}

UNIT_TEST_ALONE(alone)
{
	assert_null(*state);
}

UNIT_TEST(fails)
{
	assert_int_equal(1, 2);
}

static const struct {
	const char *name;
	int a, b;
} rows[] = {{"row that passes", 1, 1}, {"row that fails", 1, 2}};

UNIT_ROWS(rows)
{
	assert_string_equal(*state, "a place");
	assert_int_equal(row->a, row->b);
}
