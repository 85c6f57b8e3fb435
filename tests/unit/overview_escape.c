/* What text of unknown origin looks like on a terminal. */
#include <string.h>

#include "escape.h"
#include "unit.h"

static void assert_escaped(const char *text, const char *expected)
{
	char buf[256];

	memset(buf, 'x', sizeof(buf));
	assert_ptr_equal(escape(text, buf, sizeof(buf)), buf);
	assert_string_equal(buf, expected);
}

UNIT_TEST(printable)
{
	assert_escaped("", "");
	assert_escaped("lab-1 \\ \"x\" ~", "lab-1 \\ \"x\" ~");
	assert_escaped("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		       "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	assert_escaped("\xc2\xa0\xf4\x8f\xbf\xbf", "\xc2\xa0\xf4\x8f\xbf\xbf");
}

UNIT_TEST(controls)
{
	assert_escaped("a\033[2Jb", "a\\x1b[2Jb");
	assert_escaped("\x01\n\t\x7f", "\\x01\\x0a\\x09\\x7f");
	assert_escaped("\xc2\x9b"
		       "2J",
		       "\\xc2\\x9b2J");                    /* C1 as UTF-8 */
	assert_escaped("\xe2\x80\xae", "\\xe2\\x80\\xae"); /* right-to-left override */
	assert_escaped("\xe2\x80\x8b", "\\xe2\\x80\\x8b"); /* zero width space */
}

UNIT_TEST(invalid)
{
	assert_escaped("\x9b"
		       "2J",
		       "\\x9b2J"); /* C1 as a byte */
	assert_escaped("\xff\xfe", "\\xff\\xfe");
	assert_escaped("\xc0\xaf", "\\xc0\\xaf"); /* overlong */
	assert_escaped("\xe0\x80\xaf", "\\xe0\\x80\\xaf");
	assert_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");          /* a surrogate */
	assert_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
	assert_escaped("\xe2\x82", "\\xe2\\x82");                   /* cut off */
	assert_escaped("\xc3\xc3\xa4", "\\xc3\xc3\xa4");
}

UNIT_TEST(cut_off)
{
	char buf[8];

	assert_string_equal(escape("abcdefgh", buf, sizeof(buf)), "abcdefg");
	assert_string_equal(escape("abcd\033", buf, sizeof(buf)), "abcd");
	assert_string_equal(escape("abcdef\xc3\xa4", buf, sizeof(buf)), "abcdef");
	assert_string_equal(escape("abc", buf, 1), "");
}
