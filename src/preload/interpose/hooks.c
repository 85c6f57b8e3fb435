/*
 * There are two indexes over one list. The index by name is filled at the first question. The index
 * by the originals' addresses is filled as soon as the library they come from is bound. Both are
 * open-addressed arrays with room for many times what is in them. They are written under `filling`;
 * entries are stored with release and read with acquire, so a reader sees a whole hook or none.
 */
#include "hooks.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cuda.h"
#include "hash.h"
#include "libc.h"
#include "lock.h"
#include "nvml.h"

static const struct hook hooks[] = {
#define CU_HOOK(name, class, parameters, arguments) {#name, (void *)name, HOOK_OF_CUDA},
#include "cuda.def"
#define NVML_HOOK(name, parameters, arguments) {#name, (void *)name, HOOK_OF_NVML},
#include "nvml.def"
	{"dlsym", (void *)dlsym, HOOK_OF_LIBC},
	{"dlvsym", (void *)dlvsym, HOOK_OF_LIBC},
	{"dlopen", (void *)dlopen, HOOK_OF_LIBC},
};

#define HOOKS   (sizeof(hooks) / sizeof(hooks[0]))
#define BUCKETS 4096

_Static_assert(HOOKS * 4 < BUCKETS, "the indexes need room: a hook may have two originals");

struct original {
	const void *address;
	const struct hook *hook; /* stored last */
};

static struct lock filling = LOCK_INIT;
static const struct hook *by_name[BUCKETS];
static struct original by_address[BUCKETS];
static bool names_filled;                       /* release after by_name */
static bool originals_filled[HOOK_OF_LIBC + 1]; /* release after by_address */

static size_t bucket_of_name(const char *name)
{
	return (size_t)hash_bytes(name, strlen(name)) % BUCKETS;
}

static size_t bucket_of_address(const void *address)
{
	return (size_t)(hash_word((uintptr_t)address) >> 40) % BUCKETS;
}

static void fill_names(void)
{
	lock_acquire(&filling);
	for (size_t i = 0; i < HOOKS && !names_filled; i++) {
		size_t at = bucket_of_name(hooks[i].name);

		while (by_name[at])
			at = (at + 1) % BUCKETS;
		by_name[at] = &hooks[i];
	}
	__atomic_store_n(&names_filled, true, __ATOMIC_RELEASE);
	lock_release(&filling);
}

/* "cu", "nvml" or "dl": spares nearly every lookup of a process the hashing. */
static bool may_be_hooked(const char *name)
{
	return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'd' && name[1] == 'l') ||
	       (name[0] == 'n' && name[1] == 'v');
}

const struct hook *hook_named(const char *name)
{
	if (!may_be_hooked(name))
		return NULL;
	if (!__atomic_load_n(&names_filled, __ATOMIC_ACQUIRE))
		fill_names();
	for (size_t at = bucket_of_name(name); by_name[at]; at = (at + 1) % BUCKETS)
		if (strcmp(by_name[at]->name, name) == 0)
			return by_name[at];
	return NULL;
}

static void add_original(const struct hook *hook, const void *address)
{
	size_t at = bucket_of_address(address);

	while (by_address[at].hook && by_address[at].address != address)
		at = (at + 1) % BUCKETS;
	by_address[at].address = address;
	__atomic_store_n(&by_address[at].hook, hook, __ATOMIC_RELEASE);
}

/* The function that a hook calls: the driver's, or that of a wrapper in between. */
static const void *next_of(const struct hook *hook)
{
	const void *next = NULL;

#define CU_HOOK(function, class, parameters, arguments) \
	if (hook->ours == (void *)function)             \
		next = (const void *)cuda.function;
#include "cuda.def"
#define NVML_HOOK(function, parameters, arguments) \
	if (hook->ours == (void *)function)        \
		next = (const void *)nvml.function;
#include "nvml.def"
	return next;
}

static bool library_is_bound(enum hook_origin origin)
{
	switch (origin) {
	case HOOK_OF_CUDA:
		return cuda_bind();
	case HOOK_OF_NVML:
		return nvml_bind();
	case HOOK_OF_LIBC:
		break;
	}
	return true;
}

void *hook_original(const struct hook *hook)
{
	if (!library_is_bound(hook->origin))
		return NULL;
	if (hook->origin == HOOK_OF_CUDA)
		return cuda_driver_symbol(hook->name);
	if (hook->origin == HOOK_OF_NVML)
		return nvml_driver_symbol(hook->name);
	return strcmp(hook->name, "dlsym") == 0    ? (void *)libc_functions()->dlsym
	       : strcmp(hook->name, "dlvsym") == 0 ? (void *)libc_functions()->dlvsym
						   : (void *)libc_functions()->dlopen;
}

/* The originals are looked up before the lock is taken, as looking up may take the loader's lock
 * (driver/library.c says why that matters). */
static void fill_originals(enum hook_origin origin)
{
	const void *own[HOOKS] = {0};

	for (size_t i = 0; i < HOOKS; i++)
		if (hooks[i].origin == origin)
			own[i] = hook_original(&hooks[i]);
	lock_acquire(&filling);
	for (size_t i = 0; i < HOOKS && !originals_filled[origin]; i++) {
		const void *next = own[i] ? next_of(&hooks[i]) : NULL;

		if (own[i])
			add_original(&hooks[i], own[i]);
		if (next && next != own[i])
			add_original(&hooks[i], next);
	}
	__atomic_store_n(&originals_filled[origin], true, __ATOMIC_RELEASE);
	lock_release(&filling);
}

void hooks_forked(void)
{
	lock_init(&filling);
}

const struct hook *hook_of_pointer(enum hook_origin origin, const void *original)
{
	const struct hook *hook;

	if (!original)
		return NULL;
	if (!__atomic_load_n(&originals_filled[origin], __ATOMIC_ACQUIRE)) {
		if (!library_is_bound(origin))
			return NULL;
		fill_originals(origin);
	}
	for (size_t at = bucket_of_address(original);; at = (at + 1) % BUCKETS) {
		hook = __atomic_load_n(&by_address[at].hook, __ATOMIC_ACQUIRE);
		if (!hook || by_address[at].address == original)
			return hook;
	}
}
