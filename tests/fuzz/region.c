/*
 * Fuzzes src/region/ over a file that is damaged in any way, by a tenant that writes what it likes,
 * or a disk. Nothing may be read or written out of bounds, no call may take long, and each must
 * answer as region.h says. region_world.h has the file, the clock and the guards.
 *
 * How it works. The world begins with a region of two devices, in which three processes, the
 * handles 0, 1 and 2, hold charges and shares; some of them die then without a word. The input is a
 * byte that says who, and steps, each a byte for its kind and what that kind takes (what the input
 * lacks is 0):
 *
 *     act      handle, act, device, class, key, two amounts     one call of region.h
 *     write    place, length, bytes                             into the file as it is
 *     repeat   place, length, bytes, stride, count (16 bits)    the same, many times
 *     later    step, place, length, bytes                       in the middle of an act to come
 *     resize   size (24 bits)                                   where nobody has the file mapped
 *     replace  length, bytes                                    likewise: it is all that there is
 *     remove                                                    likewise
 *
 * A place is a byte for the part of the file and a 16-bit offset there, so that a few bytes of the
 * input reach every field. In the end each handle that is open makes every call, closes, and a
 * newcomer has the region to itself.
 *
 * Where nothing was written into the file, region_check must have nothing to say, whatever was
 * called and whoever died; lock.c asserts the same at each release of the lock.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "input.h"
#include "region_world.h"
#include "size.h"
#include "steps.h"

#define HANDLES    4
#define MOST_STEPS 48

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct region handles[HANDLES];
static struct region_setup setups[4]; /* the region's; with a device more; of 16 others; of none */

/* What is to be written in the middle of an act. */
static struct {
	size_t place, len;
	uint8_t bytes[256];
	bool written; /* by now */
} later;

/* -- the input --------------------------------------------------------------------------------- */

/* A length, and as many bytes; returns the length. */
static size_t take_bytes(struct input *input, uint8_t ret_bytes[256])
{
	size_t len = take(input);

	for (size_t i = 0; i < len; i++)
		ret_bytes[i] = (uint8_t)take(input);
	return len;
}

static size_t take_place(struct input *input)
{
	static const size_t parts[] = {
		0,
		offsetof(struct vgpu_region_file, hami.slots),
		offsetof(struct vgpu_region_file, hami.slot_count),
		offsetof(struct vgpu_region_file, own),
		offsetof(struct vgpu_region_file, own.move),
		offsetof(struct vgpu_region_file, own.slots),
		offsetof(struct vgpu_region_file, own.shares),
	};
	unsigned part = take(input) % 8, offset = take_16(input);

	return part == 7 ? (size_t)offset * 32 : parts[part] + offset; /* 32: all of the file */
}

static uint64_t amount_of(unsigned code)
{
	static const uint64_t amounts[] = {
		0,
		1,
		4095,
		2 * MIB,
		3 * MIB + 1,
		32 * MIB,
		GIB,
		5 * GIB,
		8 * GIB,
		80 * GIB,
		(uint64_t)1 << 63,
		UINT64_MAX - 2 * MIB,
		UINT64_MAX - 1,
		UINT64_MAX,
	};

	return amounts[code % (sizeof(amounts) / sizeof(amounts[0]))];
}

/* -- acts -------------------------------------------------------------------------------------- */

struct args {
	unsigned device; /* up to one beyond the most */
	enum region_class class;
	uint64_t key;
	uint64_t amount, limit;
	unsigned setup;
};

typedef void act_fn(struct region *region, const struct args *args);

static bool is_one_of(int error, const int *errors)
{
	while (*errors && *errors != error)
		errors++;
	return *errors == error; /* 0 ends the list, and is on it */
}

/* What a charge, a share or a booking may say. */
static void must_be_answer(int error)
{
	static const int answers[] = {-EDQUOT, -ETIMEDOUT, -EINVAL,  -EBADF,
				      -ENOSPC, -ESTALE,    -EUCLEAN, 0};

	must(is_one_of(error, answers));
}

static void must_be_told(int error, const struct fault *fault)
{
	must(error <= 0);
	must((error == 0) == (fault->text[0] == '\0'));
	must(strchr(fault->text, '\n') == NULL);
}

