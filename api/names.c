/*
 * The names of api/symbols as a set, and the properties that a name shows.
 *
 * The names are one string, so that the loader has nothing to relocate; their hashes are put into a
 * table at the first question. Threads may do that at the same time: an entry is stored once, and
 * all store the same. An unknown name with the hash of a listed name counts as known. The list has
 * no two names with one hash, but a future name may have the hash of a listed one, and is then not
 * recognised as new.
 */
#include "names.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ENTRIES 4096

static const char known[] =
#include "known_names.inc"
	;

static uint32_t hashes[ENTRIES]; /* 0: free; atomic */
static bool filled;              /* release after hashes */

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash ? hash : 1;
}

/* The place of the hash, or the free one where it would be. */
static uint32_t *place_of(uint32_t hash)
{
	uint32_t at = hash % ENTRIES, found;

	while ((found = __atomic_load_n(&hashes[at], __ATOMIC_RELAXED)) != 0 && found != hash)
		at = (at + 1) % ENTRIES;
	return &hashes[at];
}

static void store(uint32_t hash)
{
	uint32_t nothing = 0, *place = place_of(hash);

	while (*place != hash && !__atomic_compare_exchange_n(place, &nothing, hash, false,
							      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		nothing = 0;
		place = place_of(hash);
	}
}

static void fill(void)
{
	for (const char *name = known; *name; name += strlen(name) + 1)
		store(hash_of(name));
	__atomic_store_n(&filled, true, __ATOMIC_RELEASE);
}

static bool is_known(const char *name)
{
	if (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE))
		fill();
	return __atomic_load_n(place_of(hash_of(name)), __ATOMIC_RELAXED) != 0;
}

static bool has_one_of(const char *name, const char *const *words)
{
	for (; *words; words++)
		if (strstr(name, *words))
			return true;
	return false;
}

/* The list leaves out the interop with graphics, but for what makes contexts: symbols/exported.sh.
 */
static bool is_of_graphics(const char *name)
{
	static const char *const words[] = {"GL", "Egl", "VDPAU", NULL};

	return has_one_of(name, words) && !strstr(name, "Ctx");
}

static bool sounds_like_memory(const char *name)
{
	static const char *const words[] = {"Alloc",       "Create", "Import",  "Load", "Map",
					    "Instantiate", "Open",   "Reserve", NULL};

	return has_one_of(name, words);
}

/* Names of the driver API are "cu" and a word that begins with a capital; cudbg is the debugger's.
 */
bool names_is_new_memory(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
	       sounds_like_memory(name) && !is_of_graphics(name) && !is_known(name);
}
