/* References that are let go of by calls that take long: what happens before the calls return. */
#include <sys/wait.h>

#include "quota_holding_fixture.h"

#define OWNER   ((uint64_t)0x3000)
#define AT_MOST 4

UNIT_TEST(test_exported_meanwhile)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	quota_hold_exported(HANDLE);
	quota_let_go_end(&going);
	assert_true(going.exported);
	quota_let_go_commit(&going);
}

UNIT_TEST(test_ends_one_reference)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	for (unsigned i = 0; i < 3; i++)
		quota_let_go_end(&going);
	quota_let_go_commit(&going);
	assert_int_equal(data(), 6 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
}

/* Calls that let go of the memory that had the handle before are none of the new memory's. */
UNIT_TEST(test_replaced_counts_from_one)
{
	struct holding_release before, going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &before));
	hold(4 * MIB, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(going.last);
	quota_let_go_undo(&going);
	quota_let_go_commit(&before);
	assert_int_equal(data(), 4 * MIB);
	assert_true(let_go(HANDLE));
}

/* The references whose end was not seen ended with the memory. */
UNIT_TEST(test_replaced_with_more_references)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	hold(4 * MIB, HANDLE);
	quota_let_go_commit(&going);
	assert_true(going.last);
	assert_int_equal(data(), 4 * MIB);
}

/* Holds memory, gives its handle to other memory before a call that lets go of it returns, and
 * lets go of the other. */
static void hold_replaced(enum holding_kind kind, struct holding_release *ret_going)
{
	hold_on(kind, 0, CONTEXT, 6 * MIB, HANDLE);
	assert_true(quota_let_go_begin(kind, HANDLE, ret_going));
	hold_on(kind, 0, CONTEXT, 4 * MIB, HANDLE);
	assert_true(let_go_of(kind, HANDLE));
	assert_int_equal(own_usage(0).total, 6 * MIB);
}

/* The end of the context gives back what it has, and the call that returns later gives nothing. */
UNIT_TEST(test_context_ends_meanwhile)
{
	static const enum holding_kind kinds[] = {HOLDING_ARRAY, HOLDING_IMPORT};

	attach(GIB);
	for (unsigned i = 0; i < 2; i++) {
		struct holding_release going;

		hold_replaced(kinds[i], &going);
		hold_on(kinds[i], 0, CONTEXT + 1, 10 * MIB, OTHER);
		holdings_end_context(CONTEXT);
		assert_int_equal(own_usage(0).total, 10 * MIB);
		quota_let_go_commit(&going);
		assert_int_equal(own_usage(0).total, 10 * MIB);
		assert_true(let_go_of(kinds[i], OTHER));
		assert_true(is_quiet());
	}
}

/* A child has none of its parent's memory, and its contexts may have the same addresses. */
static int live_as_child(void)
{
	struct quota_gpu gpu = {"GPU-a", 0};

	alarm(100);
	quota_forget();
	if (quota_attach(&quota_slice, &gpu, 1, NULL) != 0)
		return 1;
	hold_on(HOLDING_ARRAY, 0, CONTEXT + 1, 10 * MIB, OTHER);
	holdings_end_context(CONTEXT);
	return data() == 10 * MIB ? 0 : 2;
}

UNIT_TEST(test_forked_meanwhile)
{
	struct holding_release going;
	int status = -1;
	pid_t pid;

	attach(GIB);
	hold_replaced(HOLDING_ARRAY, &going);
	pid = fork();
	if (pid == 0)
		_exit(live_as_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	quota_let_go_commit(&going);
	assert_int_equal(data(), 0);
}

/* Two threads unmap the same, and the driver lets both: there was one reference. */
UNIT_TEST(test_unmapped_by_two)
{
	struct holding_release first, second, before;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	assert_false(quota_mapped(BASE, 6 * MIB, HANDLE, &before));
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &first, 1), 1);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &second, 1), 1);
	quota_let_go_commit(&first);
	quota_let_go_commit(&second);
	assert_int_equal(data(), 6 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
}

/* The end of an owner gives only the memory whose last reference it had. */
UNIT_TEST(test_owner_ends)
{
	struct holding_release before, ended[AT_MOST];

	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	assert_false(quota_bound(BASE, OWNER, HANDLE, &before));
	hold(4 * MIB, OTHER);
	assert_false(quota_bound(BASE + 1, OWNER, OTHER, &before));
	assert_int_equal(quota_unbind_owner(OWNER, ended, AT_MOST), 1);
	assert_int_equal(ended[0].handle, OTHER);
	quota_let_go_commit(&ended[0]);
	assert_int_equal(data(), 6 * MIB);
	assert_true(is_quiet());
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
}
