/*
 * The states of a process:
 *
 *     unknown ---> inert
 *             ---> refused
 *             ---> enforcing ---> refused   attaching has failed, or the region was lost
 *
 * `changing` is held to change the state. The state is read without it.
 *
 * A forked child cannot use its parent's CUDA, and must not keep its parent's slot alive. So the
 * fork handler resets everything that belongs to the parent. A child of a parent that had not
 * initialised CUDA attaches for itself at its own cuInit.
 */
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "clock.h"
#include "context_making.h"
#include "cuda.h"
#include "deferred.h"
#include "exit.h"
#include "green.h"
#include "hooks.h"
#include "launch.h"
#include "local.h"
#include "lock.h"
#include "log.h"
#include "nvml.h"
#include "nvml_view.h"
#include "policy_reload.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"
#include "self.h"
#include "signs.h"
#include "size.h"
#include "sys.h"
#include "trace.h"
#include "view.h"
#include "visible_devices.h"

#define STATE_UNKNOWN (-1)

static struct lock changing = LOCK_INIT;
static int state = STATE_UNKNOWN;
static bool fork_followed;
static struct slice slice; /* written before `state` leaves unknown */

static void set_state(int new_state)
{
	__atomic_store_n(&state, new_state, __ATOMIC_RELEASE); /* pairs with state_get's acquire */
}

static void refuse(const struct fault *fault)
{
	log_line(LOG_ERROR, "%s; CUDA is refused to this process until that is mended",
		 fault->text);
	set_state(STATE_REFUSED);
}

static void forget_parent(void)
{
	exit_forked();
	clock_forked();
	lock_init(&changing);
	context_making_forked();
	visible_devices_forked();
	hooks_forked();
	cuda_forked();
	nvml_forked();
	nvml_devices_forked();
	view_forked();
	green_forked();
	graphs_forked();
	pools_forked();
	async_alloc_forked();
	async_free_forked();
	deferred_forked();
	capture_forked();
	launch_forked();
	policy_reload_forked();
	local_forked();
	signs_forked();
	reconcile_forked();
	self_forked();
	quota_forked();
}

/* pthread_atfork, under the name that every glibc since 2.3.2 exports from libc itself. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

static void load(void)
{
	struct fault fault = {""};
	int error = slice_load(NULL, &slice, &fault);

	if (error) {
		refuse(&fault);
	} else if (!slice.configured) {
		set_state(STATE_INERT);
	} else {
		clock_find_steady(); /* now, as a program may forbid itself to open files later */
		set_state(STATE_ENFORCING);
	}
}

enum state state_get(void)
{
	int seen = __atomic_load_n(&state, __ATOMIC_ACQUIRE);

	if (seen != STATE_UNKNOWN)
		return (enum state)seen;
	if (!__atomic_exchange_n(&fork_followed, true, __ATOMIC_RELAXED))
		__register_atfork(NULL, NULL, forget_parent, NULL);
	lock_acquire(&changing);
	if (state == STATE_UNKNOWN)
		load();
	lock_release(&changing);
	return (enum state)__atomic_load_n(&state, __ATOMIC_ACQUIRE);
}

const struct slice *state_slice(void)
{
	return &slice;
}

void state_renew_slice(const struct policy *policy)
{
	slice_renew(&slice, policy);
}

/* cuDeviceGetUuid gives the whole GPU's, _v2 that of the MIG instance where the device is one. */
bool state_device_uuid(CUdevice device, char uuid[VGPU_UUID_LEN])
{
	CUuuid gpu, own;
	const unsigned char *b = (const void *)own.bytes;
	bool mig;

	if (cuda.cuDeviceGetUuid(&gpu, device) != CUDA_SUCCESS)
		return false;
	if (cuda.cuDeviceGetUuid_v2(&own, device) != CUDA_SUCCESS)
		own = gpu; /* drivers before CUDA 11.4 have no _v2 */
	mig = memcmp(&gpu, &own, sizeof(gpu)) != 0;
	memset(uuid, 0, VGPU_UUID_LEN);
	snprintf(uuid, VGPU_UUID_LEN,
		 "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
		 b[10], b[11], b[12], b[13], b[14], b[15]);
	return true;
}

