/*
 * The library is found in a build directory, where the program is in the same directory. It is
 * found in an installation under any prefix, also after the prefix was moved, and in Debian's
 * packages (lib/<multiarch>/vgpu). If VGPU_LIBRARY is set, no other place is looked at, so that a
 * mistake in it is noticed. A place that this user may not look at is an error: the library may be
 * there, and the next place may have another version.
 *
 * If the loader cannot preload a library, it prints a line and starts the program without the
 * library. So the library is checked before: the file is looked at, and then a child process
 * loads it.
 */
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env.h"

#define LIST_BYTES_MAX 65536

/* Relative to the program's directory, or absolute. */
static const char *const places[] = {
	LIBRARY_NAME,
	"../lib/" VGPU_MULTIARCH "/vgpu/" LIBRARY_NAME,
	"../lib/vgpu/" LIBRARY_NAME,
	"../lib/" LIBRARY_NAME,
	VGPU_LIBDIR "/vgpu/" LIBRARY_NAME,
	VGPU_LIBDIR "/" LIBRARY_NAME,
};

#define PLACE_COUNT (sizeof(places) / sizeof(places[0]))

/* -- a library's file -------------------------------------------------------------------------- */

bool library_look(const char *path, struct library *ret_library, struct fault *ret_why)
{
	struct elf_file file = {NULL, 0};
	char machine[24];

	memset(ret_library, 0, sizeof(*ret_library));
	if (elf_map(path, &file, ret_why) < 0)
		return false;
	stat(path, &ret_library->st);
	if (elf_read(&file, &ret_library->elf) < 0) {
		ret_library->elf.file = file;
		fault_set(ret_why, -EINVAL, "%.300s is no library, or a damaged one", path);
		return false;
	}
	if (!ret_library->elf.ours) {
		fault_set(ret_why, -EINVAL, "%.300s is for another machine (%u-bit %s)", path,
			  ret_library->elf.bits,
			  elf_machine_name(ret_library->elf.machine, machine));
		return false;
	}
	elf_vgpu_version(&ret_library->elf, ret_library->version, sizeof(ret_library->version));
	return true;
}

/* -- lists of libraries ------------------------------------------------------------------------ */

