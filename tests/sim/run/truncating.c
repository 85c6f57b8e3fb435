/*
 * Preloaded into the program vgpu: the region that it maps as the n-th (TRUNCATE=n) is truncated at
 * once, as its tenant may do at any moment.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vgpu_region.h"

static void truncate_mapped(int fd)
{
	static int mapped;
	const char *wanted = getenv("TRUNCATE");
	char path[64];

	if (!wanted || ++mapped != atoi(wanted))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (truncate(path, 0) != 0)
		perror("truncating");
}

/* Through which base/sys.c makes all system calls. */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*real)(long number, ...);
	long argument[6], result;
	va_list args;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(args, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(args, long);
	va_end(args);
	result = real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
		      argument[5]);
	if (number == SYS_mmap && (unsigned long)argument[1] == sizeof(struct vgpu_region_file) &&
	    (argument[3] & MAP_SHARED) && result != -1)
		truncate_mapped((int)argument[4]);
	return result;
}
