/* See parked_fixture.h. */
#include "parked_fixture.h"

#include "parked.h"

#define QUOTA      (2 * GIB)
#define QUOTA_TEXT "2g"
#define PIECES     64
#define PIECE      (16 * MIB)

struct member other;

/* -- others, which take what is left ----------------------------------------------------------- */

static CUdeviceptr pieces[PIECES];
static unsigned count;

/* Takes the bytes in one piece. Returns how many bytes it got. */
static uint64_t take_piece(uint64_t bytes)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result;

	if (!bytes)
		return 0;
	CHECK(count < PIECES);
	result = cuMemAlloc_v2(&address, bytes);
	if (result != CUDA_SUCCESS) {
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(address, UNTOUCHED);
		return 0;
	}
	pieces[count++] = address;
	return bytes;
}

static uint64_t give_pieces(uint64_t unused)
{
	while (count)
		give(pieces[--count]);
	return unused;
}

static uint64_t use_device(uint64_t device)
{
	cuda_start((CUdevice)device);
	give(take(1)); /* settles the context */
	return 0;
}

static struct member neighbour; /* of the same slice */

/* The neighbour and this thread take `bytes`, and all that the library has found besides. Returns
 * how many bytes they got. */
static uint64_t fill_rest(uint64_t bytes, bool full, bool found)
{
	uint64_t half = bytes / 2 / GRANULE * GRANULE, more = 0, piece;

	CHECK_EQUAL(order(&neighbour, take_piece, half), half);
	CHECK_EQUAL(take_piece(bytes - half), bytes - half);
	while (found && (piece = take_piece(PIECE)))
		more += piece;
	if (full && !found) {
		CHECK_EQUAL(take_piece(GRANULE), 0);
		CHECK_EQUAL(order(&neighbour, take_piece, GRANULE), 0);
	}
	return bytes + more;
}

/* -- figures ----------------------------------------------------------------------------------- */

static const struct parked_row *row;

struct state {
	uint64_t device, ledger; /* bytes */
};

static struct state look_at(void)
{
	return (struct state){outside_used((unsigned)row->device),
			      ledger_used((unsigned)row->device)};
}

static void expect(const char *when, const char *what, uint64_t is, uint64_t from, int64_t mib,
		   uint64_t more)
{
	uint64_t expected = from + (uint64_t)(mib * (int64_t)MIB) + more;

	CHECK_SAYING(is == expected, "%s: %s: %.2f MiB in %s, and not %.2f", row->name, when,
		     (double)is / (double)MIB, what, (double)expected / (double)MIB);
}

static void expect_state(const char *when, const struct state *from, int64_t takes, int64_t charges,
			 uint64_t filled)
{
	struct state now = look_at();

	expect(when, "the ledger", now.ledger, from->ledger, charges, filled);
	expect(when, "the device", now.device, from->device, takes, filled);
}

/* No class of this process has what another lacks. */
static void expect_classes(const struct vgpu_hami_usage *from)
{
	struct vgpu_hami_usage now = ledger_own((unsigned)row->device);

	expect("undone", "contexts", now.context, from->context, 0, 0);
	expect("undone", "modules", now.module, from->module, 0, 0);
	expect("undone", "data", now.data, from->data, 0, 0);
	expect("undone", "what no figure shows", now.offset, from->offset, 0, 0);
}

void parked_compare(void)
{
	size_t available, total;

	for (unsigned i = 0; i < 2; i++) {
		sleep_ms(25);
		CHECK_OK(cuMemGetInfo_v2(&available, &total));
	}
}

/* Comparisons are made until the ledger is as far above `from` as it should be. On a busy machine,
 * where answers of NVML take long, the library compares less often. */
static void compare_until(const char *when, const struct state *from, int64_t takes,
			  int64_t charges, uint64_t filled)
{
	uint64_t began = now_ms();

	do
		parked_compare();
	while (look_at().ledger != from->ledger + (uint64_t)(charges * (int64_t)MIB) + filled &&
	       now_ms() - began < WAIT_S * 100);
	expect_state(when, from, takes, charges, filled);
}

/* -- a test ------------------------------------------------------------------------------------ */

static void start(void)
{
	char rule[128];

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", QUOTA_TEXT);
	env_set("VGPU_SIM_GPUS", "2x80G");
	if (row->outsider)
		other = outsider(row->outsider);
	else if (row->sibling)
		other = actor();
	neighbour = actor();
	if (row->device)
		order(&neighbour, use_device, (uint64_t)row->device);
	for (unsigned i = 0; i < 4 && row->env[i]; i += 2)
		env_set(row->env[i], row->env[i + 1]);
	snprintf(rule, sizeof(rule), "%s%s", row->call, row->done ? ":done" : "");
	park(rule);
	use_device(0);
	if (row->device)
		use_device((uint64_t)row->device);
}

/* While the call is parked. Returns how many bytes the others took. */
static uint64_t others_take(const struct state *before)
{
	bool is_exact = !row->found && !row->is_pool && !row->meanwhile;
	struct state now;
	uint64_t filled;

	if (row->meanwhile)
		row->meanwhile();
	now = look_at();
	if (row->meanwhile)
		CHECK_AT_MOST(now.device + before->ledger, now.ledger + before->device);
	if (!row->found)
		CHECK_AT_MOST(before->ledger + (uint64_t)row->reserves * MIB, now.ledger);
	if (is_exact)
		expect("parked", "the ledger", now.ledger, before->ledger, row->reserves, 0);
	if (!row->meanwhile && row->result == CUDA_SUCCESS)
		expect("parked", "the device", now.device, before->device,
		       row->done ? row->takes : 0, 0);
	filled = fill_rest(QUOTA - before->ledger - (uint64_t)(row->reserves + row->leaves) * MIB,
			   !row->leaves && !row->unused, row->found);
	CHECK_AT_MOST(look_at().ledger, QUOTA);
	return filled;
}

static void finish(const struct state *clean, const struct vgpu_hami_usage *used)
{
	give_pieces(0);
	order(&neighbour, give_pieces, 0);
	if (row->undo) {
		row->undo();
		compare_until("undone", clean, 0, 0, 0);
		expect_classes(used);
		CHECK_EQUAL(take_piece(QUOTA - clean->ledger), QUOTA - clean->ledger);
		CHECK_EQUAL(take_piece(GRANULE), 0);
		give_pieces(0);
	}
	dismiss(&neighbour);
	if (row->outsider || row->sibling)
		dismiss(&other);
}

void parked_play(const struct parked_row *played)
{
	struct vgpu_hami_usage used;
	struct state clean, before;
	struct call call;
	uint64_t filled, left;

	row = played;
	start();
	clean = look_at();
	used = ledger_own((unsigned)row->device);
	if (row->prepare)
		row->prepare();
	before = look_at();
	outside_peak_begin((unsigned)row->device);
	begin_call(&call, row->make);
	filled = others_take(&before);
	CHECK_EQUAL(end_call(&call), row->result);
	if (!row->later)
		expect_state("returned", &before, row->takes, row->charges, filled);
	compare_until("compared", &before, row->takes, row->charges, filled);
	left = QUOTA - look_at().ledger;
	CHECK_EQUAL(take_piece(left), left);
	if (!row->unused) {
		CHECK_EQUAL(take_piece(GRANULE), 0);
		CHECK_EQUAL(order(&neighbour, take_piece, GRANULE), 0);
	}
	CHECK_AT_MOST(outside_peak((unsigned)row->device),
		      QUOTA + (uint64_t)row->beyond * MIB + clean.device - clean.ledger);
	finish(&clean, &used);
}
