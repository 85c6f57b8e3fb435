/*
 * Scenes as rows of a table. A row lists what actors do one after the other. After each step, the
 * row says what the device holds and what each actor is charged:
 *
 *     {"exporter_first", .steps = {
 *             {A, create, 0, {HELD, {1}}}, {A, send_off, 0}, {B, fetch, 0, {HELD, {1}}},
 *             {A, release, 0, {HELD, {0, 1}}}, {B, release, 0, {HELD}}}},
 *     TEST_TABLE(rows, scene_play)
 *
 * An outsider starts with the scene; another actor starts before its first step, and starts again
 * before its first step after it ended. When the steps are done, the remaining actors end, and
 * nothing may be held or charged.
 */
#pragma once

#include "sharing_fixture.h"

#define SCENE_STEPS_MAX 24

/* The process that takes a step. SCENE is the test's own process. */
enum scene_actor { A, B, C, D, SCENE, SCENE_ACTORS = SCENE };

enum scene_check {
	UNCHECKED,
	CHARGED, /* each living actor is charged what the state says */
	TOTAL,   /* the device and the ledger hold the sum, besides contexts; without outsiders */
	HELD,    /* CHARGED and TOTAL */
};

/* The state after a step, in units of the scene, for each actor. Memory that only descriptors
 * keep, and memory that an outsider has imported, is charged as `offset`. `modules` are pieces
 * of code of SCENE_MODULE bytes. */
struct scene_state {
	enum scene_check check;
	unsigned data[SCENE_ACTORS], offset[SCENE_ACTORS], modules[SCENE_ACTORS];
};

#define SCENE_MODULE (20 * MIB)

struct scene_step {
	enum scene_actor actor;
	step *todo; /* NULL after the last step */
	uint64_t argument;
	struct scene_state after;
	uint64_t answer; /* what todo returns */
};

struct scene {
	const char *name;
	const char *limit;                  /* of the slice's memory; NULL: 4g */
	const char *outsider[SCENE_ACTORS]; /* the limit of an actor in another slice, or NULL */
	uint64_t unit;                      /* bytes; 0: SIZE */
	unsigned rounds;                    /* how often the steps are repeated; 0: once */
	struct scene_step steps[SCENE_STEPS_MAX];
};

void scene_play(const struct scene *scene);

/* Steps of SCENE. The first three take an actor. */
step scene_start;      /* the actor starts before its first step */
step scene_end;        /* the actor exits */
step scene_kill;       /* the actor is killed, and the ledger is not cleared */
step scene_reap;       /* the charges of dead actors are refunded or moved */
step scene_holds;      /* the device holds that many units besides the contexts of living actors */
step scene_is_covered; /* the device holds at most what is charged */
