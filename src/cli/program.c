/*
 * Finds what execvp and the kernel would start (program.h), by the rules of glibc's execvp and of
 * fs/exec.c, binfmt_script.c and binfmt_elf.c of Linux 6. Formats that were registered with
 * binfmt_misc are not known here.
 *
 * A program is judged by its file. The file may be replaced before the program is started. That is
 * no hole, because a user who can replace the file can also remove LD_PRELOAD from the environment.
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "library.h"
#include "program_words.h"

#define INTERPRETERS_MAX 5         /* of one exec, as in the kernel */
#define ENV_MAX          16        /* levels of env that starts env */
#define SCRIPT_LINE_MAX  256       /* bytes of a file in which the kernel looks for its format */
#define SHELL            "/bin/sh" /* execvp starts it for text without an interpreter's line */
#define DEFAULT_PATH     "/bin:/usr/bin"

/* A search in progress. */
struct search {
	struct program *program;
	struct program_words words;
	struct program_surroundings surroundings;
};

const char *program_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void program_close(struct program *program)
{
	elf_unmap(&program->elf.file);
}

/* The file cannot be started: returns error. */
static int refuse(struct program *program, int error, const char *cure)
{
	fault_set(&program->cure, 0, "%s", cure);
	return error;
}

/* -- one file ---------------------------------------------------------------------------------- */

/* Whether exec accepts the file: 0, or exec's error. script: the script that the file interprets,
 * or NULL. */
