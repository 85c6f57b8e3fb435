/* A command line in the making, while program.c follows what it starts: arguments of argv, with
 * those put before them that scripts and env -S add. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PROGRAM_WORDS_MAX 64
#define PROGRAM_TEXT_MAX  4096

struct program_words {
	const char *added[PROGRAM_WORDS_MAX]; /* the last one comes first */
	unsigned count;
	char *const *more; /* then these, to a NULL */
	char text[PROGRAM_TEXT_MAX];
	size_t used;
};

/* The changes that env(1) makes for the command that it starts. */
struct program_surroundings {
	const char *path;       /* PATH; NULL: not set */
	const char *dir;        /* where relative paths begin; NULL: in this directory */
	const char *lost;       /* the option or argument by which the slice gets lost; or NULL */
	const char *unreadable; /* an argument that is not understood; or NULL */
};

/* The first word, taken off; NULL: there is none. */
const char *program_words_take(struct program_words *words);
/* Puts a copy of the word before all others; false: there is no room. */
bool program_words_put(struct program_words *words, const char *word, size_t len);

/* Takes env's arguments off, up to the command that it starts: that, or NULL where there is none,
 * or where an argument is not understood. */
const char *program_words_env(struct program_words *words,
			      struct program_surroundings *surroundings);
