/* Which claims vgpu-dra removes, by the answers of several rounds. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "claim_fetch.h"
#include "lives.h"
#include "sweep.h"
#include "unit.h"

#define CLAIMS 2

/* In the place of the functions of other files. */
static int fetched[CLAIMS];         /* what the API server says of each claim: 0, or an error */
static int parsed;                  /* the same of the text of an answer */
static const char *pool = "node-1"; /* of the allocated device */
static bool has_process, is_mounted;
static unsigned removed, asked;

int claim_fetch(struct api_server *server, const struct claim_id *id, struct bytes *ret_text,
		struct fault *fault)
{
	int error = fetched[id->uid[1] - '0'];

	(void)server, (void)ret_text;
	asked++;
	return error ? fault_set(fault, error, "error %d", error) : 0;
}

int claim_parse(const char *text, size_t len, const struct claim_id *id, const char *driver,
		struct claim *ret_claim, struct fault *fault)
{
	(void)text, (void)len, (void)id, (void)driver, (void)fault;
	*ret_claim = (struct claim){.count = 1};
	snprintf(ret_claim->device[0].pool, sizeof(ret_claim->device[0].pool), "%s", pool);
	return parsed;
}

bool claim_id_is_good(const struct claim_id *id)
{
	return id->uid[0] == 'u';
}

int prepare_undo(const struct prepare *prepare, const struct claim_id *id, struct fault *fault)
{
	(void)prepare, (void)fault;
	assert_string_equal(id->namespace, "team");
	removed++;
	return 0;
}

int __wrap_claims_each(const struct claims_places *places,
		       int (*each)(void *arg, const char *uid, const char *name), void *arg);
bool __wrap_lives_in_region(const char *path);
void __wrap_lives_in_mounts(struct lives_name *names, unsigned count);

int __wrap_claims_each(const struct claims_places *places,
		       int (*each)(void *arg, const char *uid, const char *name), void *arg)
{
	int error = each(arg, "u0", "team/alice");

	(void)places;
	return error ? error : each(arg, "u1", "team/bob");
}

bool __wrap_lives_in_region(const char *path)
{
	(void)path;
	return has_process;
}

void __wrap_lives_in_mounts(struct lives_name *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		names[i].is_mounted = is_mounted;
}

static const struct prepare prepare = {.driver = "gpu.vgpu.dev", .node = "node-1"};
static struct sweep sweep;

static int begin(void **state)
{
	(void)state;
	sweep = (struct sweep){.prepare = &prepare};
	memset(fetched, 0, sizeof(fetched));
	parsed = 0;
	has_process = is_mounted = false;
	pool = "node-1";
	return 0;
}

static int end(void **state)
{
	(void)state;
	sweep_end(&sweep);
	return 0;
}

#define SWEEP_TEST(name) UNIT_TEST_AROUND(name, begin, end)

/* How many claims a round removes, in which the server says this of the first claim. */
static unsigned round_with(int first)
{
	fetched[0] = first;
	removed = 0;
	sweep.next_ns = 0;
	do
		sweep_look(&sweep);
	while (sweep.runs);
	return removed;
}

SWEEP_TEST(test_gone_twice)
{
	assert_int_equal(round_with(-ENOENT), 0);
	assert_int_equal(round_with(-ENOENT), 1);
}

/* Between the two rounds that find it gone, another one has found it. */
SWEEP_TEST(test_gone_not_in_a_row)
{
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(round_with(-ENOENT), 0);
		assert_int_equal(round_with(0), 0);
	}
}

/* A server that does not answer ends the round, and what earlier rounds have found counts no
 * more. */
SWEEP_TEST(test_no_answer)
{
	static const int errors[] = {-EIO, -EACCES};

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(round_with(-ENOENT), 0);
		asked = 0;
		assert_int_equal(round_with(errors[i]), 0);
		assert_int_equal(asked, 1);
		assert_int_equal(round_with(-ENOENT), 0);
		assert_int_equal(round_with(0), 0);
	}
}

SWEEP_TEST(test_in_use)
{
	has_process = true;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(round_with(-ENOENT), 0);
	has_process = false;
	is_mounted = true;
	assert_int_equal(round_with(-ENOENT), 0);
	is_mounted = false;
	assert_int_equal(round_with(-ENOENT), 1);
}

/* Answers by which both claims are gone, and answers by which they are not. */
SWEEP_TEST(test_answers)
{
	static const struct {
		int parsed;
		const char *pool;
		unsigned removed;
	} rows[] = {
		{0, "node-1", 0},       {0, "node-2", CLAIMS},        {-ESTALE, "", CLAIMS},
		{-ENODATA, "", CLAIMS}, {-EINVAL, "node-1", 0},       {-EBADMSG, "node-1", 0},
		{-EINVAL, "node-2", 0}, {-ENODATA, "node-1", CLAIMS},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		parsed = rows[i].parsed;
		pool = rows[i].pool;
		round_with(0);
		assert_int_equal(round_with(0), rows[i].removed);
		parsed = 0;
		pool = "node-1";
		round_with(0);
	}
}

/* A round begins when a period has passed after the last one. */
SWEEP_TEST(test_period)
{
	sweep.period_s = 1000;
	round_with(0);
	asked = 0;
	sweep_look(&sweep);
	assert_int_equal(asked, 0);
}
