#include "options.h"

#include <stdint.h>

#include "say.h"
#include "size.h"

#define SECONDS_MAX 86400 /* a day */

static bool is_good(const struct text_option *option, const char *value)
{
	bool good = option->is_place ? *value == '/' : *value != '\0';

	if (!good)
		say(LOG_ERR, "%s \"%s\" %s, or leave the option out", option->name, value,
		    option->is_place ? "is no absolute path: write one that begins with /"
				     : "has no value: write one");
	return good;
}

enum options_taken options_take_text(const struct text_option *options, size_t count, int option,
				     const char *value)
{
	for (size_t i = 0; i < count; i++)
		if (options[i].option == option) {
			*options[i].value = value;
			return is_good(&options[i], value) ? OPTIONS_TAKEN : OPTIONS_BAD;
		}
	return OPTIONS_OTHER;
}

bool options_read_seconds(const char *name, const char *text, unsigned *ret_s)
{
	uint64_t seconds;

	if (number_parse(text, SECONDS_MAX, &seconds) || seconds == 0) {
		say(LOG_ERR, "%s \"%s\" is no number of seconds: write 1 to %d", name, text,
		    SECONDS_MAX);
		return false;
	}
	*ret_s = (unsigned)seconds;
	return true;
}
