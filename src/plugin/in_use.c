/*
 * Answers are kept for two spans of grace_s each: this span and the one before. With a whole
 * span before, both together have all devices of the last grace_s at least. A look that fails
 * discards the answers, as pods may have come and gone meanwhile.
 */
#include "in_use.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "pod_resources.h"
#include "say.h"

#define CALL_MS    10000
#define LOOKS      10 /* looks in a span */
#define PERIOD_MIN 1  /* seconds between looks, at least */

struct in_use {
	struct loop *loop;
	struct loop_watch timer;
	const char *socket;
	struct grpc_call *call;
	/* length of a span; the start of this one, 0: it starts at the next look */
	uint64_t span_ns, began_ns;
	struct bytes now, before;
	bool has_before;
	struct fault said;
	void (*looked)(void *arg, const struct bytes *ids);
	void *arg;
};

/* -- messages ---------------------------------------------------------------------------------- */

static void add_id(void *arg, const char *id, size_t len, const struct pod_names *names)
{
	struct bytes *ids = arg;

	(void)names;
	if (len && !memchr(id, '\0', len)) {
		bytes_add(ids, id, len);
		bytes_add(ids, "", 1);
	}
}

/* -- looking ----------------------------------------------------------------------------------- */

void in_use_forget(struct in_use *in_use)
{
	in_use->began_ns = 0;
	in_use->has_before = false;
	bytes_clear(&in_use->now);
	bytes_clear(&in_use->before);
}

/* If this span is over, it becomes the one before, and a new span begins. */
static void turn_span(struct in_use *in_use)
{
	uint64_t now_ns = clock_now_ns();
	struct bytes spare = in_use->before;

	if (in_use->began_ns && now_ns - in_use->began_ns < in_use->span_ns)
		return;
	if (in_use->began_ns) {
		in_use->before = in_use->now;
		in_use->has_before = true;
		in_use->now = spare;
		bytes_clear(&in_use->now);
	}
	in_use->began_ns = now_ns;
}

static void report(struct in_use *in_use)
{
	struct bytes all = {0};

	bytes_add(&all, in_use->before.data, in_use->before.len);
	bytes_add(&all, in_use->now.data, in_use->now.len);
	all.failed |= in_use->before.failed || in_use->now.failed;
	in_use->looked(in_use->arg, in_use->has_before && !all.failed ? &all : NULL);
	bytes_free(&all);
}

/* Discards the answers after a look that failed. A failure that lasts is logged once. */
static void fail(struct in_use *in_use, const char *why)
{
	in_use_forget(in_use);
	if (say_changed(&in_use->said, why))
		say(LOG_WARNING,
		    "cannot find out which pods have devices: %s. Until that works, containers "
		    "have no pods' names, and directories stay until their devices are given "
		    "again. See --pods",
		    why);
}

static void on_answer(void *arg, enum grpc_status status, struct pb_message answer, const char *why)
{
	struct in_use *in_use = arg;
	struct fault fault;

	in_use->call = NULL;
	turn_span(in_use);
	if (status == GRPC_OK &&
	    pod_resources_each(answer, POD_RESOURCES_DEVICES, add_id, &in_use->now) == 0) {
		say_changed(&in_use->said, "");
	} else {
		fault_set(&fault, -EIO, "%.200s answers: %.200s", in_use->socket,
			  status == GRPC_OK ? "not a list of pods" : why);
		fail(in_use, fault.text);
	}
	report(in_use);
}

static void on_timer(void *arg, uint32_t events)
{
	static const struct bytes empty;
	struct in_use *in_use = arg;
	struct fault fault = {""};

	(void)events;
	loop_timer_read(in_use->timer.fd);
	if (in_use->call)
		return;
	in_use->call = grpc_call(in_use->loop, in_use->socket, POD_RESOURCES_LIST, &empty, CALL_MS,
				 on_answer, in_use, &fault);
	if (!in_use->call) {
		fail(in_use, fault.text);
		report(in_use);
	}
}

/* -- all of it --------------------------------------------------------------------------------- */

struct in_use *in_use_begin(struct loop *loop, const char *socket, unsigned grace_s,
			    void (*looked)(void *arg, const struct bytes *ids), void *arg,
			    struct fault *fault)
{
	struct in_use *in_use = calloc(1, sizeof(*in_use));
	uint64_t period_ms = (uint64_t)(grace_s > LOOKS ? grace_s / LOOKS : PERIOD_MIN) * 1000;
	int error = in_use ? 0 : -ENOMEM;

	if (!error) {
		*in_use = (struct in_use){
			.loop = loop,
			.timer = {loop_timer(period_ms, period_ms), on_timer, in_use},
			.socket = socket,
			.span_ns = grace_s * NS_PER_S,
			.looked = looked,
			.arg = arg,
		};
		error = in_use->timer.fd < 0 ? in_use->timer.fd : loop_add(loop, &in_use->timer);
	}
	if (!error)
		return in_use;
	if (in_use && in_use->timer.fd >= 0)
		close(in_use->timer.fd);
	free(in_use);
	fault_set(fault, error, "cannot ask the kubelet for pods: %s", strerror(-error));
	return NULL;
}

void in_use_end(struct in_use *in_use)
{
	if (!in_use)
		return;
	grpc_call_cancel(in_use->call);
	loop_remove(in_use->loop, &in_use->timer);
	close(in_use->timer.fd);
	bytes_free(&in_use->now);
	bytes_free(&in_use->before);
	free(in_use);
}
