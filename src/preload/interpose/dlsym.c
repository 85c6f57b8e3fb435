/*
 * dlsym, dlvsym and dlopen: which calls are answered here, and which are passed on to the loader.
 * The entry points are in dlsym.S.
 *
 * A lookup of a name without a hook is passed on at once. For a name with a hook, the loader is
 * asked first, and its answer decides:
 *
 *     the loader finds                                  the application gets
 *     nothing                                           nothing: it must see that the driver lacks
 *                                                       the function
 *     the driver's own function, or that of a wrapper   the hook
 *     between this library and the driver
 *     another function                                  that function
 *
 * Other wrappers of the driver may be loaded as well. A wrapper before this library in the load
 * order that asks for the next definition (RTLD_NEXT) gets the hook. A wrapper after this library,
 * whose functions the hooks call, must get the definition after its own. So a caller that defines
 * the name and comes after this library gets the loader's own answer; otherwise it would find
 * itself.
 */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"
#include "deepbind.h"
#include "hooks.h"
#include "libc.h"
#include "log.h"
#include "newer.h"
#include "objects.h"
#include "state.h"

/* Two words, returned in two registers: dlsym.S. */
struct answer {
	void *value;
	void *pass_to; /* the function that the call is passed on to; NULL: value is the answer */
};

struct answer interpose_dlsym(void *handle, const char *name, void *caller);
struct answer interpose_dlvsym(void *handle, const char *name, const char *version, void *caller);
struct answer interpose_dlopen(const char *path, int mode, void *caller);

struct lookup {
	void *handle;
	const char *name;
	const char *version; /* NULL: dlsym */
	void *caller;
	const struct hook *hook;
};

static struct answer answer(void *value)
{
	return (struct answer){value, NULL};
}

static struct answer pass_on(const struct lookup *lookup)
{
	const struct libc_functions *next = next_functions();

	return (struct answer){NULL, lookup->version ? (void *)next->dlvsym : (void *)next->dlsym};
}

/* The loader's answer for the given handle, with this library as the caller. */
static void *look_up(const struct lookup *lookup, void *handle)
{
	const struct libc_functions *libc = libc_functions();

	return lookup->version ? libc->dlvsym(handle, lookup->name, lookup->version)
			       : libc->dlsym(handle, lookup->name);
}

/* -- the load order ---------------------------------------------------------------------------- */

enum place { BEFORE_US, AFTER_US };

/* The load order as seen from one caller and for one name. */
struct surroundings {
	const char *name;
	const void *self, *caller; /* dynamic sections */
	enum place walked;         /* whether the walk has passed this library */
	bool past_caller;
	enum place caller_place;
	bool caller_defines;    /* the caller is a wrapper */
	bool defined_before_us; /* by a wrapper, before us in the order */
	bool defined_between;   /* by a wrapper, after the caller and before us */
};

static bool survey_one(void *arg, const struct object *object)
{
	struct surroundings *s = arg;
	void *defined;

	if (object->dynamic == s->self) {
		s->walked = AFTER_US;
		return false;
	}
	defined = object_symbol(object, s->name);
	if (object->dynamic == s->caller) {
		s->caller_place = s->walked;
		s->caller_defines = defined != NULL;
		s->past_caller = true;
		defined = NULL;
	}
	if (!defined)
		return false;
	s->defined_before_us |= s->walked == BEFORE_US;
	s->defined_between |= s->walked == BEFORE_US && s->past_caller;
	return false;
}

static bool survey(const struct lookup *lookup, struct surroundings *ret_surroundings)
{
	struct object self, caller;

	if (!objects_containing(lookup->hook->ours, &self) ||
	    !objects_containing(lookup->caller, &caller))
		return false;
	*ret_surroundings = (struct surroundings){
		.name = lookup->name, .self = self.dynamic, .caller = caller.dynamic};
	objects_each(survey_one, ret_surroundings);
	return true;
}

/* Whether the caller is a wrapper of that function, after us in the order. Hardly any caller is a
 * wrapper at all. */
static bool caller_comes_after(const struct lookup *lookup)
{
	struct object caller;
	struct surroundings s;

	return objects_containing(lookup->caller, &caller) &&
	       object_symbol(&caller, lookup->name) && survey(lookup, &s) &&
	       s.caller_place == AFTER_US;
}

/* -- answers ----------------------------------------------------------------------------------- */

/* Whether lookups of that library's functions are answered with hooks. The slice is read only when
 * a function of the driver is looked up; the loader's own functions are hooked in any case. */
