/* The line that says why the names of pods are not known. */
#include <errno.h>
#include <string.h>

#include "names.h"
#include "place.h"
#include "records.h"
#include "say.h"

static char said[512]; /* the last line */
static unsigned lines;

int __wrap_records_read(const char *state, struct records *ret_records);
__attribute__((format(printf, 2, 3))) void __wrap_say(int level, const char *format, ...);

int __wrap_records_read(const char *state, struct records *ret_records)
{
	(void)state, (void)ret_records;
	return -EMFILE;
}

void __wrap_say(int level, const char *format, ...)
{
	va_list args;

	(void)level;
	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	lines++;
}

/* The records of containers cannot be read, so it is not known whether a name is missing. */
UNIT_TEST(test_no_records)
{
	struct loop *loop = loop_new();
	struct fault fault = {""};
	struct names *names = names_begin(loop, here.path, here.dir, &fault);

	assert_non_null(names);
	for (unsigned i = 0; i < 3; i++)
		names_ask(names);
	assert_int_equal(lines, 1);
	assert_non_null(strstr(said, "Too many open files"));
	assert_non_null(strstr(said, here.dir));
	names_end(names);
	loop_free(loop);
}