static int check_file(struct program *program, const char *path, const char *script)
{
	char of[PATH_MAX + 40] = "";
	struct stat st;
	int error = stat(path, &st) < 0 ? errno : 0;

	if (script)
		snprintf(of, sizeof(of), ", the interpreter of the script %s,", script);
	if (error == ENOENT) {
		fault_set(&program->what, 0, "%.200s%.200s%s not found", path, of,
			  script ? " is" : ":");
		return refuse(program, -error,
			      script ? "Install it, or correct the script's first line"
				     : "Check its name, and PATH");
	}
	if (!error && !S_ISREG(st.st_mode)) {
		fault_set(&program->what, 0, "%.200s%.200s is %s, not a program", path, of,
			  S_ISDIR(st.st_mode) ? "a directory" : "a special file");
		return refuse(program, -EACCES, "Give the program that is to run");
	}
	if (!error && faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
		error = errno;
	if (!error)
		return 0;
	fault_set(&program->what, 0, "%.200s%.200s cannot be run: %s", path, of, strerror(error));
	return refuse(program, -error,
		      "Check the mode of the file and of its directories, and whether its file "
		      "system is mounted noexec");
}

/* Reads the file's interpreter line: 0, with the interpreter and its argument, both in text;
 * -ENOEXEC if the kernel finds no interpreter there. */
static int read_first_line(const struct elf_file *file, char text[SCRIPT_LINE_MAX + 1],
			   char **ret_interpreter, char **ret_argument)
{
	size_t len = file->size < SCRIPT_LINE_MAX ? file->size : SCRIPT_LINE_MAX;
	char *end, *at;

	memset(text, 0, SCRIPT_LINE_MAX + 1);
	if (len)
		memcpy(text, file->data, len);
	if (strncmp(text, "#!", 2) != 0)
		return -ENOEXEC;
	at = text + 2 + strspn(text + 2, " \t");
	end = memchr(text, '\n', len);
	if (end)
		*end = '\0';
	else if (len == SCRIPT_LINE_MAX && !at[strcspn(at, " \t")])
		return -ENOEXEC; /* the name may be cut off */
	for (end = at + strlen(at); end > at && strchr(" \t", end[-1]);)
		*--end = '\0';
	if (!*at)
		return -ENOEXEC;
	*ret_interpreter = at;
	at += strcspn(at, " \t");
	if (*at)
		*at++ = '\0';
	at += strspn(at, " \t");
	*ret_argument = *at ? at : NULL;
	return 0;
}

static bool is_text(const struct elf_file *file)
{
	size_t len = file->size < SCRIPT_LINE_MAX ? file->size : SCRIPT_LINE_MAX;

	return len == 0 || !memchr(file->data, '\0', len);
}

static int refuse_carriage_return(struct program *program, const char *script)
{
	fault_set(&program->what, 0,
		  "the first line of the script %.300s ends with a carriage return, as on Windows, "
		  "and so its interpreter is not found",
		  script);
	return refuse(program, -ENOENT,
		      "Take the carriage returns out of the script (sed -i 's/\\r$//')");
}

static int refuse_content(struct program *program, const char *path, const char *what,
			  const char *cure)
{
	fault_set(&program->what, 0, "%.300s is no program: %s", path, what);
	return refuse(program, -ENOEXEC, cure);
}

/* Makes the script an argument of the interpreter, after the argument of the script's first line.
 */
static bool put_script(struct search *search, const char *script, const char *argument)
{
	if (program_words_put(&search->words, script, strlen(script)) &&
	    (!argument || program_words_put(&search->words, argument, strlen(argument))))
		return true;
	refuse_content(search->program, script, "it is one of too many scripts that run each other",
		       "Correct their first lines");
	return false;
}

/* -- from a file to the program ---------------------------------------------------------------- */

/* Looks at the file at path. 0: the kernel starts this file. 1: path is now the file's interpreter.
 * Otherwise an error of exec. */
static int step(struct search *search, char path[PATH_MAX], const char *script)
{
	char text[SCRIPT_LINE_MAX + 1], *interpreter, *argument;
	struct program *program = search->program;
	struct elf_file file = {NULL, 0};
	int error = check_file(program, path, script);

	if (error || stat(path, &program->st) < 0)
		return error ? error : -errno;
	snprintf(program->path, sizeof(program->path), "%s", path);
	if (elf_map(path, &file, &program->what) < 0) /* exec does not fail because of that */
		return 0;
	error = elf_read(&file, &program->elf);
	if (!error)
		return 0;
	if (error == -ENOEXEC && is_text(&file))
		error = read_first_line(&file, text, &interpreter, &argument);
	else
		error = -EINVAL;
	elf_unmap(&file);
	if (error == -EINVAL)
		return refuse_content(program, path,
				      "it is neither an ELF file that is whole, nor a script",
				      "Give the program that is to run");
	if (error)
		return error;
	if (interpreter[strlen(interpreter) - 1] == '\r')
		return refuse_carriage_return(program, path);
	if (!put_script(search, path, argument))
		return -ENOEXEC;
	snprintf(path, PATH_MAX, "%s", interpreter);
	return 1;
}

/* Follows the file, whose arguments are the words, to the file that the kernel starts. */
static int follow(struct search *search, const char *file)
{
	struct program_words before = search->words;
	char path[PATH_MAX], script[PATH_MAX] = "";
	struct program *program = search->program;

	if (snprintf(path, sizeof(path), "%s", file) >= (int)sizeof(path))
		return refuse_content(program, file, "its path is too long", "Shorten it");
	for (unsigned i = 0; i <= INTERPRETERS_MAX; i++) {
		char was[PATH_MAX];
		int went;

		memcpy(was, path, sizeof(was));
		went = step(search, path, script[0] ? script : NULL);
		if (went == -ENOEXEC && !program->what.text[0]) { /* execvp starts the shell */
			search->words = before;
			snprintf(path, sizeof(path), SHELL);
			went = put_script(search, file, NULL) ? 1 : -ENOEXEC;
		}
		if (went <= 0)
			return went;
		program->is_script = true;
		memcpy(script, was, sizeof(script));
	}
	return refuse_content(program, file, "it is a script, and scripts interpret each other",
			      "Correct their first lines");
}

/* -- by PATH ----------------------------------------------------------------------------------- */

/* Whether execvp tries the next directory after this error. */
static bool is_passed_over(int error)
{
	return error == -ENOENT || error == -ENOTDIR || error == -EACCES || error == -ESTALE ||
	       error == -ENODEV || error == -ETIMEDOUT;
}

/* The candidate in a directory of PATH, whose name has dir_len bytes. It has a "/" in it. */
static bool candidate(const char *dir, size_t dir_len, const char *name, char ret_path[PATH_MAX])
{
	return snprintf(ret_path, PATH_MAX, "%.*s/%s", dir_len ? (int)dir_len : 1,
			dir_len ? dir : ".", name) < PATH_MAX;
}

static void forget(struct program *program)
{
	program_close(program);
	memset(program, 0, sizeof(*program));
}

/* Whether the error should be reported rather than "not found": a file is there, and cannot be
 * started. A directory of PATH that this user may not search counts as empty, as for a shell. */
static bool says_more(int error, const struct program *program, const char *path)
{
	return (error == -ENOENT && program->is_script) || access(path, F_OK) == 0;
}

static int follow_in_path(struct search *search, const char *name)
{
	const char *dir = search->surroundings.path;
	struct program_words before = search->words;
	struct program *program = search->program;
	struct program kept = {.what = {""}};
	char path[PATH_MAX];
	int result = -ENOENT;

	for (dir = dir ? dir : DEFAULT_PATH; dir; dir = *dir ? dir + 1 : NULL) {
		size_t len = strcspn(dir, ":");
		bool fits = candidate(dir, len, name, path);
		int error;

		dir += len;
		if (!fits)
			continue;
		search->words = before;
		forget(program);
		error = follow(search, path);
		if (!error || !is_passed_over(error)) {
			snprintf(program->command, sizeof(program->command), "%s", path);
			return error;
		}
		if (!kept.what.text[0] && says_more(error, program, path)) {
			kept = *program;
			result = error;
		}
	}
	forget(program);
	*program = kept;
	if (kept.what.text[0])
		return result;
	fault_set(&program->what, 0, "%.300s: not found", name);
	return refuse(program, -ENOENT, "Check its name, and PATH");
}

/* Finds the file that execvp would find for the name. */
static int find(struct search *search, const char *name)
{
	struct program *program = search->program;
	int error;

	forget(program);
	if (*name && !strchr(name, '/'))
		return follow_in_path(search, name);
	error = follow(search, name);
	snprintf(program->command, sizeof(program->command), "%s", name);
	return error;
}

/* Whether the file has that name, or is a link to a file that has it. */
static bool is_named(const char *path, const char *name)
{
	char real[PATH_MAX];

	return strcmp(program_base_name(path), name) == 0 ||
	       (realpath(path, real) && strcmp(program_base_name(real), name) == 0);
}

/* -- env --------------------------------------------------------------------------------------- */

static int refuse_directory(struct search *search)
{
	int error = -errno;

	fault_set(&search->program->what, 0, "env cannot go to the directory %.300s: %s",
		  search->surroundings.dir, strerror(-error));
	return refuse(search->program, error, "Correct the value of its option -C");
}

/* Follows env to the command in its arguments, which may be env again. program->command stays: it
 * is the file that exec is called with. */
static int follow_env(struct search *search)
{
	struct program *program = search->program;
	bool is_script = program->is_script;
	char command[PATH_MAX];
	int error = 0;

	memcpy(command, program->command, sizeof(command));
	for (unsigned i = 0; !error && is_named(program->path, "env"); i++) {
		const char *next = program_words_env(&search->words, &search->surroundings);

		if (i == ENV_MAX)
			return refuse_content(program, command, "env starts env without an end",
					      "Correct the first lines of the scripts");
		if (search->surroundings.dir && chdir(search->surroundings.dir) < 0)
			return refuse_directory(search);
		search->surroundings.dir = NULL;
		if (!next)
			break; /* env without a command */
		error = find(search, next);
		memcpy(program->command, command, sizeof(command));
		program->is_script = is_script;
	}
	return error;
}

/* -- whether it would be limited ------------------------------------------------------------------
 */

static void judge(struct program *program, enum program_standing standing, const char *what,
		  const char *cure)
{
	program->standing = standing;
	fault_set(&program->what, 0, "%s", what);
	fault_set(&program->cure, 0, "%s", cure);
}

/* Whether the loader ignores LD_PRELOAD: names what gives the program rights that the user does not
 * have, or NULL. Set-user-ID to this user's own ID matters only for other users. */
static const char *rights_of_file(const char *path, const struct stat *st, bool *ret_for_this_user)
{
	struct statvfs fs;

	*ret_for_this_user = true;
	if (geteuid() != getuid() || getegid() != getgid())
		return "another user's or group's rights from vgpu";
	if (statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOSUID))
		return NULL;
	if (st->st_mode & S_ISUID) {
		*ret_for_this_user = st->st_uid != getuid();
		return "the set-user-id bit";
	}
	if ((st->st_mode & S_ISGID) && (st->st_mode & S_IXGRP)) {
		*ret_for_this_user = st->st_gid != getgid();
		return "the set-group-id bit";
	}
	*ret_for_this_user = getuid() != 0;
	return getxattr(path, "security.capability", NULL, 0) > 0 ? "capabilities" : NULL;
}

