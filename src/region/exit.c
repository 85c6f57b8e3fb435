/*
 * A process that exits normally hides from monitors and from programs that list the slice's
 * processes: its slot looks empty to them. Its charge stays.
 *
 * How it works. When a process begins to exit, its contexts still hold the device's memory: the
 * driver gives that back while the kernel closes the process's files. So the charge must stay while
 * the entry that monitors read disappears. Under the lock, the slot's bytes are copied to
 * exiting_data and exiting_other, words that HAMi-core does not use. Then the pid is stored in
 * exiting_pid. From that store on, these words count in place of `total` (region_slot_bytes). Then
 * the status, the pid and all bytes in HAMi's part of the slot become 0. own.device[].used does not
 * change. After the process's death, the slot ends as after a kill: it is dying, then over, then
 * cleared (life.c, slot.c).
 *
 * Threads of the process may go on meanwhile, and destructors that run later may free or allocate.
 * Their charges and refunds change the exiting words. The classes of our slot are in our own memory
 * from then on, as the reconciliation with NVML's figure needs them. The data class is the
 * exception, because other processes may move a charge for shared memory to this slot or from it
 * (share.c).
 *
 * What always holds, whenever the lock is free: a slot with an exiting_pid has status 0, pid 0 and
 * no bytes in HAMi's part.
 *
 * If the process is killed on any line. Before exiting_pid is stored, the slot is that of a killed
 * process. After it, the next holder of the lock empties the rest (region_finish_exits_locked).
 *
 * What it is not: the end of the slot. Its byte stays locked until the process is dead.
 */
#include "region_internal.h"
#include "sys.h"
#include "trace.h"

/* -- the slot as monitors see it -------------------------------------------------------------- */

static void hide_usage(struct vgpu_hami_usage *usage)
{
	REGION_PUBLISH(usage->context, 0);
	REGION_PUBLISH(usage->module, 0);
	REGION_PUBLISH(usage->data, 0);
	REGION_PUBLISH(usage->offset, 0);
	REGION_PUBLISH(usage->total, 0);
}

static void hide_util(struct vgpu_hami_util *util)
{
	REGION_PUBLISH(util->decoder, 0);
	REGION_PUBLISH(util->encoder, 0);
	REGION_PUBLISH(util->sm, 0);
}

/* The status is cleared first, so that no reader takes half a slot for a process. It can be
 * repeated. */
static void hide_locked(struct vgpu_hami_slot *slot)
{
	REGION_STORE(slot->status, VGPU_SLOT_FREE);
	region_step(exit_hidden);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		hide_usage(&slot->used[device]);
		hide_util(&slot->device_util[device]);
		REGION_PUBLISH(slot->monitor_used[device], 0);
		if (device == 0)
			region_step(exit_half);
	}
	REGION_PUBLISH(slot->pid, 0);
	REGION_PUBLISH(slot->hostpid, 0);
	region_step(exit_done);
}

void region_finish_exits_locked(struct vgpu_region_file *file)
{
	for (int slot = -1; (slot = region_next_slot(file, slot)) >= 0;)
		if (region_slot_is_exiting(file, (unsigned)slot) &&
		    (REGION_LOAD(file->hami.slots[slot].status) ||
		     REGION_LOAD(file->hami.slots[slot].pid)))
			hide_locked(&file->hami.slots[slot]);
}

/* -- the charge of an emptied slot ------------------------------------------------------------ */

static struct vgpu_hami_usage *own_usage(const struct region *region, unsigned device)
{
	return &region->file->hami.slots[region->slot].used[device];
}

uint64_t region_exiting_class(const struct region *region, unsigned device, enum region_class class)
{
	if (class == REGION_DATA)
		return REGION_LOAD(own_usage(region, device)->exiting_data);
	return REGION_LOAD(region->exiting_class[device][class]);
}

/* The stores are in the order of the ledger's set_class_locked. So a reader in the middle of a
 * change sees a total that is too high rather than too low. */
void region_set_exiting_locked(struct region *region, unsigned device, enum region_class class,
			       uint64_t bytes)
{
	struct vgpu_hami_usage *usage = own_usage(region, device);
	uint64_t *word = class == REGION_DATA ? &usage->exiting_data : &usage->exiting_other;
	uint64_t *used = &region->file->own.device[device].used;
	uint64_t was = region_exiting_class(region, device, class);

	if (bytes >= was) {
		REGION_STORE(*used, REGION_LOAD(*used) + (bytes - was));
		region_step(exit_raised_used);
		REGION_PUBLISH(*word, REGION_LOAD(*word) + (bytes - was));
		region_step(exit_raised);
	} else {
		REGION_STORE(*word, region_less(REGION_LOAD(*word), was - bytes));
		region_step(exit_lowered);
		REGION_PUBLISH(*used, region_less(REGION_LOAD(*used), was - bytes));
		region_step(exit_lowered_used);
	}
	if (class != REGION_DATA)
		REGION_STORE(region->exiting_class[device][class], bytes);
}

/* -- the process begins to exit --------------------------------------------------------------- */

/* Copies the slot's bytes to the exiting words, which do not count yet, and to our own memory. */
static void copy_locked(struct region *region)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct vgpu_hami_usage *usage = own_usage(region, device);
		uint64_t data = REGION_LOAD(usage->data), all = region_sum_classes(usage);
		uint64_t *classes = region->exiting_class[device];

		REGION_STORE(classes[REGION_CONTEXT], REGION_LOAD(usage->context));
		REGION_STORE(classes[REGION_MODULE], REGION_LOAD(usage->module));
		REGION_STORE(classes[REGION_OFFSET], REGION_LOAD(usage->offset));
		REGION_STORE(usage->exiting_data, data);
		REGION_STORE(usage->exiting_other, all - data);
	}
	region_step(exit_copied);
}

static void trace_exiting(const struct region *region)
{
	uint64_t bytes = 0;

	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		bytes += region_slot_bytes(region->file, (unsigned)region->slot, device);
	trace_add(TRACE_EXITING, -1, region->slot, (int64_t)bytes);
}

void region_begin_exit(struct region *region)
{
	struct vgpu_region_own *own;

	if (region->slot < 0 || region->pid != sys_getpid() || region_examine(region) != 0 ||
	    region_lock_within(region, REGION_EXIT_PATIENCE_NS) != 0)
		return;
	own = &region->file->own;
	region_settle_late_locked(region);
	if (!REGION_LOAD(region->exiting)) {
		copy_locked(region);
		/* Pairs with region_slot_is_exiting: from here on the copies count. */
		REGION_PUBLISH(own->slots[region->slot].exiting_pid, region->pid);
		region_step(exit_published);
		/* Pairs with region_own_usage, which looks before and after it reads the slot. */
		REGION_PUBLISH(region->exiting, true);
		hide_locked(&region->file->hami.slots[region->slot]);
		if (trace_wants(TRACE_REGION))
			trace_exiting(region);
	}
	region_unlock(region);
}
