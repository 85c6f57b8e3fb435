/*
 * dlsym, dlvsym and dlopen, behind the entries of dlsym.S: what we answer ourselves and what we
 * pass on.
 *
 * A name that we do not hook is passed on at once. For one that we do, the loader is asked first,
 * and what it finds decides:
 *   - nothing: then that is the answer; a driver that lacks a function must be seen to lack it;
 *   - the driver's own function, or that of a wrapper between us and the driver: our hook;
 *   - anything else: is handed on, it is some other library's business.
 *
 * Other wrappers live beside us. One that is preloaded before us and asks for what comes next
 * gets our hook; one behind us, whose functions our hooks call, must get what lies below itself:
 * who defines the name and stands behind us gets the loader's own answer, or it would find itself.
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
	void *pass_to; /* where the call goes on, NULL: value is the answer */
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

/* As the loader finds it from the given handle, for us as the caller. */
static void *look_up(const struct lookup *lookup, void *handle)
{
	const struct libc_functions *libc = libc_functions();

	return lookup->version ? libc->dlvsym(handle, lookup->name, lookup->version)
			       : libc->dlsym(handle, lookup->name);
}

/* -- who stands where -- */

enum place { BEFORE_US, BEHIND_US };

/* The load order as seen from one caller and for one name. */
struct surroundings {
	const char *name;
	const void *self, *caller; /* dynamic sections */
	enum place walked;         /* where the walk is */
	bool past_caller;
	enum place caller_place;
	bool caller_defines;    /* the caller is a wrapper */
	bool defined_before_us; /* by a wrapper, before us in the order */
	bool defined_between;   /* by a wrapper, behind the caller and before us */
};

static bool survey_one(void *arg, const struct object *object)
{
	struct surroundings *s = arg;
	void *defined;

	if (object->dynamic == s->self) {
		s->walked = BEHIND_US;
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

/* Whether the caller is a wrapper of that function behind us. Hardly any caller is one at all. */
static bool caller_is_behind(const struct lookup *lookup)
{
	struct object caller;
	struct surroundings s;

	return objects_containing(lookup->caller, &caller) &&
	       object_symbol(&caller, lookup->name) && survey(lookup, &s) &&
	       s.caller_place == BEHIND_US;
}

/* -- answers -- */

/* Whether lookups of that library's functions are answered with hooks. Reading the slice has to
 * wait until a driver's function was asked for; the loader's own are hooked in any case. */
static bool is_enforced(const struct hook *hook)
{
	return hook->origin == HOOK_OF_LIBC || state_get() != STATE_INERT;
}

/* Whether a function that is not of the driver that we have bound is of another copy of it. */
static bool is_of_other_copy(const struct lookup *lookup, const void *found)
{
	struct object object;

	if (lookup->hook->origin != HOOK_OF_CUDA)
		return false;
	return !objects_containing(found, &object) || /* of another namespace: dlmopen */
	       strcmp(object_soname(&object), CUDA_SONAME) == 0;
}

/* The first copy that is asked for is bound, wherever it is. Of a second one nothing is given out.
 */
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

/* What a pointer that the loader found becomes. */
static void *translate(const struct lookup *lookup, void *found)
{
	const struct hook *hook;

	if (!found || !is_enforced(lookup->hook))
		return found;
	hook = hook_of_pointer(lookup->hook->origin, found);
	if (!hook && is_of_other_copy(lookup, found))
		return translate_other_copy(lookup, found);
	return !hook || caller_is_behind(lookup) ? found : hook->ours;
}

/* Where the loader would find our own export: what it would find if we were not there, translated.
 * A driver out of the global scope counts as found. The driver's names have no versions, so a
 * lookup of one with a version fails, as it does without us. */
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

/* What the caller's own libraries have of that name. */
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