char *library_read_list(void)
{
	int fd = open(LIBRARY_LIST, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char *text = fd < 0 ? NULL : malloc(LIST_BYTES_MAX + 1);
	ssize_t len = text ? read(fd, text, LIST_BYTES_MAX) : -1;

	if (fd >= 0)
		close(fd);
	if (len < 0) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	for (char *at = text; (at = strchr(at, '#'));) /* a comment, to the line's end */
		while (*at && *at != '\n')
			*at++ = ' ';
	return text;
}

/* The loader splits the list at blanks and colons, and knows no quoting. */
char *library_next_entry(char **text)
{
	char *entry;

	while ((entry = strsep(text, " \t\r\n:")))
		if (*entry)
			return entry;
	return NULL;
}

/* Whether an entry of the list is vgpu's library. Frees the list, which may be NULL. */
static bool has_ours(char *list)
{
	char *at = list;
	const char *entry;
	bool found = false;

	while (!found && (entry = library_next_entry(&at))) {
		struct library library;

		found = library_look(entry, &library, NULL) && library.version[0];
		elf_unmap(&library.elf.file);
	}
	free(list);
	return found;
}

bool library_is_for_all(void)
{
	return has_ours(library_read_list());
}

bool library_is_preloaded(void)
{
	const char *list = env_get("LD_PRELOAD");

	return has_ours(list ? strdup(list) : NULL);
}

/* -- finding the library ----------------------------------------------------------------------- */

/* Finds the directory of the file that this process runs. */
static int own_directory(char dir[PATH_MAX], struct fault *fault)
{
	ssize_t len = readlink("/proc/self/exe", dir, PATH_MAX - 1);
	char *slash;

	if (len < 0)
		return fault_set(fault, -errno,
				 "/proc/self/exe cannot be read (%s), so " LIBRARY_NAME
				 " cannot be found: set VGPU_LIBRARY to its path",
				 strerror(errno));
	dir[len] = '\0';
	slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

/* Finds the first directory of the path that this user may not search. False: there is none. */
static bool find_closed(const char *path, char ret_dir[PATH_MAX])
{
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(ret_dir, PATH_MAX, "%.*s", (int)(slash - path), path);
		if (faccessat(AT_FDCWD, ret_dir, X_OK, AT_EACCESS) < 0 && errno == EACCES)
			return true;
	}
	return false;
}

/* Says why the path cannot be read. error: the errno of the attempt. of: the words before the
 * path, such as "VGPU_LIBRARY is ". */
static int refuse_place(const char *of, const char *path, int error, struct fault *fault)
{
	char dir[PATH_MAX];

	if (error == EACCES && find_closed(path, dir))
		return fault_set(fault, -error,
				 "%s%.200s, which cannot be read: this user may not search the "
				 "directory %.200s: let the user (chmod a+x), or put the library "
				 "elsewhere and set VGPU_LIBRARY to its path",
				 of, path, dir);
	return fault_set(fault, -error,
			 "%s%.200s, which cannot be read (%s): set VGPU_LIBRARY to the path of "
			 "vgpu's " LIBRARY_NAME ", or unset it",
			 of, path, strerror(error));
}

/* Takes the path that VGPU_LIBRARY names, and makes it absolute. Symbolic links are not
 * resolved: check_path advises users to set a link if the library's own path cannot be
 * preloaded. */
static int take_named(const char *named, char ret_path[PATH_MAX], struct fault *fault)
{
	char dir[PATH_MAX] = "";

	if (named[0] != '/' && !getcwd(dir, sizeof(dir)))
		return fault_set(fault, -errno,
				 "VGPU_LIBRARY is a relative path, and the path of this directory "
				 "is not known: make it absolute");
	if (snprintf(ret_path, PATH_MAX, "%s%s%s", dir, dir[0] ? "/" : "", named) >= PATH_MAX)
		return fault_set(
			fault, -EINVAL,
			"the path in VGPU_LIBRARY is too long: use a shorter one, or a link");
	if (faccessat(AT_FDCWD, ret_path, R_OK, AT_EACCESS) < 0)
		return refuse_place("VGPU_LIBRARY is ", ret_path, errno, fault);
	return 0;
}

/* Looks for the library in one of its places. Returns 0 if it is there; -ENOENT, without a
 * fault, if it is not; or another negative errno with a fault. */
static int look_at_place(const char *dir, const char *place, char ret_path[PATH_MAX],
			 struct fault *fault)
{
	char path[PATH_MAX];
	int len = place[0] == '/' ? snprintf(path, sizeof(path), "%s", place)
				  : snprintf(path, sizeof(path), "%s/%s", dir, place);

	if (len >= (int)sizeof(path))
		return -ENOENT;
	if (realpath(path, ret_path) && faccessat(AT_FDCWD, ret_path, R_OK, AT_EACCESS) == 0)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return -ENOENT;
	return refuse_place("the library's place is ", path, errno, fault);
}

/* Says that no place has the library. */
static int refuse_all(const char *dir, struct fault *fault)
{
	char list[400] = "";
	size_t at = 0;

	for (size_t i = 0; i < PLACE_COUNT && at < sizeof(list); i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s",
				       i == 0                ? ""
				       : i + 1 < PLACE_COUNT ? ", "
							     : " and ",
				       places[i]);
	return fault_set(fault, -ENOENT,
			 "there is no " LIBRARY_NAME
			 ": it was looked for in %.100s, as %s: install "
			 "it, or set VGPU_LIBRARY to its path",
			 dir, list);
}

int library_find(char ret_path[PATH_MAX], struct fault *fault)
{
	const char *named = env_get("VGPU_LIBRARY");
	char dir[PATH_MAX];
	int error;

	if (named)
		return take_named(named, ret_path, fault);
	error = own_directory(dir, fault);
	if (error)
		return error;
	for (size_t i = 0; i < PLACE_COUNT; i++) {
		error = look_at_place(dir, places[i], ret_path, fault);
		if (error != -ENOENT)
			return error;
	}
	return refuse_all(dir, fault);
}

/* -- whether the loader preloads the library --------------------------------------------------- */

/* Checks that LD_PRELOAD can have the path. Blanks and colons separate the entries of
 * LD_PRELOAD, and the loader replaces $LIB, $ORIGIN and $PLATFORM. A path below /proc/self is
 * another file in each process. */
static int check_path(const char *path, struct fault *fault)
{
	if (strpbrk(path, " \t\n:$"))
		return fault_set(
			fault, -EINVAL,
			"%.300s cannot be preloaded, because its path has a blank, a colon "
			"or a dollar sign: put a link elsewhere and set VGPU_LIBRARY to it",
			path);
	if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0)
		return fault_set(fault, -EINVAL,
				 "%.300s cannot be preloaded, because it is not the same file in "
				 "every process: set VGPU_LIBRARY to the library's own path",
				 path);
	return 0;
}