static bool is_enforced(const struct hook *hook)
{
	return hook->origin == HOOK_OF_LIBC || state_get() != STATE_INERT;
}

/* Whether a function, which is not of the copy of the driver that is bound, is of another copy. */
static bool is_of_other_copy(const struct lookup *lookup, const void *found)
{
	struct object object;

	if (lookup->hook->origin != HOOK_OF_CUDA)
		return false;
	return !objects_containing(found, &object) || /* of another namespace: dlmopen */
	       strcmp(object_soname(&object), CUDA_SONAME) == 0;
}

/* The first copy of the driver that is asked for is bound, wherever it is. Functions of a second
 * copy are not handed out. */
static void *translate_other_copy(const struct lookup *lookup, const void *found)
{
	const struct hook *hook =
		cuda_bind_from(lookup->handle) ? hook_of_pointer(HOOK_OF_CUDA, found) : NULL;

	if (hook)
		return hook->ours;
	log_line(LOG_ERROR,
		 "%s of a second copy of libcuda.so.1 is withheld: a slice can be enforced on one "
		 "copy only; load the driver once",
		 lookup->name);
	return NULL;
}

/* The answer to the application where the loader has found that pointer. */
static void *translate(const struct lookup *lookup, void *found)
{
	const struct hook *hook;

	if (!found || !is_enforced(lookup->hook))
		return found;
	hook = hook_of_pointer(lookup->hook->origin, found);
	if (!hook && is_of_other_copy(lookup, found))
		return translate_other_copy(lookup, found);
	return !hook || caller_comes_after(lookup) ? found : hook->ours;
}

/* The answer where the loader would find our own export: what it would find without this library,
 * translated. A driver outside the global scope counts as found. The driver's names have no
 * versions, so a lookup of such a name with a version fails, as it does without this library. */
static struct answer in_our_place(const struct lookup *lookup)
{
	void *original = lookup->version ? NULL : hook_original(lookup->hook);
	void *below = look_up(lookup, RTLD_NEXT); /* leaves its dlerror if there is none */

	if (!below && original) {
		libc_functions()->dlerror();
		below = original;
	}
	return answer(translate(lookup, below));
}

/* The definition of that name in the caller's own dependencies, or NULL. */
static void *look_up_for_caller(const struct lookup *lookup)
{
	const struct libc_functions *libc = libc_functions();
	struct object caller;
	void *handle = NULL, *found = NULL;

	if (objects_containing(lookup->caller, &caller))
		handle = libc->dlopen(*caller.path ? caller.path : NULL, RTLD_LAZY | RTLD_NOLOAD);
	if (handle) {
		found = look_up(lookup, handle);
		libc->dlclose(handle);
	}
	libc->dlerror();
	return found;
}

static struct answer answer_next(const struct lookup *lookup)
{
	struct surroundings s;
	void *found;

	if (!survey(lookup, &s) || s.defined_between)
		return pass_on(lookup);
	if (s.caller_place == BEFORE_US)
		return in_our_place(lookup);
	found = s.caller_defines ? NULL : look_up_for_caller(lookup);
	return found ? answer(translate(lookup, found)) : pass_on(lookup);
}

static struct answer answer_default(const struct lookup *lookup)
{
	struct surroundings s;

	if (!survey(lookup, &s) || s.defined_before_us)
		return pass_on(lookup);
	return in_our_place(lookup);
}

static struct answer answer_lookup(const struct lookup *lookup)
{
	void *found;

	if (!libc_functions()->dlsym)
		return pass_on(lookup);
	if (lookup->handle == RTLD_NEXT)
		return answer_next(lookup);
	if (lookup->handle == RTLD_DEFAULT)
		return answer_default(lookup);
	found = look_up(lookup, lookup->handle);
	if (found == lookup->hook->ours)
		return in_our_place(lookup); /* a handle of the global scope: dlopen(NULL) */
	return answer(translate(lookup, found));
}

struct answer interpose_dlvsym(void *handle, const char *name, const char *version, void *caller)
{
	struct lookup lookup = {handle, name, version, caller, name ? hook_named(name) : NULL};

	if (lookup.hook)
		return answer_lookup(&lookup);
	if (name)
		newer_looked_up(name);
	return pass_on(&lookup);
}

struct answer interpose_dlsym(void *handle, const char *name, void *caller)
{
	return interpose_dlvsym(handle, name, NULL, caller);
}

struct answer interpose_dlopen(const char *path, int mode, void *caller)
{
	if (mode & RTLD_DEEPBIND)
		return answer(deepbind_open(path, mode, caller));
	return (struct answer){NULL, (void *)next_functions()->dlopen};
}
