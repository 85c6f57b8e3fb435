/* Spans: how many events there are, and which context's work is measured. */
#include <sys/syscall.h>

#include "region_fixture.h"
#include "spans.h"

#define CONTEXTS 8
#define AT_ONCE  16 /* closed spans that a context may have */
#define ROUNDS   200

static struct context {
	unsigned events; /* made, ever */
	bool refuses;
} contexts[300];

static bool is_over; /* whatever was recorded */
static unsigned settled, lost;

/* Events are numbers, which say nothing but that there is one. */
static void *event_make(void *context)
{
	struct context *of = context;

	if (of->refuses)
		return NULL;
	return (void *)(uintptr_t)(1000 * (unsigned)(of - contexts) + ++of->events);
}

static bool record(void *event, const struct pace_work *work)
{
	unsigned of = (unsigned)((uintptr_t)event - 1) / 1000;

	assert_ptr_equal(work->context, &contexts[of]);
	return true;
}

static bool is_reached(void *event)
{
	(void)event;
	return is_over;
}

static enum pace_answer elapsed(void *begin, void *end, uint64_t *ret_ns)
{
	(void)begin;
	(void)end;
	*ret_ns = 1;
	return is_over ? PACE_TOOK : PACE_NOT_YET;
}

static const struct pace_driver driver = {
	.event_make = event_make,
	.record = record,
	.fence = record,
	.is_reached = is_reached,
	.elapsed = elapsed,
};

static void done(const struct span *span, uint64_t took_ns)
{
	(void)span;
	settled += took_ns < SPANS_NOT_YET;
	lost += took_ns == SPANS_NONE;
}

static int begin(void **state)
{
	(void)state;
	memset(contexts, 0, sizeof(contexts));
	is_over = false;
	settled = lost = 0;
	pace_driver = &driver;
	spans_forked();
	return 0;
}

static int end(void **state)
{
	(void)state;
	spans_forked();
	return 0;
}

/* One span of the context, from begin to end; whether there was one. */
static bool measure(struct context *context)
{
	const struct pace_work work = {.context = context};
	struct span *span = span_take(context);

	if (!span)
		return false;
	span->kind = SPAN_WINDOW;
	span->stream = &work;
	span->due_ns = 0;
	assert_true(span_begin(span, &work, false));
	assert_true(span_end(span, &work));
	span_close(span);
	return true;
}

static unsigned measure_most(struct context *context)
{
	unsigned count = 0;

	while (count < 1000 && measure(context))
		count++;
	return count;
}

static unsigned settle(struct context *context)
{
	unsigned before = settled;

	spans_settle(context, NULL, done);
	return settled - before;
}

static unsigned events_made(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < CONTEXTS; i++)
		count += contexts[i].events;
	return count;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    begin
#define UNIT_TEAR_DOWN end

/* As one process that keeps several GPUs busy: each context has what it needs, and as many events
 * as it needs at one time, however long it goes on. */
UNIT_TEST(test_many_contexts)
{
	unsigned after_first = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		is_over = false;
		for (unsigned i = 0; i < CONTEXTS; i++)
			assert_int_equal(measure_most(&contexts[i]), AT_ONCE);
		is_over = true;
		for (unsigned i = 0; i < CONTEXTS; i++)
			assert_int_equal(settle(&contexts[i]), AT_ONCE);
		if (!round)
			after_first = events_made();
		assert_int_equal(events_made(), after_first);
	}
	assert_int_equal(after_first, CONTEXTS * 2 * AT_ONCE);
	assert_false(spans_any());
}

/* One context's spans say nothing of another's. */
UNIT_TEST(test_apart)
{
	assert_int_equal(measure_most(&contexts[0]), AT_ONCE);
	assert_true(spans_settle(&contexts[0], NULL, done).full);
	assert_true(spans_settle(&contexts[1], NULL, done).due_ns == SPANS_NONE);
	assert_true(measure(&contexts[1]));
	assert_false(spans_settle(&contexts[1], NULL, done).full);
	assert_int_equal(spans_give_up(&contexts[1], 1, 1), 1);
	assert_int_equal(spans_give_up(&contexts[2], 1, 1), 0);
	is_over = true;
	assert_int_equal(settle(&contexts[1]), 1);
	assert_true(spans_any());
	assert_int_equal(settle(&contexts[0]), AT_ONCE);
	assert_false(spans_any());
}

/* A context that ended took its events along: the next one at its address makes new ones. */
UNIT_TEST(test_ended)
{
	assert_int_equal(measure_most(&contexts[0]), AT_ONCE);
	spans_end_context(&contexts[0], done);
	assert_int_equal(lost, AT_ONCE);
	assert_false(spans_any());
	assert_int_equal(contexts[0].events, 2 * AT_ONCE);
	assert_true(measure(&contexts[0]));
	assert_int_equal(contexts[0].events, 2 * AT_ONCE + 2);
	spans_end_context(&contexts[5], done); /* which has none */
}

/* Contexts that come and go leave room for others; what there is no room for is not measured. */
UNIT_TEST(test_come_and_go)
{
	unsigned count = 0;

	for (unsigned i = 0; i < 3000; i++) {
		assert_true(measure(&contexts[i % 300]));
		spans_end_context(&contexts[i % 300], done);
	}
	for (unsigned i = 0; i < 300; i++)
		count += measure(&contexts[i]);
	assert_in_range(count, 64, 299);
	for (unsigned i = 0; i < 300; i++)
		spans_end_context(&contexts[i], done);
	assert_true(measure(&contexts[299]));
}

UNIT_TEST(test_no_events)
{
	contexts[0].refuses = true;
	assert_int_equal(measure_most(&contexts[0]), 0);
	contexts[0].refuses = false;
	assert_int_equal(measure_most(&contexts[0]), AT_ONCE);
}

static long refuse_memory(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

UNIT_TEST(test_no_memory)
{
	sys_fault = refuse_memory;
	assert_null(span_take(&contexts[0]));
	sys_fault = NULL;
	assert_non_null(span_take(&contexts[0]));
}
