/*
 * A random process on one device, over pace_many.h. Some launch all the time, some wait for their
 * work every few launches, and the hosts of some pause for long without a wait.
 */
#pragma once

#include "pace_many.h"

#define LENGTHS 3

struct program {
	unsigned lengths;
	struct kernel kernels[LENGTHS];
	uint64_t ahead_ns; /* work that it launches ahead */
	unsigned launches; /* between two waits; 0: it never waits */
	uint64_t host_ns;  /* after a wait */
	uint64_t pause_ns; /* without a wait before it; 0: it never pauses */
	unsigned launches_to_pause;
};

static struct program make_program(unsigned number)
{
	struct program program = {.lengths = 1 + below(LENGTHS)};

	for (unsigned i = 0; i < program.lengths; i++)
		program.kernels[i] = (struct kernel){.function = 1 + LENGTHS * number + i,
						     .ns = between_ns(20000, 9)};
	program.ahead_ns = between_ns(MS / 10, 9);
	program.launches = below(2) ? 1 + below(50) : 0;
	program.host_ns = program.launches && below(2) ? between_ns(10000, 9) : 0;
	program.pause_ns = below(4) ? 0 : between_ns(20 * MS, 5);
	program.launches_to_pause = 50 + below(500);
	return program;
}

/* The host waits for an event until the process has less than ahead_ns of work in flight. */
static void wait_for_room(uint64_t ahead_ns)
{
	const struct device_queue *queue = &shared->device.queue[self];

	if (queue->given_ns - queue->done_ns <= ahead_ns)
		return;
	pace_will_wait(&context_a, true);
	pass_until_done(queue->given_ns - ahead_ns);
	pace_waited();
}

/* Runs it until until_ns, in a process that is attached. Returns its time on the device from
 * from_ns on. */
static uint64_t run_program(const struct program *program, uint64_t from_ns, uint64_t until_ns)
{
	uint64_t busy_ns = 0;

	random_state = 1 + self;
	for (unsigned launches = 1; time_ns < until_ns; launches++) {
		CHECK(launch(&program->kernels[below(program->lengths)]) == 0);
		wait_for_room(program->ahead_ns);
		if (program->launches && launches % program->launches == 0) {
			synchronise_stream(0);
			pass(program->host_ns);
		}
		if (program->pause_ns && launches % program->launches_to_pause == 0)
			pass(program->pause_ns);
		if (!busy_ns && time_ns >= from_ns)
			busy_ns = fake.busy_ns[0];
	}
	return busy_ns ? fake.busy_ns[0] - busy_ns : 0;
}

/* Attaches the process to the slice of that region, with a quota of the first device. */
static void attach(const char *path, unsigned quota)
{
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];

	CHECK(open_claimed(path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = quota;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forked();
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &fake_driver);
}
