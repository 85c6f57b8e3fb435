/* References that calls let go of, one after the other or at once: when the memory goes, in every
 * order of what begins, what returns and what the driver refuses. */
#include "binding.h"
#include "quota_holding_fixture.h"

#define OWNER   ((uint64_t)0x3000)
#define AT_MOST 4

/* -- every order ------------------------------------------------------------------------------ */

enum op {
	DONE,
	HOLD,       /* memory of so many MiB, which gets the handle */
	HOLD_OTHER, /* the same with another handle */
	AGAIN,      /* another reference */
	MAP,        /* the memory of the handle, with a reference of its own */
	MAP_OTHER,  /* that of the other handle, where the former is; ends the former mapping */
	BEGIN,      /* a call that lets go of the handle, by the call's number */
	OTHER_GOES, /* a call that lets go of the other handle, and returns */
	UNMAPPING,  /* a call that unmaps the memory, by the call's number */
	END,        /* the driver has let go for the call, which has not returned */
	COMMIT,     /* the call returns */
	UNDO,       /* the call returns, as the driver refused */
	REFER,      /* a call that makes a reference begins */
	DROP,       /* that call returns, as the driver refused */
	KEEP,       /* that call returns, and the driver has made the reference */
};

#define LAST true

struct step {
	enum op op;
	unsigned number; /* the MiB, or the number of the call */
	/* of MAP_OTHER, BEGIN, OTHER_GOES, UNMAPPING, COMMIT, DROP, KEEP: it is the last reference,
	 * as far as is known */
	bool last;
	unsigned mib; /* the charge afterwards */
};

