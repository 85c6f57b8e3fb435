/* Prints which files a program has open and mapped that never touches the driver. same.sh compares
 * that with what it is without us. */
#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static void print_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	CHECK_SAYING(dir, "no /proc/self/fd");
	while ((entry = readdir(dir))) {
		char link[64], target[PATH_MAX];
		ssize_t length;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(dir) ||
		    atoi(entry->d_name) <= 2)
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%.20s", entry->d_name);
		length = readlink(link, target, sizeof(target) - 1);
		printf("open: %.*s\n", (int)length, target);
	}
	closedir(dir);
}

static void print_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 128], last[PATH_MAX + 128] = "";

	CHECK_SAYING(maps, "no /proc/self/maps");
	while (fgets(line, sizeof(line), maps)) {
		char *path = strchr(line, '/');

		if (!path || strcmp(path, last) == 0 || strstr(path, "/libvgpu.so"))
			continue;
		printf("mapped: %s", path);
		strcpy(last, path);
	}
	fclose(maps);
}

int main(void)
{
	print_open();
	print_mapped();
	return 0;
}
