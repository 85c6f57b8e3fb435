/*
 * A process that is killed before its first store to a region, then, all over again, before its
 * second, and so on to the last, and so before each of its system calls: in everything that is done
 * to a region, alone and beside a process that lives on and shares memory with it. No list of steps
 * has a say in that: what is new in src/region/ and reached here is met. Whatever the killed one
 * leaves is whole for whoever comes next, or was there.
 *
 * Loops over slots and devices store hundreds of times. Behind the first FEW events after a named
 * step, the process is killed before one event in STRIDE. EVERY_STORE=1 in the environment: before
 * each of them, which takes minutes.
 */
#include "aftermath.h"
#include "keeper.h"
#include "region_internal.h"
#include "watched.h"

#define LIMIT AFTERMATH_LIMIT

#define FEW    48
#define STRIDE 7 /* a prime: each store of a loop's body is met in one of its rounds */

/* The worker prepares something, unwatched; the keeper does its part; then the worker acts. */
struct scene {
	const char *name;
	bool beside_keeper, on_new_file;
	unsigned least;          /* it has so many events, or else something is not seen */
	void (*first)(void);     /* by the keeper, before the worker is there */
	void (*prepare)(void);   /* by the worker */
	void (*meanwhile)(void); /* by the keeper */
	void (*act)(void);       /* by the worker, and killed there */
};

struct run {
	char path[96];
	const struct scene *scene;
	uint64_t ready, go, go_second;
	struct watched watched;
};

static struct run *run; /* in shared memory */

/* -- the worker, and processes of its that die before it ----------------------------------------
 */

static struct region mine = REGION_CLOSED, second = REGION_CLOSED;
static struct region_setup setup, more;

static void die(void)
{
	kill(getpid(), SIGKILL);
}

static void open_mine(void)
{
	CHECK(open_claimed(run->path, &setup, &mine) == 0);
}

static void open_both(void)
{
	open_mine();
	CHECK(open_claimed(run->path, &setup, &second) == 0);
}

static enum region_step last_step;

static void die_at_last_step(enum region_step step)
{
	if (step == last_step)
		die();
}

static void begin_child(void)
{
	region_step_hook = NULL;
	sys_fault = NULL;
	region_forget(&mine);
	region_forget(&second);
	open_mine();
}

/* Dies with charges, and with what two slots of its share. */
static void die_charged(void *arg)
{
	(void)arg;
	begin_child();
	CHECK(open_claimed(run->path, &setup, &second) == 0);
	CHECK(region_charge(&mine, 0, REGION_DATA, 40 * MIB, LIMIT) == 0);
	share_export(&mine, 0, 70, 5);
	share_import(&second, 70);
	die();
}

/* Dies with the lock, in the middle of a charge. */
static void die_charging(void *arg)
{
	(void)arg;
	begin_child();
	CHECK(region_charge(&mine, 0, REGION_MODULE, 3, 0) == 0);
	last_step = REGION_STEP_raise_total;
	region_step_hook = die_at_last_step;
	region_charge(&mine, 0, REGION_DATA, 4, 0);
	_exit(1);
}

/* Dies with the lock, in the middle of a move to the keeper, who imports in between. */
static void die_moving(void *arg)
{
	(void)arg;
	begin_child();
	share_export(&mine, 0, 5, BYTES(5));
	FLAG_SET(run->ready);
	CHECK(reached(&run->go_second, 1, LONG_MS));
	last_step = REGION_STEP_move_raised;
	region_step_hook = die_at_last_step;
	region_share_withdraw(&mine, 5, REGION_SHARE_AS_EXPORTED);
	_exit(1);
}

/* The same to another slot that dies with it. */
static void die_moving_to_the_dead(void *arg)
{
	(void)arg;
	begin_child();
	CHECK(open_claimed(run->path, &setup, &second) == 0);
	share_export(&mine, 0, 71, 6);
	share_import(&second, 71);
	last_step = REGION_STEP_move_lowered;
	region_step_hook = die_at_last_step;
	region_share_withdraw(&mine, 71, REGION_SHARE_AS_EXPORTED);
	_exit(1);
}

static void must_die(pid_t pid)
{
	CHECK(WIFSIGNALED(reap_status(pid)));
}

/* -- alone ------------------------------------------------------------------------------------ */

