/*
 * region FILE: what the region costs by itself, without any driver: one "NAME UNIT MEDIAN P99" row
 * each. FILE must not be there; it is removed again.
 *
 * Alone, a pair of a charge and a refund is shorter than a look at the clock takes: whole batches
 * are timed. Among several processes each pair is timed, with one look at the clock in it, because
 * there its spread is what matters.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "region.h"
#include "size.h"

#define BATCHES   2001
#define BATCH     1000
#define PROCESSES 8
#define PAIRS     50000 /* of each of them */
#define ATTACHES  201
#define LIVING    1000
#define CREATIONS 31

static const char *path;
static struct region_setup setup;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static _Noreturn void fail(const char *what, int error)
{
	fprintf(stderr, "region: %s: %s\n", what, strerror(error < 0 ? -error : error));
	unlink(path);
	exit(1);
}

static void must(int error, const char *what)
{
	if (error)
		fail(what, error);
}

static void must_open(struct region *region, const struct region_setup *with)
{
	struct fault fault = {""};

	if (region_open(path, with, region, &fault) || region_claim(region, &fault)) {
		fprintf(stderr, "region: %s\n", fault.text);
		exit(1);
	}
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A row of n samples in ns, in units of that many ns. */
static void print(const char *name, const char *unit, double unit_ns, double *ns, size_t n)
{
	qsort(ns, n, sizeof(ns[0]), by_size);
	printf("%s %s %.1f %.1f\n", name, unit, ns[n / 2] / unit_ns, ns[n * 99 / 100] / unit_ns);
	fflush(stdout);
}

/* -- charge and refund ------------------------------------------------------------------------- */

static void pair(struct region *region)
{
	must(region_charge(region, 0, REGION_DATA, 2 * MIB, 8 * GIB), "region_charge");
	region_refund(region, 0, REGION_DATA, 2 * MIB);
}

static void pairs_alone(void)
{
	static double batches[BATCHES];
	struct region region = REGION_CLOSED;

	must_open(&region, &setup);
	for (int i = 0; i < BATCHES; i++) {
		double start = now_ns();

		for (int j = 0; j < BATCH; j++)
			pair(&region);
		batches[i] = (now_ns() - start) / BATCH;
	}
	region_close(&region);
	print("charge_refund", "ns", 1, batches, BATCHES);
}

/* What the processes share: the gate opens when all are there, and nobody leaves before all are
 * through, so that there are as many to the last pair. */
struct crowd {
	unsigned ready, through;
	double pair_ns[PROCESSES][PAIRS];
};

static void pass(unsigned *gate)
{
	struct timespec pause = {0, 100000};

	__atomic_fetch_add(gate, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(gate, __ATOMIC_SEQ_CST) < PROCESSES)
		nanosleep(&pause, NULL);
}

static void be_one(struct crowd *crowd, double *pair_ns)
{
	struct region region = REGION_CLOSED;
	double before;

	must_open(&region, &setup);
	pass(&crowd->ready);
	before = now_ns();
	for (int i = 0; i < PAIRS; i++) {
		double after;

		pair(&region);
		after = now_ns();
		pair_ns[i] = after - before;
		before = after;
	}
	__atomic_fetch_add(&crowd->through, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&crowd->through, __ATOMIC_SEQ_CST) < PROCESSES)
		pair(&region);
	region_close(&region);
}

static void pairs_in_crowd(void)
{
	struct crowd *crowd = mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, bad = 0;
	char name[64];

	if (crowd == MAP_FAILED)
		fail("mmap", errno);
	memset(crowd, 0, sizeof(*crowd)); /* no page is taken while the clock runs */
	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0) {
			be_one(crowd, crowd->pair_ns[i]);
			_exit(0);
		}
	while (wait(&status) > 0)
		bad += status != 0;
	if (bad)
		fail("a process of the crowd", ECHILD);
	snprintf(name, sizeof(name), "charge_refund_of_%d", PROCESSES);
	print(name, "ns", 1, crowd->pair_ns[0], (size_t)PROCESSES * PAIRS);
	munmap(crowd, sizeof(*crowd));
}

/* -- making a region, and coming to one -------------------------------------------------------- */

static void creations(void)
{
	double ns[CREATIONS];

	for (int i = 0; i < CREATIONS; i++) {
		struct region region = REGION_CLOSED;
		struct fault fault = {""};
		double start = now_ns();

		must(region_open(path, &setup, &region, &fault), "region_open");
		ns[i] = now_ns() - start;
		region_close(&region);
		unlink(path);
	}
	print("create", "us", 1e3, ns, CREATIONS);
}

/* With a setup, as every process of a slice with a policy or limits of its own comes. */
static void attaches(const char *name, unsigned living, const struct region_setup *with)
{
	static double ns[ATTACHES];
	char row[64];

	for (int i = 0; i < ATTACHES; i++) {
		struct region region = REGION_CLOSED;
		double start = now_ns();

		must_open(&region, with);
		ns[i] = now_ns() - start;
		region_close(&region);
	}
	snprintf(row, sizeof(row), "%s_to_%u", name, living);
	print(row, "us", 1e3, ns, ATTACHES);
}

/* Each has an open file of its own, which is all that makes a slot one's own: they need not be
 * processes. */
static void attaches_to_many(void)
{
	static struct region living[LIVING];
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	for (unsigned i = 0; i < LIVING; i++) {
		if (i == 1 || i == 100) {
			attaches("attach", i, NULL);
			attaches("attach_with_setup", i, &setup);
		}
		living[i] = (struct region)REGION_CLOSED;
		must_open(&living[i], i ? NULL : &setup);
	}
	attaches("attach", LIVING, NULL);
	attaches("attach_with_setup", LIVING, &setup);
	/* Without giving a thousand slots back one by one. */
	for (unsigned i = 0; i < LIVING; i++)
		region_forget(&living[i]);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fputs("usage: region FILE\n", stderr);
		return 2;
	}
	path = argv[1];
	setup.device_count = 1;
	setup.priority = 1;
	strcpy(setup.device[0].uuid, "GPU-00000000-0000-4000-8000-000000000000");
	setup.device[0].memory_bytes = 8 * GIB;
	creations();
	pairs_alone();
	pairs_in_crowd();
	attaches_to_many();
	unlink(path);
	return 0;
}
