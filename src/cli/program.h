/*
 * The program that a command would start, and whether a slice of vgpu run would limit it: whether
 * the loader would preload libvgpu.so into it. Nothing is started.
 *
 * A command is found as execvp finds it. A script is followed to its interpreter as the kernel
 * does, several levels deep, and env(1) to the command in its arguments. Another program that
 * starts programs (a shell, timeout, nice) is not looked through: it is judged itself.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "elf_file.h"
#include "fault.h"

enum program_standing {
	PROGRAM_HELD,
	PROGRAM_HELD_HERE, /* for this user only: for others, a set-user-ID bit prevents it */
	/* Not held by a slice of vgpu run, because the loader drops the environment. Held by the
	 * limits that hold everywhere on this machine, because /etc/ld.so.preload has libvgpu.so.
	 */
	PROGRAM_HELD_BY_LIST,
	PROGRAM_UNKNOWN, /* the program's file cannot be read */
	PROGRAM_NOT_HELD,
};

struct program {
	char command[PATH_MAX]; /* the file that the command's name leads to; has a "/" */
	char path[PATH_MAX];    /* the ELF file that is started in the end */
	bool is_script;         /* the two differ by the interpreters of scripts, or by env */
	struct elf elf;
	struct stat st;

	enum program_standing standing;
	int error;         /* the errno with which exec would fail, as far as that is known; or 0 */
	struct fault what; /* unless held: the reason, a sentence without its full stop */
	struct fault cure; /* what to do about it, likewise */
};

/*
 * Finds what argv would start: 0 with a standing, or a negative errno as exec would give it, with
 * what and cure alone. -ENOENT: the command or its interpreter is not there. -EACCES: it is no
 * file, or may not be executed. -ENOEXEC: it is neither ELF nor text. -ELOOP: scripts interpret
 * each other. Where error is set, or the program could not be read, elf is zeroed.
 */
int program_find(char *const *argv, struct program *ret_program);

void program_close(struct program *program); /* also of a zeroed one */

const char *program_base_name(const char *path);