/* After all steps, nothing is held or mapped. */
static const struct row {
	const char *name;
	struct step step[16];
} rows[] = {
	/* clang-format off */
	{"two references", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"refused, with another reference", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {UNDO, 0, 0, 6},
		{BEGIN, 0, 0, 6}, {UNDO, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"refused, with the last reference", {
		{HOLD, 6, 0, 6}, {BEGIN, 0, LAST, 6}, {UNDO, 0, 0, 6}, {BEGIN, 0, LAST, 6},
		{UNDO, 0, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"the call that began first returns last", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {BEGIN, 1, LAST, 6},
		{COMMIT, 1, 0, 6}, {COMMIT, 0, LAST, 0}}},
	{"a reference is made while what was the last one goes", {
		{HOLD, 6, 0, 6}, {BEGIN, 0, LAST, 6}, {AGAIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"two calls are refused", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {BEGIN, 1, LAST, 6},
		{UNDO, 0, 0, 6}, {UNDO, 1, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"two calls are refused, the second first", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {BEGIN, 1, LAST, 6},
		{UNDO, 1, 0, 6}, {UNDO, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"a call ends one reference, however often its end is noted", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {END, 0, 0, 6}, {END, 0, 0, 6},
		{END, 0, 0, 6}, {COMMIT, 0, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"the handle is other memory's before the calls return", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {BEGIN, 1, LAST, 6},
		{HOLD, 4, 0, 10}, {COMMIT, 0, 0, 10}, {COMMIT, 1, LAST, 4}, {BEGIN, 0, LAST, 4},
		{COMMIT, 0, LAST, 0}}},
	{"calls for the memory before are none of the new memory's", {
		{HOLD, 6, 0, 6}, {BEGIN, 0, LAST, 6}, {HOLD, 4, 0, 10}, {BEGIN, 1, LAST, 10},
		{UNDO, 1, 0, 10}, {COMMIT, 0, LAST, 4}, {BEGIN, 0, LAST, 4}, {COMMIT, 0, LAST, 0}}},
	{"references whose end was not seen ended with the memory", {
		{HOLD, 6, 0, 6}, {AGAIN, 0, 0, 6}, {BEGIN, 0, 0, 6}, {HOLD, 4, 0, 10},
		{COMMIT, 0, LAST, 4}, {BEGIN, 0, LAST, 4}, {COMMIT, 0, LAST, 0}}},
	{"a mapping keeps the memory", {
		{HOLD, 6, 0, 6}, {MAP, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{UNMAPPING, 0, LAST, 6}, {UNDO, 0, 0, 6}, {UNMAPPING, 0, LAST, 6},
		{COMMIT, 0, LAST, 0}}},
	{"two threads unmap the same, and one is refused before the other", {
		{HOLD, 6, 0, 6}, {MAP, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{UNMAPPING, 0, LAST, 6}, {UNMAPPING, 1, 0, 6}, {UNDO, 0, 0, 6},
		{COMMIT, 1, LAST, 0}}},
	{"two threads unmap the same, and one is refused after the other", {
		{HOLD, 6, 0, 6}, {MAP, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{UNMAPPING, 0, LAST, 6}, {UNMAPPING, 1, 0, 6}, {COMMIT, 1, LAST, 0},
		{UNDO, 0, 0, 0}}},
	{"two threads unmap the same, and the driver lets both: there was one reference", {
		{HOLD, 6, 0, 6}, {MAP, 0, 0, 6}, {UNMAPPING, 0, 0, 6}, {UNMAPPING, 1, LAST, 6},
		{COMMIT, 0, 0, 6}, {COMMIT, 1, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, LAST, 0}}},
	{"other memory is mapped there before the unmapping is noted", {
		{HOLD, 6, 0, 6}, {HOLD_OTHER, 4, 0, 10}, {MAP, 0, 0, 10}, {BEGIN, 0, 0, 10},
		{COMMIT, 0, 0, 10}, {UNMAPPING, 0, LAST, 10}, {MAP_OTHER, 0, LAST, 4},
		{COMMIT, 0, 0, 4}, {OTHER_GOES, 0, 0, 4}, {UNMAPPING, 0, LAST, 4},
		{COMMIT, 0, LAST, 0}}},
	{"the handle is other memory's, while one of two unmappings was refused", {
		{HOLD, 6, 0, 6}, {MAP, 0, 0, 6}, {BEGIN, 0, 0, 6}, {COMMIT, 0, 0, 6},
		{UNMAPPING, 0, LAST, 6}, {UNMAPPING, 1, 0, 6}, {HOLD, 2, 0, 8},
		{COMMIT, 1, LAST, 2}, {UNDO, 0, 0, 2}, {BEGIN, 0, LAST, 2}, {COMMIT, 0, LAST, 0}}},
	{"a reference keeps the memory until the driver has refused it", {
		{HOLD, 6, 0, 6}, {REFER, 0, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, 0, 6},
		{DROP, 0, LAST, 0}}},
	{"a reference that is refused is none of the new memory's", {
		{HOLD, 6, 0, 6}, {REFER, 0, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, 0, 6},
		{HOLD, 4, 0, 10}, {DROP, 0, LAST, 4}, {BEGIN, 0, LAST, 4}, {COMMIT, 0, LAST, 0}}},
	{"a reference that the driver has made is to the new memory", {
		{HOLD, 6, 0, 6}, {REFER, 0, 0, 6}, {BEGIN, 0, LAST, 6}, {COMMIT, 0, 0, 6},
		{HOLD, 4, 0, 10}, {KEEP, 0, LAST, 4}, {BEGIN, 0, 0, 4}, {COMMIT, 0, 0, 4},
		{BEGIN, 0, LAST, 4}, {COMMIT, 0, LAST, 0}}},
	/* clang-format on */
};

static struct holding_release calls[2];
static struct holding_reference making;

/* Returns whether the reference was the last one. */
static bool drop(const struct holding_reference *reference)
{
	struct holding_release going;

	assert_true(quota_reference_drop(reference, &going));
	quota_holding_unref_commit(&going);
	return going.last;
}

static bool keep(void)
{
	struct holding_reference old;
	bool last = quota_reference_renew(&making, &old) && drop(&old);

	quota_reference_keep(&making);
	return last;
}

/* Returns whether the step was about the last reference. */
static bool perform(const struct step *step)
{
	struct holding_release *call = &calls[step->number % 2], before = {.last = false};

	switch (step->op) {
	case DONE:
		break;
	case HOLD:
		hold(step->number * MIB, HANDLE);
		return false;
	case HOLD_OTHER:
		hold(step->number * MIB, OTHER);
		return false;
	case AGAIN:
		assert_int_equal(hold_again(HOLDING_PHYSICAL, HANDLE), 0);
		return false;
	case MAP:
		map(BASE, 6 * MIB, HANDLE);
		return false;
	case MAP_OTHER:
		assert_true(map_over(BASE, 4 * MIB, OTHER, &before));
		quota_holding_unref_commit(&before);
		return before.last;
	case OTHER_GOES:
		return let_go(OTHER);
	case BEGIN:
		assert_true(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, call));
		break;
	case UNMAPPING:
		assert_int_equal(quota_unmapping(BASE, BASE + GIB, call, 1), 1);
		assert_int_equal(call->address, BASE);
		break;
	case END:
		quota_holding_unref_end(call);
		return false;
	case COMMIT:
		quota_holding_unref_commit(call);
		break;
	case UNDO:
		quota_holding_unref_undo(call);
		return false;
	case REFER:
		assert_true(quota_reference_begin(HOLDING_PHYSICAL, HANDLE, &making));
		return false;
	case DROP:
		return drop(&making);
	case KEEP:
		return keep();
	}
	return call->last;
}

UNIT_ROWS(rows)
{
	for (const struct step *step = row->step; step->op != DONE; step++) {
		bool last = perform(step);

		if (last != step->last || data() != step->mib * MIB)
			fail_msg("step %u: last %d, %llu bytes are charged",
				 (unsigned)(step - row->step), last, (unsigned long long)data());
	}
	assert_rests_at(0);
	assert_false(is_known(HOLDING_PHYSICAL, HANDLE));
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
}

/* -- what a call is told ---------------------------------------------------------------------- */

UNIT_TEST(test_references)
{
	struct holding_release going;

	assert_int_equal(hold_again(HOLDING_PHYSICAL, HANDLE), -1);
	assert_false(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(is_quiet());
	hold_on(HOLDING_PHYSICAL, 1, 0, 6 * MIB, HANDLE);
	assert_int_equal(hold_again(HOLDING_PHYSICAL, HANDLE), 1);
	assert_int_equal(hold_again(HOLDING_ARRAY, HANDLE), -1);
	assert_false(let_go(HANDLE));
	assert_int_equal(own_usage(1).data, 6 * MIB);
	assert_true(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(going.last);
	assert_int_equal(going.bytes, 6 * MIB);
	assert_int_equal(going.device, 1);
	assert_int_equal(going.handle, HANDLE);
	assert_int_equal(own_usage(1).data, 6 * MIB); /* until the driver has let go */
	assert_false(is_quiet());
	assert_true(is_known(HOLDING_PHYSICAL, HANDLE));
	quota_holding_unref_commit(&going);
	assert_false(is_known(HOLDING_PHYSICAL, HANDLE));
	assert_int_equal(own_usage(1).total, 0);
	assert_false(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(is_quiet());
}

UNIT_TEST(test_exported_meanwhile)
{
	struct holding_release going;

	hold(6 * MIB, HANDLE);
	assert_true(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, &going));
	quota_holding_note_export(HANDLE);
	quota_holding_unref_end(&going);
	assert_true(going.exported);
	quota_holding_unref_commit(&going);
}

/* -- contexts, children and owners ------------------------------------------------------------ */

/* Holds memory, gives its handle to other memory before a call that lets go of it returns, and
 * lets go of the other. */
static void hold_replaced(enum holding_kind kind, struct holding_release *ret_going)
{
	hold_on(kind, 0, CONTEXT, 6 * MIB, HANDLE);
	assert_true(quota_holding_unref_begin(kind, HANDLE, ret_going));
	hold_on(kind, 0, CONTEXT, 4 * MIB, HANDLE);
	assert_true(let_go_of(kind, HANDLE));
	assert_int_equal(own_usage(0).total, 6 * MIB);
}

/* The end of the context gives back what it has, and the call that returns later gives nothing. */
UNIT_TEST(test_context_ends_meanwhile)
{
	static const enum holding_kind kinds[] = {HOLDING_ARRAY, HOLDING_IMPORT};

	for (unsigned i = 0; i < 2; i++) {
		struct holding_release going;

		hold_replaced(kinds[i], &going);
		hold_on(kinds[i], 0, CONTEXT + 1, 10 * MIB, OTHER);
		holdings_end_context(CONTEXT);
		assert_int_equal(own_usage(0).total, 10 * MIB);
		quota_holding_unref_commit(&going);
		assert_int_equal(own_usage(0).total, 10 * MIB);
		assert_true(let_go_of(kinds[i], OTHER));
		assert_true(is_quiet());
	}
}

/* A child has none of its parent's memory, and its contexts may have the same addresses. */
static int live_as_child(void)
{
	struct quota_gpu gpu = {"GPU-a", 0};

	if (quota_attach(&quota_slice, &gpu, 1, NULL) != 0)
		return 1;
	hold_on(HOLDING_ARRAY, 0, CONTEXT + 1, 10 * MIB, OTHER);
	holdings_end_context(CONTEXT);
	return data() == 10 * MIB ? 0 : 2;
}

UNIT_TEST(test_forked_meanwhile)
{
	struct holding_release going;

	hold_replaced(HOLDING_ARRAY, &going);
	assert_in_child(live_as_child);
	quota_holding_unref_commit(&going);
	assert_int_equal(data(), 0);
}

/* Nothing is bound at the place yet. */
static void bind(uint64_t place, uint64_t handle)
{
	struct holding_reference reference;
	struct holding_release before;

	assert_true(quota_reference_begin(HOLDING_PHYSICAL, handle, &reference));
	assert_false(quota_bound(place, OWNER, &reference, &before));
}

/* The end of an owner gives only the memory whose last reference it had. */
UNIT_TEST(test_owner_ends)
{
	struct holding_release ended[AT_MOST];

	hold(6 * MIB, HANDLE);
	bind(BASE, HANDLE);
	hold(4 * MIB, OTHER);
	bind(BASE + 1, OTHER);
	assert_false(let_go(OTHER));
	assert_int_equal(quota_unbind_owner(OWNER, ended, AT_MOST), 1);
	assert_int_equal(ended[0].handle, OTHER);
	quota_holding_unref_commit(&ended[0]);
	assert_rests_at(6 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
}

/* Mappings and bindings of memory whose handle is other memory's by now. */
UNIT_TEST(test_referrers_of_the_memory_before)
{
	struct holding_reference reference;
	struct holding_release release;

	hold(6 * MIB, HANDLE);
	map(BASE, 6 * MIB, HANDLE);
	bind(BASE + 1, HANDLE);
	bind(BASE + 2, HANDLE);
	hold(4 * MIB, HANDLE);
	assert_int_equal(data(), 4 * MIB);
	assert_false(quota_reference_begin_mapped(BASE, &reference));
	assert_int_equal(unmap(BASE, BASE + GIB), 0);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
	assert_false(quota_unbound(BASE + 1, quota_newest_binding(), &release));
	assert_int_equal(quota_unbind_owner(OWNER, &release, 1), 0);
	assert_rests_at(4 * MIB);
	assert_true(let_go(HANDLE));
}

/* A call is told that the handle was given to other memory before it returned. */
UNIT_TEST(test_replaced)
{
	struct holding_reference reference;
	struct holding_release going;

	hold(6 * MIB, HANDLE);
	assert_true(quota_reference_begin(HOLDING_PHYSICAL, HANDLE, &reference));
	assert_false(quota_reference_is_stale(&reference));
	assert_int_equal(reference.bytes, 6 * MIB);
	hold(4 * MIB, HANDLE);
	assert_true(quota_reference_is_stale(&reference));
	assert_true(quota_reference_drop(&reference, &going));
	quota_holding_unref_end(&going);
	assert_true(going.replaced && going.last);
	quota_holding_unref_commit(&going);
	assert_true(quota_holding_unref_begin(HOLDING_PHYSICAL, HANDLE, &going));
	quota_holding_unref_end(&going);
	assert_false(going.replaced);
	quota_holding_unref_commit(&going);
	assert_rests_at(0);
}