static void enter(struct region *region, const struct region_setup *setup, bool view)
{
	struct region before = *region;
	struct fault fault = {""};
	int error;

	if (region->file)
		return;
	error = view ? region_view(WORLD_PATH, region, &fault)
		     : region_open(WORLD_PATH, setup, region, &fault);
	must_be_told(error, &fault);
	if (error)
		must(memcmp(region, &before, sizeof(before)) == 0);
	else
		must(region->file && region->fd >= 0 && region->slot == -1);
}

static void act_open(struct region *region, const struct args *args)
{
	enter(region, &setups[args->setup], false);
}

static void act_join(struct region *region, const struct args *args)
{
	(void)args;
	enter(region, NULL, false);
}

static void act_view(struct region *region, const struct args *args)
{
	(void)args;
	enter(region, NULL, true);
}

static void act_claim(struct region *region, const struct args *args)
{
	struct fault fault = {""};
	int was = region->slot, error = region_claim(region, &fault);

	(void)args;
	must_be_told(error, &fault);
	must(error ? region->slot == was : region->slot >= 0 && region->slot < VGPU_SLOTS_MAX);
}

static void act_charge(struct region *region, const struct args *args)
{
	int error = region_charge(region, args->device, args->class, args->amount, args->limit);

	must_be_answer(error);
	if (error == 0 && args->amount && args->limit && !region_is_damaged)
		must(region_used(region, args->device) <= args->limit);
}

static void act_charge_range(struct region *region, const struct args *args)
{
	uint64_t least = args->amount / 2, charged = 0;
	int error = region_charge_range(region, args->device, args->class, least, args->amount,
					args->limit, &charged);

	must_be_answer(error);
	must(error ? charged == 0 : charged >= least && charged <= args->amount);
}

static void act_refund(struct region *region, const struct args *args)
{
	region_refund(region, args->device, args->class, args->amount);
}

static void act_charge_anyway(struct region *region, const struct args *args)
{
	must_be_answer(region_charge(region, args->device, args->class, args->amount, 0));
}

static void act_export(struct region *region, const struct args *args)
{
	must_be_answer(region_share_export(region, args->device, args->key, args->amount));
}

static void act_withdraw(struct region *region, const struct args *args)
{
	int result = region_share_withdraw(region, args->key, args->amount);

	if (result != 1)
		must_be_answer(result);
}

static void act_import(struct region *region, const struct args *args)
{
	unsigned device = VGPU_DEVICES_MAX;
	uint64_t bytes;
	int result = region_share_import(region, args->key, &device, &bytes);

	if (result == 1)
		must(device < VGPU_DEVICES_MAX);
	else
		must_be_answer(result);
}

static void act_import_end(struct region *region, const struct args *args)
{
	region_share_import_end(region, args->key);
	region_share_look(region);
}

static void act_read(struct region *region, const struct args *args)
{
	static struct region_process processes[VGPU_SLOTS_MAX];
	int device;

	region_share_doubt(region, args->device);
	region_used(region, args->device);
	region_shown(region, args->device);
	region_own_usage(region, args->device);
	device = region_find_device(region, setups[args->setup].device[0].uuid);
	must(device == -ENOENT || device == -ESTALE || device == -EUCLEAN ||
	     (device >= 0 && device < VGPU_DEVICES_MAX));
	must(region_living(region) <= VGPU_SLOTS_MAX);
	device = args->device < VGPU_DEVICES_MAX ? (int)args->device : -1;
	must(region_processes(region, device, processes) <= VGPU_SLOTS_MAX);
	region_slot_alive(region, (unsigned)args->amount);
}

static void act_reap(struct region *region, const struct args *args)
{
	int result = region_reap(region);

	must(result <= VGPU_SLOTS_MAX);
	must(result >= 0 || result == -ETIMEDOUT || result == -EUSERS || result == -EUCLEAN);
	region_wait_dying(region, args->device);
	region_guess_begin(region, args->device);
	region_wait_guesses(region, args->device);
	region_guess_end(region, args->device);
}

/* What is wrong, but for what a tenant that refunds more than it has brings about. */
static void say(void *arg, const char *line)
{
	unsigned *wrong = arg;

	must(line[0] != '\0');
	if (!strstr(line, "bytes moved there"))
		wrong[0]++;
	wrong[1]++;
}

