/*
 * takeover FILE: how long a slice stands still when a process is killed that has the region's lock:
 * one "NAME UNIT MEDIAN P99" row, from the instant before its SIGKILL to another's first charge
 * after it. FILE must not be there; it is removed again.
 *
 * Over the region's fault-injection build, because only that can die at a given instruction.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "region.h"
#include "size.h"
#include "steps.h"

#define DEATHS 101

static double *killed_ns; /* shared with the children */

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(enum region_step step)
{
	double now;

	if (step != REGION_STEP_raise_used)
		return;
	now = now_ns();
	__atomic_store(killed_ns, &now, __ATOMIC_SEQ_CST);
	kill(getpid(), SIGKILL);
}

static void must_open(const char *path, const struct region_setup *setup, struct region *region)
{
	struct fault fault = {""};

	if (region_open(path, setup, region, &fault) || region_claim(region, &fault)) {
		fprintf(stderr, "takeover: %s\n", fault.text);
		exit(1);
	}
}

static void be_victim(const char *path)
{
	struct region region = REGION_CLOSED;

	must_open(path, NULL, &region);
	region_step_hook = die;
	region_charge(&region, 0, REGION_DATA, 2 * MIB, 0);
	exit(1); /* not reached */
}

/* Charges when a victim has the lock and is about to die. */
static double one_death(const char *path, struct region *region)
{
	struct timespec pause = {0, 20000};
	double none = 0, killed, took;
	int status;
	pid_t pid;

	__atomic_store(killed_ns, &none, __ATOMIC_SEQ_CST);
	pid = fork();
	if (pid == 0)
		be_victim(path);
	do {
		nanosleep(&pause, NULL);
		__atomic_load(killed_ns, &killed, __ATOMIC_SEQ_CST);
	} while (killed == 0 && waitpid(pid, &status, WNOHANG) == 0);
	if (killed == 0 || region_charge(region, 0, REGION_DATA, 2 * MIB, 0) != 0) {
		fputs("takeover: no charge after a death\n", stderr);
		exit(1);
	}
	took = now_ns() - killed;
	waitpid(pid, &status, 0);
	region_refund(region, 0, REGION_DATA, 2 * MIB);
	return took;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct region_setup setup = {.device_count = 1, .priority = 1};
	struct region region = REGION_CLOSED;
	double ns[DEATHS];

	if (argc != 2) {
		fputs("usage: takeover FILE\n", stderr);
		return 2;
	}
	killed_ns = mmap(NULL, sizeof(*killed_ns), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (killed_ns == MAP_FAILED)
		return 1;
	strcpy(setup.device[0].uuid, "GPU-00000000-0000-4000-8000-000000000000");
	must_open(argv[1], &setup, &region);
	for (int i = 0; i < DEATHS; i++)
		ns[i] = one_death(argv[1], &region);
	if (region.file->own.takeovers != DEATHS)
		fprintf(stderr, "takeover: %u of %d\n", region.file->own.takeovers, DEATHS);
	region_close(&region);
	unlink(argv[1]);
	qsort(ns, DEATHS, sizeof(ns[0]), by_size);
	printf("takeover ms %.2f %.2f\n", ns[DEATHS / 2] / 1e6, ns[DEATHS * 99 / 100] / 1e6);
	return 0;
}
