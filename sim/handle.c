/*
 * The valid handles: a set of the addresses that were given to the application, with the kind of
 * each. One lock guards the set, and is taken last. A handle that is in the set may be removed at
 * the next moment. So a function that uses the handle's object holds the lock under which the
 * object's handle is removed.
 */
#include "sim.h"

#include <search.h>
#include <stdlib.h>

struct known {
	const void *object;
	enum handle_kind kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *all; /* struct known by object; lock */

static int known_compare(const void *left, const void *right)
{
	uintptr_t a = (uintptr_t)((const struct known *)left)->object;
	uintptr_t b = (uintptr_t)((const struct known *)right)->object;

	return a < b ? -1 : a > b;
}

bool handle_add(const void *object, enum handle_kind kind)
{
	struct known *known = malloc(sizeof *known);

	if (!known)
		return false;
	*known = (struct known){object, kind};
	pthread_mutex_lock(&lock);
	bool added = tsearch(known, &all, known_compare) != NULL;
	pthread_mutex_unlock(&lock);
	if (!added)
		free(known);
	return added;
}

bool handle_is(const void *object, enum handle_kind kind)
{
	struct known key = {.object = object};

	pthread_mutex_lock(&lock);
	struct known **node = tfind(&key, &all, known_compare);
	bool is = node && (*node)->kind == kind;
	pthread_mutex_unlock(&lock);
	return is;
}

void handle_remove(const void *object)
{
	struct known key = {.object = object}, *known = NULL;

	pthread_mutex_lock(&lock);
	struct known **node = tfind(&key, &all, known_compare);
	if (node) {
		known = *node;
		tdelete(known, &all, known_compare);
	}
	pthread_mutex_unlock(&lock);
	free(known);
}
