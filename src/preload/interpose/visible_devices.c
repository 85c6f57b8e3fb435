/*
 * Hides the GPUs that are not in the slice. The driver itself can hide and renumber GPUs, and does
 * so in all its functions, those for peers and its errors included. So while the driver's cuInit
 * runs, CUDA_VISIBLE_DEVICES has the value that slice/visible.c makes of the policy and of the
 * application's own value. Afterwards it has the application's own value again. The driver (580)
 * reads the variable in each cuInit until one succeeds, and then never again. A context on a GPU
 * outside the slice is refused as well (context.c), however the application came to see the GPU.
 *
 * Other threads may read the environment meanwhile, without a lock, as getenv does. So setenv is
 * not used: glibc's may free the array that they read. If the variable is set, its entry in the
 * array is made to point at our text, and afterwards at the application's text. If it is not set,
 * the array is copied, with our text as the last entry, into an array that is never freed and
 * becomes the environment. That entry is removed afterwards. Each of these steps stores one
 * pointer. So a thread that reads always finds a whole environment, and at worst our list in it. A
 * thread that changes the environment at the same time is not provided for; POSIX forbids that
 * while other threads run. If such a thread has replaced our entry, its entry stays.
 *
 * `editing` guards all of this and is not held while NVML or the driver work. Calls of cuInit at
 * the same time share one list, which the last of them to return removes. If the process is killed,
 * its environment ends with it. A child that is forked or spawned meanwhile may find our list,
 * which means the same GPUs in the child.
 */
#include "visible_devices.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lock.h"
#include "log.h"
#include "nvml.h"
#include "state.h"
#include "sys.h"
#include "visible.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES="

#define NVML_TRIES   100
#define NVML_WAIT_NS ((uint64_t)10000000)

static struct lock editing = LOCK_INIT;
static unsigned callers;  /* of cuInit, between begin and end */
static bool settled;      /* a cuInit has succeeded; atomic */
static char *theirs;      /* the application's entry that ours replaces; NULL: it has none */
static char **longer;     /* our copy of the environment, and how many entries it has room for */
static size_t longer_max; /* one more has the NULL at its end */

/* The last byte is always 0, also for a thread that reads the text while it is written again. */
static char ours[sizeof(VARIABLE) + VISIBLE_LIST_LEN] = VARIABLE;

static bool order_known; /* and constant from then on */
static struct visible_order order;

/* -- the environment --------------------------------------------------------------------------- */

static char **entries(void)
{
	return __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
}

static void store(char **entry, char *text)
{
	__atomic_store_n(entry, text, __ATOMIC_RELEASE); /* for getenv, which reads it plainly */
}

static char **find_variable(void)
{
	for (char **entry = entries(); entry && *entry; entry++)
		if (strncmp(*entry, VARIABLE, strlen(VARIABLE)) == 0)
			return entry;
	return NULL;
}

static void add_ours(void)
{
	char **from = entries();
	void *addr;
	size_t count = 0;

	while (from && from[count])
		count++;
	if (count + 1 > longer_max) {
		if (sys_map_private((count + 2) * sizeof(*longer), &addr) != 0)
			return; /* the application sees the hidden GPUs, and contexts on them are
				   refused */
		longer = addr;
		longer_max = count + 1;
	}
	for (size_t i = 0; longer != from && i < count; i++)
		store(&longer[i], from[i]);
	store(&longer[count + 1], NULL);
	store(&longer[count], ours);
	__atomic_store_n(&environ, longer, __ATOMIC_RELEASE);
}

static void put_ours(void)
{
	char **entry = find_variable();

	theirs = entry ? *entry : NULL;
	if (entry)
		store(entry, ours);
	else
		add_ours();
}

/* Does nothing if our entry is not in the array: it was not needed, or a thread has replaced it. */
static void put_theirs(void)
{
	char **entry = entries();

	while (entry && *entry && *entry != ours)
		entry++;
	if (!entry || !*entry)
		return;
	if (theirs) {
		store(entry, theirs);
		return;
	}
	for (; *entry; entry++)
		store(entry, entry[1]);
}

/* -- the value of the variable ----------------------------------------------------------------- */

/* -EAGAIN: another thread of the process is in NVML, and is waited for. No lock is held here that
 * it may need. */
static int place_of(const char *uuid, unsigned *ret_count)
{
	int place = nvml_place(uuid, ret_count);

	for (unsigned tries = 0; place == -EAGAIN && tries < NVML_TRIES; tries++) {
		sys_sleep_ns(NVML_WAIT_NS);
		place = nvml_place(uuid, ret_count);
	}
	return place;
}

/* Without NVML the order is not known, and gpu_count is 0. */
static void find_order(const struct policy *policy, struct visible_order *ret_order)
{
	struct visible_order found = {.gpu_count = 0};

	for (unsigned i = 0; i < policy->device_count; i++) {
		found.place[i] = place_of(policy->device[i].uuid, &found.gpu_count);
		if (found.place[i] < 0 && found.place[i] != -ENODEV) {
			found.gpu_count = 0;
			break;
		}
	}
	*ret_order = found;
}

static const char *asked(void)
{
	char **entry = find_variable();

	return entry ? *entry + strlen(VARIABLE) : NULL;
}

/* `editing` is held by the caller, and released while NVML is asked. */
static void learn_order_locked(const struct policy *policy)
{
	struct visible_order found;

	lock_release(&editing);
	find_order(policy, &found);
	lock_acquire(&editing);
	if (!order_known)
		order = found;
	order_known = true;
}

static void edit_locked(const struct policy *policy)
{
	const char *value = asked();
	char list[VISIBLE_LIST_LEN];

	if (!visible_compose(policy, value, &order, list) || (value && strcmp(value, list) == 0))
		return;
	log_line(LOG_DEBUG, "the driver is shown CUDA_VISIBLE_DEVICES=%s instead of %s", list,
		 value ? value : "none");
	if (strcmp(ours + strlen(VARIABLE), list) != 0)
		memcpy(ours + strlen(VARIABLE), list, strlen(list) + 1);
	put_ours();
}

/* -- around cuInit ----------------------------------------------------------------------------- */

static bool concerns_us(void)
{
	return state_get() == STATE_ENFORCING && state_slice()->has_policy;
}

bool visible_devices_begin(void)
{
	const struct policy *policy = &state_slice()->policy;

	if (!concerns_us() || __atomic_load_n(&settled, __ATOMIC_RELAXED))
		return false;
	lock_acquire(&editing);
	if (callers == 0 && !order_known && visible_needs_order(policy, asked()))
		learn_order_locked(policy);
	if (callers++ == 0)
		edit_locked(policy);
	lock_release(&editing);
	return true;
}

void visible_devices_end(bool initialised)
{
	lock_acquire(&editing);
	if (--callers == 0)
		put_theirs();
	if (initialised)
		__atomic_store_n(&settled, true, __ATOMIC_RELAXED);
	lock_release(&editing);
}

void visible_devices_forked(void)
{
	lock_init(&editing);
	if (callers > 0)
		put_theirs();
	callers = 0;
	settled = false;
}
