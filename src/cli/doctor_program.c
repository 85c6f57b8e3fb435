/*
 * A command: whether it would be held, and by which doors it comes to CUDA. It is looked up as
 * execvp does, a script is followed to what runs it, and what runs is read as an ELF file. Nothing
 * is run, and so what it loads once it runs is not known; that is held as well.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doctor.h"
#include "elf_file.h"

#define SCRIPTS_MAX     5   /* of scripts that run each other, as in the kernel */
#define SCRIPT_LINE_MAX 256 /* likewise, of the first line */
#define DEFAULT_PATH    "/bin:/usr/bin"

/* What would run: the command, or what runs the script that it is. */
struct program {
	char path[PATH_MAX];
	char script[PATH_MAX]; /* the command, if it is one; else "" */
	struct elf elf;
	struct stat st;
};

/* The command's, for the checks one after the other; elf.file is to be unmapped. */
static struct program program;
static bool is_known, is_held;

/* -- where it is ------------------------------------------------------------------------------- */

/* As execvp: 0, or the errno of the best that there is. */
static int find_in_path(const char *name, char ret_path[PATH_MAX])
{
	const char *dir = getenv("PATH");
	int error = ENOENT;

	if (strchr(name, '/')) {
		snprintf(ret_path, PATH_MAX, "%s", name);
		return access(name, X_OK) == 0 ? 0 : errno;
	}
	for (dir = dir ? dir : DEFAULT_PATH; dir && *name; dir = *dir ? dir + 1 : NULL) {
		size_t len = strcspn(dir, ":");
		struct stat st;
		int written = snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)len, dir,
				       len ? "/" : "", name);

		dir += len;
		if (written >= PATH_MAX || stat(ret_path, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (access(ret_path, X_OK) == 0)
			return 0;
		error = EACCES;
	}
	snprintf(ret_path, PATH_MAX, "%s", name);
	return error;
}

/* The next word of a line, cut out of it; NULL: there is none. */
static char *next_word(char **line)
{
	char *word;

	while ((word = strsep(line, " \t")))
		if (*word)
			return word;
	return NULL;
}

