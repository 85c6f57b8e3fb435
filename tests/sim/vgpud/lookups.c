/* Preloaded into vgpud: counts how often vgpud looks a path up by lstat, and prints that as it
 * ends. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned count;
static pid_t counted; /* children of vgpud print nothing */

__attribute__((visibility("default"))) int lstat(const char *path, struct stat *st)
{
	count++;
	return fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

__attribute__((constructor)) static void begin(void)
{
	counted = getpid();
}

__attribute__((destructor)) static void end(void)
{
	if (getpid() == counted)
		fprintf(stderr, "lookups: %u\n", count);
}