static void make(void)
{
	struct fault fault;

	CHECK(region_open(run->path, &setup, &mine, &fault) == 0);
}

static void only_open(void)
{
	make();
}

static void claim_and_close(void)
{
	struct fault fault;

	CHECK(region_claim(&mine, &fault) == 0);
	region_close(&mine);
}

static void charge_in_all_ways(void)
{
	uint64_t got;

	for (unsigned class = 0; class < REGION_CLASSES; class ++) {
		CHECK(region_charge(&mine, 0, (enum region_class) class, 10, LIMIT) == 0);
		region_refund(&mine, 0, (enum region_class) class, 4);
	}
	CHECK(region_charge_range(&mine, 0, REGION_DATA, 1, 2 * LIMIT, LIMIT, &got) == 0);
	CHECK(region_charge(&mine, 0, REGION_DATA, 1, LIMIT) == -EDQUOT);
	CHECK(region_charge(&mine, 0, REGION_CONTEXT, 99, 0) == 0);
	region_refund(&mine, 0, REGION_CONTEXT, LIMIT);
}

static void leave_charged(void)
{
	open_mine();
	must_die(spawn(die_charged, NULL));
}

static void leave_only_charged(void)
{
	leave_charged();
	region_close(&mine);
}

static void charge_after_the_dead(void)
{
	CHECK(region_charge(&mine, 0, REGION_DATA, LIMIT, LIMIT) == 0);
}

static void leave_charging(void)
{
	open_mine();
	must_die(spawn(die_charging, NULL));
}

static void leave_moving(void)
{
	open_mine();
	must_die(spawn(die_moving_to_the_dead, NULL));
}

static void look_on(void)
{
	struct region view = REGION_CLOSED;
	struct fault fault;

	CHECK(region_view(run->path, &view, &fault) == 0);
	CHECK(region_reap(&view) > 0);
	CHECK(region_check(&view, NULL, NULL) == 0);
	region_close(&view);
}

static void share_between_two(void)
{
	share_in_turn(&mine, &second, 0, 77);
}

static void exit_beside_another(void)
{
	exit_in_turn(&mine, &second, 0, 79);
}

static void begin_exit(void)
{
	region_begin_exit(&mine);
	CHECK(mine.exiting);
}

static void exit_and_go_on(void)
{
	begin_exit();
	charge_in_all_ways();
}

/* -- beside the keeper --------------------------------------------------------------------------
 */

static void append(void)
{
	struct fault fault;

	CHECK(region_open(run->path, &more, &second, &fault) == 0);
}

static void export_one(void)
{
	open_mine();
	share_export(&mine, 0, 1, BYTES(1));
}

static void keeper_imports_one(void)
{
	keeper_do(IMPORT, 1);
}

static void withdraw_one(void)
{
	CHECK(region_share_withdraw(&mine, 1, REGION_SHARE_AS_EXPORTED) == 1);
}

static void export_beside(void)
{
	share_export(&mine, 0, 6, BYTES(6));
}

static void close_mine(void)
{
	region_close(&mine);
}

static void keeper_exports_two(void)
{
	keeper_do(EXPORT, 2);
}

static void import_two(void)
{
	open_mine();
	share_import(&mine, 2);
}

/* The charge is the worker's then. */
static void keeper_passes_two_on(void)
{
	keeper_do(IMPORT, 2);
	keeper_do(WITHDRAW, 2);
}

static void end_two(void)
{
	region_share_import_end(&mine, 2);
}

static void import_two_twice(void)
{
	share_import(&mine, 2);
	share_import(&mine, 2);
	region_share_import_end(&mine, 2);
	region_share_import_end(&mine, 2);
}

static void die_exporting(void *arg)
{
	(void)arg;
	begin_child();
	share_export(&mine, 0, 3, BYTES(3));
	die();
}

static void leave_three_exported(void)
{
	open_mine();
	must_die(spawn(die_exporting, NULL));
}

static void keeper_imports_three(void)
{
	keeper_do(IMPORT, 3);
}

static void reap_one(void)
{
	CHECK(region_reap(&mine) == 1);
}

static pid_t mover;

static void start_mover(void)
{
	open_mine();
	mover = spawn(die_moving, NULL);
	CHECK(reached(&run->ready, 1, LONG_MS));
}

