/* See sharing_scene.h. */
#include "sharing_scene.h"

static const struct scene *scene;
static const struct scene_step *now; /* the step that is taken or checked */
static struct member members[SCENE_ACTORS];
static bool lives[SCENE_ACTORS];

static void expect(const char *what, uint64_t found, uint64_t expected)
{
	if (found != expected)
		check_failed_saying(__FILE__, __LINE__, "%s, step %u: %s: %llu and %llu",
				    scene->name, (unsigned)(now - scene->steps), what,
				    (unsigned long long)found, (unsigned long long)expected);
}

/* How many actors live; of the slice, or all. */
static unsigned living(bool all)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SCENE_ACTORS; i++)
		count += lives[i] && (all || !scene->outsider[i]);
	return count;
}

static uint64_t in_bytes(uint64_t units)
{
	return units * (scene->unit ? scene->unit : SIZE);
}

/* -- steps ------------------------------------------------------------------------------------ */

uint64_t scene_start(uint64_t i)
{
	if (!lives[i])
		members[i] = scene->outsider[i] ? outsider(scene->outsider[i]) : actor();
	lives[i] = true;
	return 0;
}

uint64_t scene_end(uint64_t i)
{
	dismiss(&members[i]);
	lives[i] = false;
	return 0;
}

uint64_t scene_kill(uint64_t i)
{
	member_kill(&members[i]);
	lives[i] = false;
	return 0;
}

STEP(scene_reap, ledger_reap());
STEP(scene_holds, expect("device", outside_used(0), living(true) * FIGURE + in_bytes(i)));
STEP(scene_is_covered, CHECK_AT_MOST(outside_used(0), ledger_used(0)));

static uint64_t take_step(const struct scene_step *next)
{
	if (next->actor == SCENE)
		return next->todo(next->argument);
	scene_start(next->actor);
	return order(&members[next->actor], next->todo, next->argument);
}

/* -- states ----------------------------------------------------------------------------------- */

static void check_charge(unsigned i, uint64_t data, uint64_t offset, uint64_t modules)
{
	struct vgpu_hami_usage usage = {0};

	if (scene->outsider[i]) {
		assert_outsider(&members[i], data, offset);
		return;
	}
	usage = ledger_of(members[i].pid, 0);
	expect("data", usage.data, data);
	expect("offset", usage.offset, HIDDEN + offset);
	expect("modules", usage.module, modules);
}

static void check_total(const struct scene_state *state)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SCENE_ACTORS; i++)
		sum += in_bytes(state->data[i] + state->offset[i]) +
		       state->modules[i] * SCENE_MODULE;
	CHECK_SOON_EQUAL(ledger_reap(), living(false));
	CHECK_SOON_EQUAL(outside_used(0), living(true) * FIGURE + sum);
	expect("ledger", ledger_used(0), living(false) * CHARGE + sum);
}

static void check_state(const struct scene_state *state)
{
	if (state->check == TOTAL || state->check == HELD)
		check_total(state);
	if (state->check != CHARGED && state->check != HELD)
		return;
	for (unsigned i = 0; i < SCENE_ACTORS; i++)
		if (lives[i])
			check_charge(i, in_bytes(state->data[i]), in_bytes(state->offset[i]),
				     state->modules[i] * SCENE_MODULE);
}

/* -- scenes ----------------------------------------------------------------------------------- */

void scene_play(const struct scene *row)
{
	scene = row;
	begin();
	if (row->limit)
		env_set("CUDA_DEVICE_MEMORY_LIMIT", row->limit);
	/* First: an actor inherits the ledger that the scene has mapped, and theirs is another. */
	for (unsigned i = 0; i < SCENE_ACTORS; i++)
		if (row->outsider[i])
			scene_start(i);
	for (unsigned round = 0; round < (row->rounds ? row->rounds : 1); round++)
		for (now = row->steps; now < row->steps + SCENE_STEPS_MAX && now->todo; now++) {
			expect("answer", take_step(now), now->answer);
			check_state(&now->after);
		}
	for (unsigned i = 0; i < SCENE_ACTORS; i++)
		if (lives[i])
			scene_end(i);
	check_state(&(struct scene_state){.check = HELD});
}
