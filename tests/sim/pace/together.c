/* Several processes of one slice: one quota for all of them, whoever of them is killed. */
#include "pace.h"

#include <sys/mman.h>
#include <time.h>

#define MOST 4

/* What they have launched, and how they were delayed: shared by all. */
static struct common {
	struct {
		uint64_t given, delayed;
	} of[MOST];
	bool enough;
} * common;

static unsigned self; /* of a member: its number */

static const uint64_t lengths[MOST] = {MS, 200000, 2 * MS, 500000};

static void launches_on(int wire)
{
	uint64_t ns = lengths[self];

	pace_start("50");
	tell(wire, 1);
	while (!PEEK(common->enough)) {
		__atomic_fetch_add(&common->of[self].given, step_alone(&ns), __ATOMIC_SEQ_CST);
		POKE(common->of[self].delayed, delayed_ns());
	}
}

static struct member begin(unsigned number)
{
	struct member member;

	self = number;
	member = member_start(launches_on);
	CHECK_EQUAL(hear(member.wire), 1);
	return member;
}

static void begin_all(struct member *members, unsigned count)
{
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(common != MAP_FAILED);
	for (unsigned i = 0; i < count; i++)
		members[i] = begin(i);
	pace_map();
}

static void end_all(struct member *members, unsigned count)
{
	POKE(common->enough, true);
	for (unsigned i = 0; i < count; i++)
		member_end(&members[i]);
}

/* Of all together, and that each has some of it. */
static struct share share_of_all(unsigned count, unsigned ms)
{
	struct common before = *common, after;
	uint64_t began = now_ns(), elapsed, got = 0, late = 0;

	sleep_ms(ms);
	after = *common;
	elapsed = now_ns() - began;
	for (unsigned i = 0; i < count; i++) {
		uint64_t delayed = after.of[i].delayed - before.of[i].delayed;
		uint64_t given = after.of[i].given - before.of[i].given;

		printf("  %u: %.2f %%\n", i, 100.0 * (double)given / (double)elapsed);
		CHECK(given > 0);
		got += given;
		late = delayed > late ? delayed : late;
	}
	if (late > elapsed / 2)
		late = elapsed / 2;
	return (struct share){100.0 * (double)got / (double)elapsed,
			      100.0 * (double)got / (double)(elapsed - late)};
}

static void check_all(const char *what, unsigned count)
{
	unsigned attempt = 0;

	sleep_ms(300);
	while (!share_is_right(what, share_of_all(count, 1200), 50, 2 * LESS_PCT, attempt))
		attempt++;
}

static const struct number {
	const char *name;
	unsigned count;
} numbers[] = {{"two", 2}, {"four", 4}};

static void several(const struct number *of)
{
	struct member members[MOST];

	begin_all(members, of->count);
	check_all("processes together", of->count);
	end_all(members, of->count);
}

TEST_TABLE(numbers, several);

/* What the words may be, whoever died between which two of them. */
static void check_sane(void)
{
	CHECK(level_of(0) <= 20 * (int64_t)MS && level_of(0) >= -500 * (int64_t)MS);
}

TEST(killed)
{
	struct member members[3];

	begin_all(members, 3);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t before = PEEK(common->of[0].given);

		sleep_ms(37 + 11 * i);
		member_kill(&members[1 + i % 2]);
		check_sane();
		for (unsigned ms = 0; PEEK(common->of[0].given) == before; ms++) {
			CHECK(ms < LONG_MS);
			sleep_ms(1);
		}
		members[1 + i % 2] = begin(1 + i % 2);
	}
	check_all("after deaths", 3);
	check_sane();
	end_all(members, 3);
}
