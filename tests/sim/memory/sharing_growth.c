/*
 * A process that has others' memory open, and takes memory that no hook sees: what NVML counts for
 * it beside its books is its own, as the shared memory is in the figure of the process that made
 * it.
 */
#include "sharing_fixture.h"

#define MODULE (20 * MIB)
#define SHARED (THINGS * SIZE)
#define ROOM   (200 * MIB) /* less than is shared */

static const char code[] = ".version 8.0\n.target sm_90\n.visible .entry nothing() { ret; }\n";

static CUlibrary library; /* each actor's last */

/* Loads code that takes MODULE at its first launch, and launches it. False: there is no room. */
static bool grow(void)
{
	CUkernel kernel;
	CUresult result = cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result != CUDA_SUCCESS)
		return false;
	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_SUCCESS);
	CHECK_CUDA(
		cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		CUDA_SUCCESS);
	return true;
}

/* Until there is no room for a granule. */
static uint64_t grow_until_full(uint64_t unused)
{
	(void)unused;
	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr address;

		sleep_ms(3);
		if (cuMemAlloc_v2(&address, GRANULE) != CUDA_SUCCESS)
			break;
		give(address);
		if (!grow())
			break;
	}
	return 0;
}

static uint64_t grow_once(uint64_t unused)
{
	(void)unused;
	CHECK(grow());
	return 0;
}

static uint64_t shrink(uint64_t unused)
{
	CHECK_CUDA(cuLibraryUnload(library), CUDA_SUCCESS);
	return unused;
}

/* a has made SHARED, and b has it open. */
static void share_all(struct member *a, struct member *b)
{
	for (unsigned i = 0; i < THINGS; i++) {
		order(a, create, i);
		order(a, send_off, i);
		order(b, fetch, i);
	}
}

static void begin_lazy(void)
{
	begin();
	env_set("VGPU_SIM_MODULE_MIB", "20");
	env_set("VGPU_SIM_MODULE_LAZY", "1");
}

TEST(importer_is_held)
{
	uint64_t quota = 2 * CHARGE + SHARED + ROOM;
	struct member a, b;
	char limit[24];

	begin_lazy();
	snprintf(limit, sizeof(limit), "%lluk", (unsigned long long)(quota / KIB));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	a = actor();
	b = actor();
	share_all(&a, &b);
	assert_held(2, SHARED);
	order(&b, grow_until_full, 0);
	CHECK_AT_MOST(outside_used(0), quota + 2 * MODULE + GRANULE);
	dismiss(&a);
	dismiss(&b);
}

/* What the importer took is in its books to the byte, and so is what it has open, whoever gives it
 * up first. */
TEST(growth_is_booked)
{
	struct vgpu_hami_usage usage;
	struct member a, b;

	begin_lazy();
	a = actor();
	b = actor();
	share_all(&a, &b);
	order(&b, grow_once, 0);
	order(&b, look, 0); /* one says that it may be, the next that it is */
	order(&b, look, 0);
	usage = ledger_of(b.pid, 0);
	CHECK_EQUAL(usage.module, MODULE);
	CHECK_EQUAL(usage.data, 0);
	for (unsigned i = 0; i < THINGS; i++)
		order(&a, release, i);
	order(&b, look, 0);
	usage = ledger_of(b.pid, 0);
	CHECK_EQUAL(usage.module, MODULE);
	CHECK_EQUAL(usage.data, SHARED);
	order(&b, shrink, 0); /* nobody else has the memory open: the figure is b's alone */
	order(&b, look, 0);
	usage = ledger_of(b.pid, 0);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(usage.data, SHARED);
	for (unsigned i = 0; i < THINGS; i++)
		order(&b, release, i);
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
}

/* The charge went to one of two who have the memory open, and NVML counts it for the other: the
 * books of neither are changed for that. */
TEST(charge_and_figure_apart)
{
	struct vgpu_hami_usage usage;
	struct member a, b, c;

	begin_lazy();
	a = actor();
	b = actor(); /* whose figure gets it: the simulated driver takes the first */
	c = actor(); /* who gets the charge: the region takes the first that imported it */
	for (unsigned i = 0; i < 5; i++)
		order(&c, grow_once, 0);
	order(&c, look, 0);
	order(&a, create, 0);
	order(&a, send_off, 0);
	order(&c, fetch, 0);
	order(&a, send_off, 0);
	order(&b, fetch, 0);
	order(&a, release, 0);
	CHECK_EQUAL(outside_of(0, b.pid), CONTEXT + SIZE);
	CHECK_EQUAL(outside_of(0, c.pid), CONTEXT + 5 * MODULE);
	order(&b, look, 0);
	order(&b, look, 0);
	usage = ledger_of(b.pid, 0);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(usage.data, 0);
	order(&c, look, 0);
	usage = ledger_of(c.pid, 0);
	CHECK_EQUAL(usage.module, 5 * MODULE);
	CHECK_EQUAL(usage.data, SIZE);
	dismiss(&a);
	dismiss(&b);
	dismiss(&c);
}