/* Whether the program has another process start the command, or starts it with another
 * environment. */
static bool starts_elsewhere(const char *path)
{
	static const char *const names[] = {
		"sudo",    "doas",        "pkexec",     "run0",    "docker", "podman",
		"nerdctl", "systemd-run", "machinectl", "kubectl", "ssh",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_named(path, names[i]))
			return true;
	return false;
}

/* Whether the loader is glibc's: those have the same name on all machines. */
static bool is_glibc(const char *loader)
{
	static const char *const names[] = {"ld-linux", "ld64.so", "ld.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(loader, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static void judge_privileged(struct program *program, const char *has, bool for_this_user)
{
	char what[200];

	snprintf(what, sizeof(what), "it has %s, with which the loader drops LD_PRELOAD", has);
	if (library_is_for_all())
		judge(program, PROGRAM_HELD_BY_LIST, what,
		      "Run a copy of the program without them, or start it as the user whose "
		      "rights it gets");
	else
		judge(program, for_this_user ? PROGRAM_NOT_HELD : PROGRAM_HELD_HERE, what,
		      "Name libvgpu.so in /etc/ld.so.preload with a policy in /etc/vgpu/policy, or "
		      "run a copy of the program without them");
}

static void judge_dynamic(struct program *program)
{
	const char *loader = program->elf.interpreter;
	bool for_this_user = false;
	const char *has = rights_of_file(program->path, &program->st, &for_this_user);

	if (strncmp(program_base_name(loader), "ld-musl", 7) == 0) {
		judge(program, PROGRAM_NOT_HELD, "it is for musl, and libvgpu.so for glibc",
		      "Take one for glibc, such as a distribution's other than Alpine");
	} else if (access(loader, X_OK) != 0) {
		program->error = errno;
		judge(program, PROGRAM_NOT_HELD, "",
		      "Install the libc that it was built for, or run it in its container");
		fault_set(&program->what, 0,
			  "its loader is not here (%.200s), and so it does not run", loader);
	} else if (!is_glibc(program_base_name(loader))) {
		judge(program, PROGRAM_UNKNOWN, "", "");
		fault_set(&program->what, 0, "it has a loader that vgpu does not know: %s", loader);
		fault_set(&program->cure, 0,
			  "See what vgpu inspect says while it runs in a slice: it is listed if it "
			  "is limited");
	} else if (has) {
		judge_privileged(program, has, for_this_user);
	} else {
		program->standing = PROGRAM_HELD;
	}
}

static void judge_static(struct program *program)
{
	if (is_glibc(program_base_name(program->path)))
		judge(program, PROGRAM_UNKNOWN, "it is the loader itself",
		      "Give the program that it is to load as the command");
	else
		judge(program, PROGRAM_NOT_HELD,
		      "it is linked statically, and nothing can be preloaded",
		      "Take one that is linked dynamically; for what Go and Rust build, cgo or "
		      "the gnu target");
}

static void judge_file(struct program *program)
{
	char machine[24];
	bool for_this_user = false;
	const char *has = rights_of_file(program->path, &program->st, &for_this_user);

	if (!program->elf.file.data && has && for_this_user) {
		judge_privileged(program, has, true);
	} else if (!program->elf.file.data) {
		program->standing = PROGRAM_UNKNOWN; /* program->what has the reason */
		fault_set(&program->cure, 0,
			  "Let this user read it (chmod a+r), or run this as a user who may");
	} else if (!program->elf.ours) {
		judge(program, PROGRAM_NOT_HELD, "", "Take one for this machine, of 64 bits");
		fault_set(&program->what, 0, "it is for another machine, %u-bit %s",
			  program->elf.bits, elf_machine_name(program->elf.machine, machine));
	} else if (!program->elf.interpreter) {
		judge_static(program);
	} else {
		judge_dynamic(program);
	}
}

static void judge_search(const struct search *search)
{
	const struct program_surroundings *surroundings = &search->surroundings;
	struct program *program = search->program;

	judge_file(program);
	if (starts_elsewhere(program->path)) {
		judge(program, PROGRAM_NOT_HELD, "",
		      "Write vgpu run after it instead, before the program that it starts; for "
		      "containers see vgpu run --container, and vgpu cdi");
		fault_set(&program->what, 0,
			  "what %s starts does not get the environment of the slice",
			  program_base_name(program->path));
	}
	if (program->standing != PROGRAM_HELD && program->standing != PROGRAM_HELD_HERE)
		return;
	if (surroundings->unreadable) {
		judge(program, PROGRAM_UNKNOWN, "",
		      "Give the program that it starts as the command");
		fault_set(&program->what, 0, "what env starts with \"%.200s\" is not understood",
			  surroundings->unreadable);
	} else if (surroundings->lost) {
		judge(program, PROGRAM_NOT_HELD, "", "Leave that out");
		fault_set(&program->what, 0, "env takes it out of the slice by \"%.200s\"",
			  surroundings->lost);
	}
}

int program_find(char *const *argv, struct program *ret_program)
{
	int error, here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct search search = {.program = ret_program};

	memset(ret_program, 0, sizeof(*ret_program));
	search.words.more = argv + 1;
	search.surroundings.path = getenv("PATH");
	error = find(&search, argv[0]);
	if (!error)
		error = follow_env(&search);
	if (!error)
		judge_search(&search);
	if (here >= 0) { /* env -C may have changed the directory */
		if (fchdir(here) < 0)
			error = refuse_directory(&search);
		close(here);
	}
	return error;
}
