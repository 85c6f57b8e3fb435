#include "self.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "prom.h"

/* -- the process ------------------------------------------------------------------------------- */

static double cpu_seconds(const struct self *self)
{
	struct rusage usage;

	(void)self;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double memory_of(unsigned column)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long pages[2];
	int found = file ? fscanf(file, "%lu %lu", &pages[0], &pages[1]) : 0;

	if (file)
		fclose(file);
	return found == 2 ? (double)pages[column] * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static double virtual_bytes(const struct self *self)
{
	(void)self;
	return memory_of(0);
}

static double resident_bytes(const struct self *self)
{
	(void)self;
	return memory_of(1);
}

static double open_files(const struct self *self)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	(void)self;
	if (!dir)
		return NAN;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 3; /* ".", ".." and the directory's own */
}

static double started(const struct self *self)
{
	return self->started_s;
}

/* -- looks ------------------------------------------------------------------------------------- */

static double looks(const struct self *self)
{
	return (double)self->looks;
}

static double failed_looks(const struct self *self)
{
	return (double)self->failed_looks;
}

static double look_seconds(const struct self *self)
{
	return (double)self->look_ns / (double)NS_PER_S;
}

static double has_nvml(const struct self *self)
{
	return self->has_nvml;
}

static const struct {
	struct prom_family family;
	double (*value)(const struct self *self);
} families[] = {
	{{"vgpud_looks_total", PROM_COUNTER, "How often vgpud looked at the machine."}, looks},
	{{"vgpud_look_failures_total", PROM_COUNTER,
	  "Looks at the machine that failed, so that older figures stayed."},
	 failed_looks},
	{{"vgpud_look_duration_seconds", PROM_GAUGE, "How long the last look took."}, look_seconds},
	{{"vgpud_nvml_up", PROM_GAUGE, "1 if NVML answered at the last look."}, has_nvml},
	{{"process_cpu_seconds_total", PROM_COUNTER, "CPU time that vgpud took."}, cpu_seconds},
	{{"process_resident_memory_bytes", PROM_GAUGE, "Memory of vgpud that is resident."},
	 resident_bytes},
	{{"process_virtual_memory_bytes", PROM_GAUGE, "Address space of vgpud."}, virtual_bytes},
	{{"process_open_fds", PROM_GAUGE, "Descriptors that vgpud has open."}, open_files},
	{{"process_start_time_seconds", PROM_GAUGE, "When vgpud started, in unix time."}, started},
};

void self_write(struct text *text, const struct self *self)
{
	static const struct prom_family build = {"vgpud_build_info", PROM_GAUGE,
						 "1, with the version of vgpud."};

	prom_begin(text, &build);
	prom_sample(text, &build, "", "version=\"" VGPU_VERSION "\"", 1);
	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		prom_begin(text, &families[f].family);
		prom_sample(text, &families[f].family, "", "", families[f].value(self));
	}
}