static int list_gpus(int count, struct quota_gpu *gpus, unsigned *ret_count, struct fault *fault)
{
	bool ordered = slice_needs_order(&slice);

	if (count > VGPU_DEVICES_MAX)
		return fault_set(fault, -EINVAL,
				 "this program sees %d GPUs, and a slice has at most %d: choose "
				 "with CUDA_VISIBLE_DEVICES",
				 count, VGPU_DEVICES_MAX);
	for (int i = 0; i < count; i++) {
		if (!state_device_uuid(i, gpus[i].uuid))
			return fault_set(fault, -1, "the driver does not say the UUID of GPU %d",
					 i);
		gpus[i].nvml_index = ordered ? nvml_index(gpus[i].uuid) : -1;
		*ret_count = (unsigned)i + 1;
	}
	return 0;
}

static void say_limits(int device)
{
	struct quota_cores of = {0};
	uint64_t limit = quota_limit(device);
	char memory[32] = "no limit", cores[32] = "no limit";
	unsigned pct;

	if (limit)
		size_format(limit, memory, sizeof(memory));
	quota_cores(device, &of);
	pct = (unsigned)slice_stricter(of.policy_pct, of.env_pct);
	if (pct)
		snprintf(cores, sizeof(cores), "%u %%", pct);
	log_line(LOG_INFO, "GPU %d: memory %s, time %s", device, memory, cores);
}

static void say_joined(int devices)
{
	log_line(LOG_INFO, "process %d joins the slice with the region %.400s (that path is %s)",
		 sys_getpid(), slice.region_path, slice.region_from);
	for (int device = 0; device < devices; device++)
		if (quota_has_device(device))
			say_limits(device);
}

/* Reports that the process has joined the slice, and makes a normal exit empty its slot. */
static void follow(int devices)
{
	const struct fault *no_trace = trace_fault();

	if (no_trace)
		log_line(LOG_WARN, "%s", no_trace->text);
	if (log_wants(LOG_INFO))
		say_joined(devices);
	exit_follow();
}

/*
 * Does nothing if the driver is not initialised, or cannot be used, as in a child that was forked
 * after cuInit. Then the driver itself refuses all calls. The GPUs are listed before the lock is
 * taken, as that may call NVML and the loader.
 */
static void attach(void)
{
	struct quota_gpu gpus[VGPU_DEVICES_MAX];
	struct fault fault = {""};
	unsigned count = 0;
	int visible, error;

	if (cuda.cuDeviceGetCount(&visible) != CUDA_SUCCESS)
		return;
	error = list_gpus(visible, gpus, &count, &fault);
	lock_acquire(&changing);
	if (!quota_attached() && state == STATE_ENFORCING) {
		if (!error)
			error = quota_attach(&slice, gpus, count, &fault);
		if (error)
			refuse(&fault);
		else
			follow((int)count);
	}
	lock_release(&changing);
}

void state_lose(void)
{
	struct fault fault = {""};

	lock_acquire(&changing);
	if (state == STATE_ENFORCING) {
		quota_why_lost(&fault);
		refuse(&fault);
	}
	lock_release(&changing);
}

CUresult state_attach(bool *ret_attached)
{
	enum state now;

	*ret_attached = false;
	cuda_bind();
	now = state_get();
	if (now == STATE_ENFORCING && !quota_attached()) {
		attach();
		now = state_get();
	}
	if (now == STATE_REFUSED)
		return CUDA_ERROR_NOT_PERMITTED;
	*ret_attached = quota_attached();
	if (*ret_attached)
		policy_reload_look();
	return CUDA_SUCCESS;
}