/* Checks that the file is vgpu's library for this machine, and not on a noexec file system. */
static int check_file(const char *path, struct fault *fault)
{
	struct library library;
	struct fault why = {""};
	struct statvfs fs;
	int error = 0;

	if (!library_look(path, &library, &why))
		error = fault_set(fault, -EINVAL,
				  "%s: set VGPU_LIBRARY to the path of vgpu's " LIBRARY_NAME
				  ", or put vgpu's library there",
				  why.text);
	else if (!library.version[0])
		error = fault_set(fault, -EINVAL,
				  "%.300s is not vgpu's library, and no limit would hold with it: "
				  "set VGPU_LIBRARY to the path of vgpu's, or put vgpu's there",
				  path);
	else if (statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOEXEC))
		error = fault_set(fault, -EACCES,
				  "%.300s cannot be preloaded, because its file system is mounted "
				  "noexec: put it elsewhere and set VGPU_LIBRARY to its path",
				  path);
	elf_unmap(&library.elf.file);
	return error;
}

/* In the child process: loads the library, and writes the loader's message to the pipe, with
 * its NUL. The message is empty on success. */
static _Noreturn void try_to_load(const char *path, int fd)
{
	const char *why = dlopen(path, RTLD_NOW | RTLD_LOCAL) ? "" : dlerror();

	_exit(write(fd, why, strlen(why) + 1) < 0);
}

/*
 * Checks that this program's loader loads the library. A child process does so, because the
 * library cannot be unloaded, and a damaged library may end the process. The pipe, not the
 * child's status, has the result: if SIGCHLD is ignored, there is no status.
 */
static int check_loading(const char *path, struct fault *fault)
{
	char why[300] = "";
	ssize_t len;
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return fault_set(fault, -errno,
				 "the library cannot be checked, because no pipe can be made: %s: "
				 "close files, or raise the limit (ulimit -n)",
				 strerror(errno));
	child = fork();
	if (child == 0)
		try_to_load(path, fds[1]);
	close(fds[1]);
	if (child < 0) {
		close(fds[0]);
		return fault_set(fault, -EAGAIN,
				 "the library cannot be checked, because no process can be made: "
				 "end other processes, or raise the limit (ulimit -u)");
	}
	do
		len = read(fds[0], why, sizeof(why) - 1);
	while (len < 0 && errno == EINTR);
	close(fds[0]);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (len > 0 && !why[0])
		return 0;
	return fault_set(
		fault, -EINVAL,
		"the loader does not take the library %.150s (%.200s): install one that is "
		"whole and for this machine, or set VGPU_LIBRARY to its path",
		path, len > 0 ? why : "it ends the process");
}

int library_check(const char *path, struct fault *fault)
{
	int error = check_path(path, fault);

	if (!error)
		error = check_file(path, fault);
	return error ? error : check_loading(path, fault);
}
