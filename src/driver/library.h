/*
 * A library of the driver's that the process has loaded: libcuda or NVML. What cuda.c and nvml.c
 * share: finding it, and telling its own functions from those of wrappers that are preloaded behind
 * us.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lock.h"
#include "objects.h"

struct library {
	const char *soname;
	const char *rarities[3]; /* names that it exports and nobody has a reason to wrap */
	void (*fill)(void);      /* takes what is wanted from it, when it was found */

	struct lock binding;  /* guards what follows */
	bool bound;           /* release when all is filled, acquire before anything is read */
	struct object object; /* all zero when it is of another namespace: then there is a handle */
	void *handle;
	bool global; /* it is in the global scope, so that wrappers behind us can find it */
};

/*
 * Finds the library among the loaded objects by its DT_SONAME, keeps it loaded from then on, and
 * calls fill. We never load it: whoever asks for its functions has. Returns whether it is bound; an
 * atomic load when it is.
 */
bool library_bind(struct library *library);

/* The same through a handle of dlopen or dlmopen, for one that is not in the program's namespace.
 */
bool library_bind_from(struct library *library, void *handle);

/* The library's own function, whoever wraps it; NULL if it has none, or is not bound. */
void *library_symbol(const struct library *library, const char *name);

/* In fill: stores what a call of ours should reach into *slot, a wrapper's function or the
 * library's own. Leaves it as it is where the library has none. */
void library_take(const struct library *library, const char *name, void *slot);
