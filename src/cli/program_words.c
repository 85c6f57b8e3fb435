/*
 * The arguments of env(1), as GNU's coreutils, busybox and others have them. Arguments that change
 * the variables by which a program is in its slice are noted. An option that is not known here, or
 * a string for -S with more than words and quotes in it, is not guessed at.
 */
#include "program_words.h"

#include <string.h>

#define BLANKS " \t\n\r\v\f"

const char *program_words_take(struct program_words *words)
{
	if (words->count > 0)
		return words->added[--words->count];
	return *words->more ? *words->more++ : NULL;
}

bool program_words_put(struct program_words *words, const char *word, size_t len)
{
	char *copy = words->text + words->used;

	if (words->count == PROGRAM_WORDS_MAX || len >= sizeof(words->text) - words->used)
		return false;
	memcpy(copy, word, len);
	copy[len] = '\0';
	words->used += len + 1;
	words->added[words->count++] = copy;
	return true;
}

/* -- options ----------------------------------------------------------------------------------- */

enum effect { NONE, CLEARS, UNSETS, CHANGES_DIRECTORY, SPLITS, ENDS };

struct env_option {
	const char *name;
	enum effect effect;
	char letter; /* or '\0' */
	char takes;  /* 0: no value; 1: a value; '?': one in the same word, or none */
};

static const struct env_option env_options[] = {
	{"ignore-environment", CLEARS, 'i', 0},
	{"null", NONE, '0', 0},
	{"unset", UNSETS, 'u', 1},
	{"chdir", CHANGES_DIRECTORY, 'C', 1},
	{"split-string", SPLITS, 'S', 1},
	{"debug", NONE, 'v', 0},
	{"argv0", NONE, 'a', 1},
	{"block-signal", NONE, '\0', '?'},
	{"default-signal", NONE, '\0', '?'},
	{"ignore-signal", NONE, '\0', '?'},
	{"list-signal-handling", NONE, '\0', 0},
	{"help", ENDS, '\0', 0},
	{"version", ENDS, '\0', 0},
};

#define OPTION_COUNT (sizeof(env_options) / sizeof(env_options[0]))

static const struct env_option *find_letter(char letter)
{
	for (size_t i = 0; i < OPTION_COUNT; i++)
		if (letter && env_options[i].letter == letter)
			return &env_options[i];
	return NULL;
}

/* By its name, or what only one name begins with. */
static const struct env_option *find_name(const char *name, size_t len)
{
	const struct env_option *found = NULL;

	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (strncmp(env_options[i].name, name, len) != 0)
			continue;
		if (found)
			return NULL;
		found = &env_options[i];
	}
	return found;
}

/* Whether a program needs the variable to be in its slice. "NAME" or "NAME=VALUE". */
static bool is_ours(const char *variable)
{
	static const char *const ours[] = {"LD_PRELOAD", "VGPU_POLICY",
					   "CUDA_DEVICE_MEMORY_SHARED_CACHE"};
	size_t len = strcspn(variable, "=");

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (strlen(ours[i]) == len && strncmp(ours[i], variable, len) == 0)
			return true;
	return false;
}

/* Copies the first word of text for -S, without its quotes: how much of text it is, or 0 where it
 * is not understood. */
static size_t copy_word(const char *text, char *word, size_t *ret_len)
{
	const char *from = text;
	size_t len = 0;
	char quote = '\0';

	for (; *from && (quote || !strchr(BLANKS, *from)); from++) {
		if (strchr("\\$#", *from))
			return 0;
		if (quote ? *from == quote : (*from == '"' || *from == '\''))
			quote = quote ? '\0' : *from;
		else
			word[len++] = *from;
	}
	*ret_len = len;
	return quote ? 0 : (size_t)(from - text);
}

/* Puts the words of text before all others. */
static bool split(struct program_words *words, const char *text)
{
	char word[PROGRAM_TEXT_MAX];
	unsigned first = words->count;
	size_t len, taken;

	if (strlen(text) >= sizeof(word))
		return false;
	for (text += strspn(text, BLANKS); *text; text += taken + strspn(text + taken, BLANKS)) {
		taken = copy_word(text, word, &len);
		if (!taken || !program_words_put(words, word, len))
			return false;
	}
	for (unsigned last = words->count; first + 1 < last; first++) {
		const char *swapped = words->added[first];

		words->added[first] = words->added[--last];
		words->added[last] = swapped;
	}
	return true;
}

/* False: the option is not understood, or ends env. */
static bool obey(struct program_words *words, const struct env_option *option, const char *word,
		 const char *value, struct program_surroundings *surroundings)
{
	switch (option->effect) {
	case NONE:
		return true;
	case CLEARS:
		surroundings->lost = word;
		surroundings->path = NULL;
		return true;
	case UNSETS:
		if (is_ours(value))
			surroundings->lost = value;
		if (strcmp(value, "PATH") == 0)
			surroundings->path = NULL;
		return true;
	case CHANGES_DIRECTORY:
		surroundings->dir = value;
		return true;
	case SPLITS:
		if (split(words, value))
			return true;
		surroundings->unreadable = value;
		return false;
	case ENDS:
		return false;
	}
	return false;
}

static bool read_long(struct program_words *words, const char *word,
		      struct program_surroundings *surroundings)
{
	size_t len = strcspn(word + 2, "=");
	const struct env_option *option = find_name(word + 2, len);
	const char *value = word[2 + len] ? word + 2 + len + 1 : NULL;

	if (option && option->takes == 1 && !value)
		value = program_words_take(words);
	if (!option || (option->takes == 1 && !value)) {
		surroundings->unreadable = word;
		return false;
	}
	return obey(words, option, word, value, surroundings);
}

/* Letters after one dash; a value is the rest of the word, or the next word. */
static bool read_letters(struct program_words *words, const char *word,
			 struct program_surroundings *surroundings)
{
	for (const char *at = word + 1; *at; at++) {
		const struct env_option *option = find_letter(*at);
		const char *value = NULL;

		if (option && option->takes == 1)
			value = at[1] ? at + 1 : program_words_take(words);
		if (!option || (option->takes == 1 && !value)) {
			surroundings->unreadable = word;
			return false;
		}
		if (!obey(words, option, word, value, surroundings))
			return false;
		if (value)
			break;
	}
	return true;
}

const char *program_words_env(struct program_words *words,
			      struct program_surroundings *surroundings)
{
	const char *word;

	while ((word = program_words_take(words)) && word[0] == '-') {
		if (strcmp(word, "--") == 0) {
			word = program_words_take(words);
			break;
		}
		if (word[1] == '\0') { /* as -i, and the end of options */
			surroundings->lost = word;
			surroundings->path = NULL;
			word = program_words_take(words);
			break;
		}
		if (word[1] == '-' ? !read_long(words, word, surroundings)
				   : !read_letters(words, word, surroundings))
			return NULL;
	}
	for (; word && strchr(word, '='); word = program_words_take(words)) {
		if (is_ours(word))
			surroundings->lost = word;
		if (strncmp(word, "PATH=", 5) == 0)
			surroundings->path = word + 5;
	}
	return word;
}
