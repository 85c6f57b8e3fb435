/*
 * Two sources. Hooks in preload (peers.c, ipc.c and launch.c) report devices whose memory becomes
 * accessible from another device. Without such access, NCCL's kernels wait for each other through
 * the host's memory, so kernels of libraries for collectives are known by their names. A kernel
 * that is captured while the process has no compute limit is not looked at, nor is a kernel node
 * that is added to a graph by itself.
 *
 * A launch knows a kernel by its handle alone, so handles are kept as they are handed out, in a
 * hash table that is never locked. A free place ends the search for a handle, so that a launch of
 * anything else costs one look at a place that is nearly always free. A place that was taken
 * becomes GONE and not free, because handles that lie after it must be found.
 *
 * The table has room for the 480 kernels of a library, each with a handle as CUkernel and one as
 * CUfunction on each of 16 devices. NCCL has fewer than that. A handle that finds no place is not
 * kept. The program has launched, or will launch, others of the same library.
 */
#include "signs.h"

#include <string.h>

#include "hash.h"
#include "pace.h"
#include "relaxed.h"

/* -- devices ----------------------------------------------------------------------------------- */

static unsigned seen; /* atomic; a bit for each device of which there is a sign */

void signs_see(int device)
{
	if (device >= 0 && device < VGPU_DEVICES_MAX)
		__atomic_fetch_or(&seen, 1u << device, __ATOMIC_RELAXED);
}

bool signs_launch(int device, uint64_t function)
{
	bool is_collective = signs_is_collective(function);

	if (device < 0 || device >= VGPU_DEVICES_MAX)
		return is_collective;
	if (is_collective)
		signs_see(device);
	if (RELAXED_LOAD(seen) & 1u << device)
		pace_join_gang(device);
	return is_collective;
}

/* -- names ------------------------------------------------------------------------------------- */

/* The beginnings of names of kernels that wait for each other, or of their namespaces. */
static const char *const prefixes[] = {
	"nccl",    /* NCCL: ncclKernel_…, ncclDevKernel_…, ncclSymkDevKernel_… */
	"nvshmem", /* NVSHMEM: nvshmem_…, nvshmemi_… */
	"msccl",   /* MSCCL: mscclKernel_…; MSCCL++: mscclpp::… */
};

/* The first identifier of a name that may be mangled by the Itanium C++ ABI. Such a name has "_Z",
 * "N" if a namespace comes first, "L" if it is static, and each identifier after its length. */
static const char *identifier(const char *name)
{
	if (name[0] != '_' || name[1] != 'Z')
		return name;
	name += 2;
	name += *name == 'N';
	name += *name == 'L';
	return name + strspn(name, "0123456789");
}

static bool is_name_of_collective(const char *name)
{
	const char *first = identifier(name);

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (strncmp(first, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* -- handles ----------------------------------------------------------------------------------- */

#define PLACES 8192
#define TRIES  64 /* places in a row that a handle may lie in */
#define GONE   ((uint64_t)1)

static uint64_t places[PLACES]; /* atomic; 0: free, GONE, or cost_of.function */
static bool any;                /* atomic; some handle was ever kept */

static uint64_t *place_of(uint64_t name, unsigned i)
{
	return &places[((hash_word(name) >> 48) + i) % PLACES];
}

/* The place of the handle, or NULL. */
static uint64_t *find(uint64_t name)
{
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t *place = place_of(name, i);
		uint64_t there = RELAXED_LOAD(*place);

		if (there == name)
			return place;
		if (!there)
			break;
	}
	return NULL;
}

/* Two threads that keep the same handle at a time may keep it twice. */
static void keep(uint64_t name)
{
	if (find(name))
		return;
	RELAXED_STORE(any, true);
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t *place = place_of(name, i);
		uint64_t there = RELAXED_LOAD(*place);

		if ((!there || there == GONE) &&
		    __atomic_compare_exchange_n(place, &there, name, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return;
	}
}

/* The driver has given the handle to another kernel, after the code of the first was unloaded. */
static void drop(uint64_t name)
{
	uint64_t *place;

	while (RELAXED_LOAD(any) && (place = find(name)))
		RELAXED_STORE(*place, GONE);
}

static void know(uint64_t function, bool is_collective)
{
	if (is_collective)
		keep(function);
	else
		drop(function);
}

bool signs_is_collective(uint64_t function)
{
	return RELAXED_LOAD(any) && find(function);
}

void signs_name(uint64_t function, const char *name)
{
	know(function, is_name_of_collective(name));
}

void signs_name_as(uint64_t function, uint64_t kernel)
{
	know(function, signs_is_collective(kernel));
}

void signs_forked(void)
{
	seen = 0;
	if (any)
		memset(places, 0, sizeof(places));
	any = false;
}