/* Of env's arguments, the command: after options, and variables that it sets. */
static const char *command_of_env(char **line)
{
	const char *word;

	while ((word = next_word(line)))
		if (word[0] != '-' && !strchr(word, '='))
			return word;
	return NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* What runs the script: false, when it is no script, or what runs it is not found, which
 * *ret_missing says. Text without "#!" is the shell's. */
static bool find_interpreter(const struct elf_file *file, char ret_path[PATH_MAX],
			     bool *ret_missing)
{
	char text[SCRIPT_LINE_MAX], *line = text + 2;
	size_t len = file->size < sizeof(text) - 1 ? file->size : sizeof(text) - 1;
	const char *word;

	*ret_missing = false;
	memset(text, 0, sizeof(text));
	if (len)
		memcpy(text, file->data, len);
	if (memcmp(text, "#!", 2) != 0) {
		if (memchr(text, '\0', len))
			return false;
		snprintf(ret_path, PATH_MAX, "/bin/sh");
		return true;
	}
	text[strcspn(text, "\r\n")] = '\0';
	word = next_word(&line);
	if (word && strcmp(base_name(word), "env") == 0)
		word = command_of_env(&line);
	*ret_missing = !word || find_in_path(word, ret_path) != 0;
	return !*ret_missing;
}

static void say_unusable(struct doctor *doctor, const char *path)
{
	doctor_found(doctor, DOCTOR_FAIL,
		     "%s is no program: neither an ELF file that is whole, "
		     "nor a script whose interpreter is here",
		     path);
	doctor_advise(doctor, "Give the program that is to run, or install what its first line "
			      "names");
}

/* From the file at program.path to what runs in the end. */
static bool follow(struct doctor *doctor)
{
	for (unsigned i = 0; i <= SCRIPTS_MAX; i++) {
		struct elf_file file = {NULL, 0};
		struct fault fault = {""};
		char path[PATH_MAX];
		bool missing;
		int error = elf_map(program.path, &file, &fault);

		if (error) {
			doctor_found(doctor, DOCTOR_FAIL, "%s", fault.text);
			doctor_advise(doctor, "Run this as a user who may read it, or give another "
					      "command");
			return false;
		}
		error = elf_read(&file, &program.elf);
		if (!error)
			return stat(program.path, &program.st) == 0;
		if (error == -ENOEXEC && find_interpreter(&file, path, &missing)) {
			elf_unmap(&file);
			if (!program.script[0])
				memcpy(program.script, program.path, sizeof(path));
			memcpy(program.path, path, sizeof(path));
			continue;
		}
		elf_unmap(&file);
		break;
	}
	say_unusable(doctor, program.path);
	return false;
}

static void check_command(struct doctor *doctor)
{
	const char *name = doctor->command[0];
	int error = find_in_path(name, program.path);

	if (error) {
		doctor_found(doctor, DOCTOR_FAIL, "%s: %s", name,
			     error == ENOENT ? "not found" : strerror(error));
		doctor_advise(doctor, "Check its name, PATH, and its mode");
		return;
	}
	is_known = follow(doctor);
	if (!is_known)
		return;
	if (program.script[0])
		doctor_found(doctor, DOCTOR_OK, "%s is a script, which %s runs", program.script,
			     program.path);
	else
		doctor_found(doctor, DOCTOR_OK, "%s", program.path);
}

/* -- whether it would be held ------------------------------------------------------------------ */

static void say_not_held(struct doctor *doctor, const char *why, const char *cure)
{
	doctor_found(doctor, DOCTOR_FAIL, "%s would not be held: %s", program.path, why);
	doctor_advise(doctor, "%s", cure);
}

/* Whether the loader would take the environment for a stranger's: for all users, or all but one. */
static const char *privileges(bool *ret_for_this_user)
{
	struct statvfs fs;

	if (statvfs(program.path, &fs) == 0 && (fs.f_flag & ST_NOSUID))
		return NULL;
	*ret_for_this_user = true;
	if (program.st.st_mode & S_ISUID) {
		*ret_for_this_user = program.st.st_uid != geteuid();
		return "the set-user-id bit";
	}
	if ((program.st.st_mode & S_ISGID) && (program.st.st_mode & S_IXGRP)) {
		*ret_for_this_user = program.st.st_gid != getegid();
		return "the set-group-id bit";
	}
	*ret_for_this_user = geteuid() != 0;
	return getxattr(program.path, "security.capability", NULL, 0) > 0 ? "capabilities" : NULL;
}

static void say_privileged(struct doctor *doctor, const char *what, bool for_this_user)
{
	is_held = !for_this_user;
	if (doctor_preloads_for_all()) {
		is_held = true;
		doctor_found(doctor, DOCTOR_OK,
			     "%s would be held, by /etc/ld.so.preload, though it has %s",
			     program.path, what);
		return;
	}
	doctor_found(doctor, for_this_user ? DOCTOR_FAIL : DOCTOR_WARN,
		     "%s would not be held%s: it has %s, with which the loader drops LD_PRELOAD",
		     program.path, for_this_user ? "" : " for other users than this", what);
	doctor_advise(doctor, "Name libvgpu.so in /etc/ld.so.preload, or run a copy of the program "
			      "without them");
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Of the loaders that there are, glibc's are named so on all machines. */
static bool is_glibc(const char *loader)
{
	return begins(loader, "ld-linux") || begins(loader, "ld64.so") || begins(loader, "ld.so");
}

static void say_dynamic(struct doctor *doctor)
{
	const char *loader = program.elf.interpreter, *what;
	bool for_this_user = false;

	if (begins(base_name(loader), "ld-musl")) {
		say_not_held(doctor, "it is for musl, and libvgpu.so for glibc",
			     "Take one for glibc, such as a distribution's other than Alpine");
	} else if (access(loader, X_OK) != 0) {
		say_not_held(doctor, "its loader is not here, and so it does not run",
			     "Install the libc that it was built for, or run it in its container");
	} else if (!is_glibc(base_name(loader))) {
		doctor_found(doctor, DOCTOR_WARN, "%s has a loader that vgpu does not know: %s",
			     program.path, loader);
		doctor_advise(doctor, "See what vgpu inspect says while it runs in a slice: it is "
				      "listed if it is held");
	} else if ((what = privileges(&for_this_user))) {
		say_privileged(doctor, what, for_this_user);
	} else {
		is_held = true;
		doctor_found(doctor, DOCTOR_OK, "%s would be held: dynamic, for glibc",
			     program.path);
	}
}

static void check_held(struct doctor *doctor)
{
	char why[80], machine[24];

	if (!is_known)
		return;
	if (!program.elf.ours) {
		snprintf(why, sizeof(why), "it is for another machine, %u-bit %s", program.elf.bits,
			 elf_machine_name(program.elf.machine, machine));
		say_not_held(doctor, why, "Take one for this machine, of 64 bits");
	} else if (!program.elf.interpreter) {
		say_not_held(doctor, "it is linked statically, and nothing can be preloaded",
			     "Take one that is linked dynamically; for what Go and Rust build, "
			     "cgo or the gnu target");
	} else {
		say_dynamic(doctor);
	}
}

/* -- how it comes to CUDA ---------------------------------------------------------------------- */

/* "a, b and c", of what there is. */
struct list {
	char text[400];
	unsigned count;
};

__attribute__((format(printf, 2, 3))) static void add(struct list *list, const char *format, ...)
{
	size_t at = strlen(list->text);
	va_list args;

	if (list->count++ && at < sizeof(list->text) - 2)
		at += (size_t)snprintf(list->text + at, sizeof(list->text) - at, ", ");
	va_start(args, format);
	vsnprintf(list->text + at, sizeof(list->text) - at, format, args);
	va_end(args);
}

static void list_libraries(struct list *list)
{
	static const char *const known[] = {"libcuda.so", "libcudart.so", "libnvidia-ml.so",
					    "libnccl.so", "libcublas.so", "libtorch"};
	const char *name;

	for (unsigned n = 0; (name = elf_needed(&program.elf, n)); n++)
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if (begins(name, known[i])) {
				add(list, "is linked with %.60s", name);
				break;
			}
}

static void list_loading(struct list *list)
{
	bool linked = elf_needs(&program.elf, "libcuda.so.1");

	if (elf_contains(&program.elf.file, "cudaGetExportTable") ||
	    elf_contains(&program.elf.file, "cudaErrorInsufficientDriver"))
		add(list, "has CUDA's runtime in it");
	if (!linked && elf_contains(&program.elf.file, "libcuda.so"))
		add(list, "names libcuda.so, to load it itself");
	if (begins(base_name(program.path), "python"))
		add(list, "loads what its modules need");
	else if (elf_uses(&program.elf, "dlopen"))
		add(list, "may load libraries (dlopen)");
}

static void say_doors(struct doctor *doctor)
{
	struct list list = {"", 0};

	list_libraries(&list);
	list_loading(&list);
	if (elf_uses(&program.elf, "dlmopen")) {
		doctor_found(doctor, DOCTOR_WARN,
			     "it loads libraries into namespaces of their own (dlmopen)");
		doctor_advise(doctor, "Know that one which is opened so and linked with the driver "
				      "is not held");
	}
	if (list.count == 0)
		doctor_found(doctor, DOCTOR_OK,
			     "none in the program itself; its libraries, and what it runs, are "
			     "held");
	else
		doctor_found(doctor, DOCTOR_OK, "it %s; what it loads while it runs is held, too",
			     list.text);
}

static void check_doors(struct doctor *doctor)
{
	if (is_known && is_held)
		say_doors(doctor);
	elf_unmap(&program.elf.file);
}

const struct doctor_check doctor_program[] = {
	{"command", check_command},
	{"held", check_held},
	{"doors", check_doors},
	{NULL, NULL},
};
