/*
 * The directory of the socket is vgpud's, so no tenant writes the file. It stays after vgpud was
 * killed, as the lengths in the files of turns do.
 */
#include "least_turns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "slice.h"
#include "sys.h"

static bool directory_of(const char *socket, char *buf, size_t len)
{
	const char *slash = strrchr(socket, '/');

	return slash && slash > socket &&
	       snprintf(buf, len, "%.*s", (int)(slash - socket), socket) < (int)len;
}

int least_turns_write(const char *socket, const char *text, struct fault *fault)
{
	char directory[PATH_MAX];

	if (!directory_of(socket, directory, sizeof(directory)))
		return fault_set(fault, -EINVAL, "%.200s has no directory", socket);
	return file_write(directory, LEAST_TURNS_NAME, text, fault);
}

/* The text; "" where there is none. */
static void read_text(char text[LEAST_TURNS_LEN])
{
	char directory[PATH_MAX], path[PATH_MAX + sizeof(LEAST_TURNS_NAME) + 1];
	long len;
	int fd;

	*text = '\0';
	if (!directory_of(slice_socket_path(), directory, sizeof(directory)))
		return;
	snprintf(path, sizeof(path), "%s/" LEAST_TURNS_NAME, directory);
	fd = sys_open_regular(path, O_RDONLY);
	if (fd < 0)
		return;
	len = sys_read(fd, text, LEAST_TURNS_LEN - 1);
	text[len > 0 ? len : 0] = '\0';
	sys_close(fd);
}

static uint64_t length_in(const char *text, const char *uuid)
{
	size_t len = strlen(uuid);

	for (const char *line = text; line;) {
		const char *end = strchr(line, '\n');

		if (strncmp(line, uuid, len) == 0 && line[len] == ' ')
			return strtoull(line + len, NULL, 10);
		line = end ? end + 1 : NULL;
	}
	return 0;
}

void least_turns_read(struct usage *usage)
{
	static char text[LEAST_TURNS_LEN]; /* one thread */

	read_text(text);
	for (unsigned i = 0; i < usage->gpu_count; i++)
		usage->gpu[i].turn_least_ns = length_in(text, usage->gpu[i].uuid);
}