static void act_check(struct region *region, const struct args *args)
{
	unsigned wrong[2] = {0, 0};

	(void)args;
	if (!region_is_damaged)
		region_reap(region);
	must(region_check(region, say, wrong) == wrong[1]);
	must(region_is_damaged || wrong[0] == 0);
}

static void act_close(struct region *region, const struct args *args)
{
	(void)args;
	region_close(region);
	must(!region->file && region->fd == -1 && region->slot == -1);
}

static void act_begin_exit(struct region *region, const struct args *args)
{
	(void)args;
	region_begin_exit(region);
}

static void act_die(struct region *region, const struct args *args)
{
	(void)args;
	region_forget(region); /* as the kernel lets go of it */
}

static const struct act {
	act_fn *call;
	bool opens; /* of a handle that is not open; the others are of one that is */
} acts[] = {
	{act_open, true},    {act_join, true},           {act_view, true},
	{act_claim, false},  {act_charge, false},        {act_charge_range, false},
	{act_refund, false}, {act_charge_anyway, false}, {act_export, false},
	{act_import, false}, {act_import_end, false},    {act_withdraw, false},
	{act_read, false},   {act_reap, false},          {act_check, false},
	{act_close, false},  {act_die, false},           {act_begin_exit, false},
};

static const struct act closing = {act_close, false};

#define ACTS (sizeof(acts) / sizeof(acts[0]))

/* What of the file is nobody's, or the pacer's, and stays as it is. */
struct margins {
	uint8_t pad[sizeof(((struct vgpu_region_file *)0)->pad)];
	struct vgpu_region_group group[VGPU_DEVICES_MAX];
	struct vgpu_region_turn turn[VGPU_DEVICES_MAX];
	struct vgpu_region_gang gang;
};

static void save_margins(const struct region *region, struct margins *ret_margins)
{
	memcpy(ret_margins->pad, region->file->pad, sizeof(ret_margins->pad));
	memcpy(ret_margins->group, region->file->group, sizeof(ret_margins->group));
	memcpy(ret_margins->turn, region->file->turn, sizeof(ret_margins->turn));
	ret_margins->gang = region->file->own.gang;
}

static void act(struct region *region, const struct act *act, const struct args *args)
{
	static struct margins before, after;

	if (act->opens == (region->file != NULL))
		return;
	if (!act->opens)
		save_margins(region, &before);
	later.written = false;
	world_begin();
	act->call(region, args);
	world_end();
	if (!act->opens && region->file && !later.written) {
		save_margins(region, &after);
		must(memcmp(&before, &after, sizeof(before)) == 0);
	}
}

static void take_act(struct input *input)
{
	struct region *region = &handles[take(input) % HANDLES];
	const struct act *which = &acts[take(input) % ACTS];
	struct args args;

	args.device = take(input) % (VGPU_DEVICES_MAX + 1);
	args.class = take(input) % (REGION_CLASSES + 1);
	args.key = take(input) % 4;
	args.amount = amount_of(take(input));
	args.limit = amount_of(take(input));
	args.setup = args.device % 4;
	act(region, which, &args);
}

/* -- damage ------------------------------------------------------------------------------------ */

static void write_once(struct input *input)
{
	uint8_t bytes[256];
	size_t place = take_place(input), len = take_bytes(input, bytes);

	world_write(place, bytes, len);
	region_is_damaged = true;
}

static void write_often(struct input *input)
{
	static const size_t strides[] = {8, sizeof(struct vgpu_region_share),
					 sizeof(struct vgpu_region_slot), VGPU_UUID_LEN,
					 sizeof(struct vgpu_hami_slot)};
	uint8_t bytes[256];
	size_t place = take_place(input), len = take_bytes(input, bytes);
	size_t stride = strides[take(input) % 5];
	unsigned count = take_16(input) % (VGPU_SLOTS_MAX + 1);

	for (unsigned i = 0; i < count; i++)
		world_write(place + i * stride, bytes, len);
	region_is_damaged = true;
}

static void write_now(void)
{
	world_write(later.place, later.bytes, later.len);
	later.written = true;
}

static void write_later(struct input *input)
{
	unsigned steps = take(input);

	later.place = take_place(input);
	later.len = take_bytes(input, later.bytes);
	world_at_step(steps, write_now);
	region_is_damaged = true;
}