static void keeper_imports_five(void)
{
	keeper_do(IMPORT, 5);
	FLAG_SET(run->go_second);
}

static void take_over_from_mover(void)
{
	CHECK(region_charge(&mine, 0, REGION_DATA, 1, 0) == 0);
}

static void wait_for_mover(void)
{
	if (mover)
		must_die(mover);
}

/* -- a run ------------------------------------------------------------------------------------ */

static const char *where(void)
{
	static char text[96];

	snprintf(text, sizeof(text), "%s, before %s (%llu, %llu)", run->scene->name,
		 run->watched.what, (unsigned long long)run->watched.met.passes,
		 (unsigned long long)run->watched.met.events);
	return text;
}

static void play(void *arg)
{
	const struct scene *scene = arg;

	region_forget(&keeper);
	umask(077);
	watched_prepare();
	if (scene->prepare)
		scene->prepare();
	FLAG_SET(run->ready);
	CHECK(reached(&run->go, 1, LONG_MS));
	wait_for_mover();
	watched_begin(&run->watched, die);
	scene->act();
	watched_end();
}

static void set_out(const struct scene *scene)
{
	run->scene = scene;
	run->ready = run->go = run->go_second = 0;
	run->watched.acted = false;
	if (scene->on_new_file) {
		region_close(&keeper);
		unlink(run->path);
	}
	if (scene->beside_keeper && !keeper.file)
		keeper_start(run->path);
}

/* How the worker ended. */
static int play_once(const struct scene *scene)
{
	pid_t pid;

	set_out(scene);
	if (scene->first)
		scene->first();
	pid = spawn(play, (void *)(uintptr_t)scene);
	if (!reached(&run->ready, 1, LONG_MS))
		fail_msg("%s: nobody is ready", scene->name);
	if (scene->meanwhile)
		scene->meanwhile();
	FLAG_SET(run->go);
	return reap_status(pid);
}

static void look_at_what_is_left(const struct scene *scene, unsigned count)
{
	if (scene->beside_keeper) {
		assert_counted_once(where());
		keeper_give_up(where());
		return;
	}
	if (count % 2)
		assert_whole_for_an_onlooker(run->path, scene->on_new_file, where());
	assert_whole_for_the_next(run->path, where());
}

/* The place of the next kill. */
static struct watched_place after(struct watched_place met)
{
	bool is_dense = met.events < FEW || getenv("EVERY_STORE");

	return (struct watched_place){met.passes, met.events + (is_dense ? 1 : STRIDE)};
}

/* How many events lie between two places, as far as they are known. */
static unsigned events_between(struct watched_place from, struct watched_place to)
{
	return (unsigned)(to.passes == from.passes ? to.events - from.events : to.events);
}

static void walk(void **state, const struct scene *scene)
{
	struct place *place = *state;
	struct watched_place last = {0, 0};
	unsigned count = 0, events = 0;
	int status;

	run = run ? run : shared_memory(sizeof(*run));
	memset(run, 0, sizeof(*run));
	strcpy(run->path, place->path);
	setup = setup_of(scene->beside_keeper ? GIB : LIMIT);
	more = setup_from(0, 2, LIMIT);
	keeper = (struct region)REGION_CLOSED;
	for (run->watched.target = (struct watched_place){0, 1};; count++) {
		status = play_once(scene);
		if (!WIFSIGNALED(status))
			break;
		assert_true(run->watched.acted);
		look_at_what_is_left(scene, count);
		events += events_between(last, run->watched.met);
		last = run->watched.met;
		run->watched.target = after(last);
	}
	print_message("%s: killed before %u of %u events\n", scene->name, count, events);
	assert_int_equal(status, 0); /* it came to its end */
	assert_false(run->watched.acted);
	assert_true(events >= scene->least);
	region_close(&keeper);
}

/* -- the tests -------------------------------------------------------------------------------- */

/* The figures: the stores that are counted in the code, less what compilers make of loops. */
#define SLOT_WORDS  (sizeof(struct vgpu_hami_slot) / sizeof(uint64_t))
#define SETUP_WORDS (VGPU_DEVICES_MAX * (VGPU_UUID_LEN / sizeof(uint64_t) + 18))

