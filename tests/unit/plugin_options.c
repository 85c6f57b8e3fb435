/* Options whose values are kept as they are. */
#include <string.h>

#include "options.h"
#include "unit.h"

static const char *place, *word;

static enum options_taken take(int option, const char *value)
{
	const struct text_option options[] = {
		{"--place", &place, 'p', true},
		{"--word", &word, 'w', false},
	};

	return options_take_text(options, sizeof(options) / sizeof(options[0]), option, value);
}

UNIT_TEST(a_value_is_kept)
{
	(void)state;
	assert_int_equal(take('p', "/run/x"), OPTIONS_TAKEN);
	assert_string_equal(place, "/run/x");
	assert_int_equal(take('w', "relative/path"), OPTIONS_TAKEN);
	assert_string_equal(word, "relative/path");
	assert_int_equal(take('x', "/run/x"), OPTIONS_OTHER);
}

UNIT_TEST(a_place_is_an_absolute_path)
{
	(void)state;
	assert_int_equal(take('p', "run/x"), OPTIONS_BAD);
	assert_int_equal(take('p', ""), OPTIONS_BAD);
}

UNIT_TEST(no_value_is_empty)
{
	(void)state;
	assert_int_equal(take('w', ""), OPTIONS_BAD);
}
