/* The arguments of env(1): what it starts, and whether it takes that out of its slice. */
#include <string.h>

#include "program_words.h"
#include "unit.h"

#define ARGUMENTS_MAX 16

struct example {
	const char *argument[ARGUMENTS_MAX];
	const char *command, *next; /* NULL: none */
	const char *lost, *unreadable, *path, *dir;
};

static void same(const char *found, const char *expected)
{
	if (!expected)
		assert_null(found);
	else
		assert_string_equal(found, expected);
}

static void assert_read(const struct example *example)
{
	struct program_words words = {.more = (char *const *)example->argument};
	struct program_surroundings surroundings = {.path = "/bin"};
	const char *command = program_words_env(&words, &surroundings);

	same(command, example->command);
	same(command ? program_words_take(&words) : NULL, example->next);
	same(surroundings.lost, example->lost);
	same(surroundings.unreadable, example->unreadable);
	same(surroundings.path, example->path);
	same(surroundings.dir, example->dir);
}

UNIT_TEST(commands)
{
	static const struct example examples[] = {
		{.argument = {"prog", "-x"}, .command = "prog", .next = "-x", .path = "/bin"},
		{.argument = {NULL}, .path = "/bin"},
		{.argument = {"A=b", "C=", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"--", "A=b", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"-v", "-0", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"-a", "name", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"--argv0", "name", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"--block-signal", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"--ignore-signal=INT", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"PATH=/x", "prog"}, .command = "prog", .path = "/x"},
		{.argument = {"-u", "PATH", "prog"}, .command = "prog", .path = NULL},
		{.argument = {"-C", "/a", "-C/b", "p"},
		 .command = "p",
		 .path = "/bin",
		 .dir = "/b"},
		{.argument = {"--chd=/c", "p"}, .command = "p", .path = "/bin", .dir = "/c"},
		{.argument = {"--help", "prog"}, .path = "/bin"},
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		assert_read(&examples[i]);
}

UNIT_TEST(lost)
{
	static const struct example examples[] = {
		{.argument = {"-i", "prog"}, .command = "prog", .lost = "-i"},
		{.argument = {"-", "prog"}, .command = "prog", .lost = "-"},
		{.argument = {"-vi", "PATH=/x", "p"}, .command = "p", .lost = "-vi", .path = "/x"},
		{.argument = {"--ignore-e", "p"}, .command = "p", .lost = "--ignore-e"},
		{.argument = {"-uLD_PRELOAD", "p"},
		 .command = "p",
		 .lost = "LD_PRELOAD",
		 .path = "/bin"},
		{.argument = {"--unset", "VGPU_POLICY", "p"},
		 .command = "p",
		 .lost = "VGPU_POLICY",
		 .path = "/bin"},
		{.argument = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/x", "p"},
		 .command = "p",
		 .lost = "CUDA_DEVICE_MEMORY_SHARED_CACHE=/x",
		 .path = "/bin"},
		{.argument = {"LD_PRELOADED=", "p"}, .command = "p", .path = "/bin"},
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		assert_read(&examples[i]);
}

UNIT_TEST(split_strings)
{
	static const struct example examples[] = {
		{.argument = {"-S", "prog -x", "y"},
		 .command = "prog",
		 .next = "-x",
		 .path = "/bin"},
		{.argument = {"-S prog", "y"}, .command = "prog", .next = "y", .path = "/bin"},
		{.argument = {"-SA=b 'a b' c"}, .command = "a b", .next = "c", .path = "/bin"},
		{.argument = {"-vS", "-i \"\" x"}, .command = "", .next = "x", .lost = "-i"},
		{.argument = {"-S", "", "prog"}, .command = "prog", .path = "/bin"},
		{.argument = {"--split-string=env prog"},
		 .command = "env",
		 .next = "prog",
		 .path = "/bin"},
		{.argument = {"-S", "-S prog x"}, .command = "prog", .next = "x", .path = "/bin"},
		{.argument = {"-S", "$A"}, .unreadable = "$A", .path = "/bin"},
		{.argument = {"-S", "a\\_b"}, .unreadable = "a\\_b", .path = "/bin"},
		{.argument = {"-S", "'a"}, .unreadable = "'a", .path = "/bin"},
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		assert_read(&examples[i]);
}

UNIT_TEST(not_understood)
{
	static const struct example examples[] = {
		{.argument = {"-x", "prog"}, .unreadable = "-x", .path = "/bin"},
		{.argument = {"--no-such", "prog"}, .unreadable = "--no-such", .path = "/bin"},
		{.argument = {"--i", "prog"}, .unreadable = "--i", .path = "/bin"},
		{.argument = {"-u"}, .unreadable = "-u", .path = "/bin"},
		{.argument = {"--unset"}, .unreadable = "--unset", .path = "/bin"},
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		assert_read(&examples[i]);
}

/* What does not fit is refused, and nothing is written past the end. */
UNIT_TEST(too_much)
{
	static char *const none[] = {NULL};
	struct program_words words = {.more = none};
	struct program_surroundings surroundings = {.path = NULL};
	char text[2 * PROGRAM_TEXT_MAX], *argument[] = {"-S", text, NULL};

	for (size_t len = 1; len < sizeof(text) - 2; len += 997) {
		memset(text, 'a', len);
		text[len] = '\0';
		words = (struct program_words){.more = argument};
		program_words_env(&words, &surroundings);
		for (size_t i = 1; i < len; i += 2)
			text[i] = ' ';
		words = (struct program_words){.more = argument};
		program_words_env(&words, &surroundings);
		assert_true(words.count <= PROGRAM_WORDS_MAX);
		assert_true(words.used <= sizeof(words.text));
	}
	words = (struct program_words){.more = none};
	for (unsigned i = 0; i < PROGRAM_WORDS_MAX; i++)
		assert_true(program_words_put(&words, "w", 1));
	assert_false(program_words_put(&words, "w", 1));
}