#define ALONE(about, least_events, prepare_, act_)                                     \
	{                                                                              \
		.name = about, .least = least_events, .prepare = prepare_, .act = act_ \
	}
#define BESIDE(about, least_events, first_, prepare_, meanwhile_, act_)                       \
	{                                                                                     \
		.name = about, .beside_keeper = true, .least = least_events, .first = first_, \
		.prepare = prepare_, .meanwhile = meanwhile_, .act = act_                     \
	}

UNIT_TEST(test_made)
{
	static const struct scene scene = {
		.name = "making it", .on_new_file = true, .least = 512 + SETUP_WORDS, .act = make};

	walk(state, &scene);
}

UNIT_TEST(test_reset)
{
	static const struct scene scene =
		ALONE("resetting it", SETUP_WORDS + 2 * SLOT_WORDS, leave_only_charged, make);

	walk(state, &scene);
}

UNIT_TEST(test_claimed)
{
	static const struct scene scene =
		ALONE("claiming and closing", 2 * SLOT_WORDS, only_open, claim_and_close);

	walk(state, &scene);
}

UNIT_TEST(test_charged)
{
	static const struct scene scene = ALONE("charging", 40, open_mine, charge_in_all_ways);

	walk(state, &scene);
}

UNIT_TEST(test_taken_over)
{
	static const struct scene scenes[] = {
		ALONE("taking over a charge", SLOT_WORDS, leave_charging, charge_after_the_dead),
		ALONE("taking over a move", 2 * SLOT_WORDS, leave_moving, charge_after_the_dead),
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		walk(state, &scenes[i]);
}

UNIT_TEST(test_reaped)
{
	static const struct scene scenes[] = {
		ALONE("reaping", 2 * SLOT_WORDS, leave_charged, charge_after_the_dead),
		ALONE("looking on", 2 * SLOT_WORDS, leave_only_charged, look_on),
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		walk(state, &scenes[i]);
}

UNIT_TEST(test_shared)
{
	/* On a new file, all that a half written entry could say is 0: the keeper's slot. */
	static const struct scene scenes[] = {
		{.name = "exporting",
		 .beside_keeper = true,
		 .on_new_file = true,
		 .least = 15,
		 .prepare = open_mine,
		 .act = export_beside},
		ALONE("sharing", 150 + SLOT_WORDS, open_both, share_between_two),
		BESIDE("giving up what the keeper has open", 15, NULL, export_one,
		       keeper_imports_one, withdraw_one),
		BESIDE("closing what the keeper has open", 15, keeper_exports_two, import_two,
		       keeper_passes_two_on, end_two),
		BESIDE("opening and closing", 8, keeper_exports_two, open_mine, NULL,
		       import_two_twice),
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		walk(state, &scenes[i]);
}

UNIT_TEST(test_left_to_the_keeper)
{
	static const struct scene scenes[] = {
		BESIDE("ending", SLOT_WORDS, NULL, export_one, keeper_imports_one, close_mine),
		BESIDE("reaping for the keeper", SLOT_WORDS, NULL, leave_three_exported,
		       keeper_imports_three, reap_one),
		BESIDE("taking over a move to the keeper", SLOT_WORDS, NULL, start_mover,
		       keeper_imports_five, take_over_from_mover),
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		walk(state, &scenes[i]);
}

UNIT_TEST(test_exited)
{
	static const struct scene scenes[] = {
		ALONE("exiting", 16 * 10, open_mine, exit_and_go_on),
		ALONE("exiting with what is shared", SLOT_WORDS, open_both, exit_beside_another),
		BESIDE("exiting with what the keeper has open", 16 * 10, NULL, export_one,
		       keeper_imports_one, begin_exit),
		BESIDE("exiting with what the keeper exports", 16 * 10, keeper_exports_two,
		       import_two, keeper_passes_two_on, begin_exit),
	};

	for (unsigned i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		walk(state, &scenes[i]);
}

UNIT_TEST(test_appended)
{
	static const struct scene scene = {.name = "appending",
					   .beside_keeper = true,
					   .on_new_file = true,
					   .least = 30,
					   .prepare = open_mine,
					   .act = append};

	walk(state, &scene);
}

int main(int argc, char **argv)
{
	return watched_is_possible() ? unit_main(argc, argv) : 77;
}