/* To cut off what somebody has mapped is to kill it: only what nobody has open changes its size. */
static bool is_open(void)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (handles[i].file)
			return true;
	return false;
}

static void resize(struct input *input)
{
	unsigned low = take_16(input);
	uint64_t size = low | (uint64_t)take(input) << 16;

	if (is_open())
		return;
	world_resize(size);
	region_is_damaged = true;
}

static void replace(struct input *input)
{
	uint8_t bytes[256];
	size_t len = take_bytes(input, bytes);

	if (is_open())
		return;
	world_resize(0);
	world_resize(len);
	world_write(0, bytes, len);
	region_is_damaged = true;
}

static void remove_file(struct input *input)
{
	(void)input;
	if (is_open())
		return;
	world_remove();
	world_at_step(0, NULL);
	region_is_damaged = false; /* what is made now is as new */
}

/* -- the world --------------------------------------------------------------------------------- */

static void make_setups(void)
{
	static const unsigned first[] = {0, 1, 100, 0}, count[] = {2, 2, VGPU_DEVICES_MAX, 0};

	for (unsigned s = 0; s < 4; s++) {
		setups[s].device_count = count[s];
		setups[s].priority = 1;
		for (unsigned i = 0; i < count[s]; i++) {
			snprintf(setups[s].device[i].uuid, VGPU_UUID_LEN, "GPU-%u", first[s] + i);
			setups[s].device[i].memory_bytes = 8 * GIB;
			setups[s].device[i].cores_pct = 50;
		}
	}
}

static void make_once(void)
{
	static bool made;

	if (made)
		return;
	made = true;
	make_setups();
	world_make();
	for (unsigned i = 0; i < HANDLES; i++)
		handles[i] = (struct region)REGION_CLOSED;
	enter(&handles[0], &setups[0], false);
	act_close(&handles[0], NULL);
	must(world_size() == WORLD_SIZE);
	world_save();
}

/* Three processes in the region, each with memory that the next has open. */
static void live(void)
{
	struct args args = {.class = REGION_DATA, .amount = 32 * MIB};

	for (unsigned i = 0; i < 3; i++) {
		act_join(&handles[i], NULL);
		act_claim(&handles[i], NULL);
		args.device = i % 2;
		args.key = i + 1;
		must(region_charge(&handles[i], args.device, REGION_CONTEXT, GIB, 8 * GIB) == 0);
		act_charge(&handles[i], &args);
		act_export(&handles[i], &args);
	}
	for (unsigned i = 0; i < 3; i++) {
		args.key = i + 1;
		act_import(&handles[(i + 1) % 3], &args);
	}
	args.key = 1;
	act_withdraw(&handles[0], &args); /* the charge moves to handle 1 */
}

/* Everything that there is to be called; region_check, which takes the longest, once. */
static void finish(void)
{
	struct args args = {.class = REGION_DATA, .key = 2, .amount = 2 * MIB, .limit = 8 * GIB};
	bool checked = false;

	for (unsigned a = 0; a < ACTS; a++) {
		if (acts[a].call == act_close || acts[a].call == act_die)
			continue;
		for (unsigned i = 0; i < HANDLES; i++) {
			if (!handles[i].file || (acts[a].call == act_check && checked))
				continue;
			act(&handles[i], &acts[a], &args);
			checked = acts[a].call == act_check;
		}
	}
	for (unsigned i = 0; i < HANDLES; i++)
		act(&handles[i], &closing, &args);
	for (unsigned a = 0; a < ACTS; a++)
		act(&handles[0], &acts[a], &args);
	act(&handles[0], &closing, &args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(struct input *) = {take_act,    take_act,   write_once,
							write_often, resize,     replace,
							remove_file, write_later};
	struct input input = {data, size};
	unsigned dead;

	make_once();
	world_restore();
	region_is_damaged = false;
	world_at_step(0, NULL);
	live();
	dead = take(&input);
	for (unsigned i = 0; i < 3; i++)
		if (dead & 1u << i)
			act_die(&handles[i], NULL);
	for (unsigned i = 0; input.left > 0 && i < MOST_STEPS; i++)
		kinds[take(&input) % 8](&input);
	finish();
	return 0;
}
