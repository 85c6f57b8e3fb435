/* Tests that pass, fail and are skipped, for harness.sh. */
#include "harness.h"

static char made[] = "no place";

static void set_up(void)
{
	strcpy(made, "a place");
}

static const struct harness_fixture fixture = {.set_up = set_up};

TEST(without_fixture)
{
	CHECK_STRING(made, "no place");
}

#undef TEST_FIXTURE
#define TEST_FIXTURE &fixture

TEST(passes)
{
	CHECK_STRING(made, "a place");
	CHECK_EQUAL(2 + 2, 4);
	CHECK_AT_MOST(4, 4);
	CHECK_OK(0);
	harness_note("measured %d", 17);
}

TEST(is_skipped)
{
	SKIP("no %s", "device");
}

TEST(fails)
{
	CHECK(made[0] == 'b');
}

TEST(is_not_equal)
{
	CHECK_EQUAL(2 + 2, 5);
}

TEST(is_more)
{
	CHECK_AT_MOST(5, 4);
}

TEST(is_other)
{
	CHECK_STRING("this", "that");
}

TEST(says_why)
{
	CHECK_SAYING(made[0] == 'b', "%s is not %s", made, "b");
}

static const struct row {
	const char *name;
	int a, b;
} rows[] = {{"row_that_passes", 1, 1}, {"row_that_fails", 1, 2}};

static void rows_are_equal(const struct row *row)
{
	CHECK_EQUAL(row->a, row->b);
}
TEST_TABLE(rows, rows_are_equal);

TEST_ROLE(echo)
{
	for (int i = 0; i < argc; i++)
		printf("%s %s\n", made, argv[i]);
}
