/* libvgpu.so: where it is, and whether a program of this user would get it by LD_PRELOAD. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "elf_file.h"
#include "fault.h"

#define LIBRARY_NAME        "libvgpu.so"
#define LIBRARY_LIST        "/etc/ld.so.preload"
#define LIBRARY_VERSION_LEN 32

/* Its absolute path: the one that VGPU_LIBRARY names, or else the first of its usual places where
 * there is such a file. A negative errno with a fault, also where a place cannot be looked at. */
int library_find(char ret_path[PATH_MAX], struct fault *fault);

/*
 * Whether LD_PRELOAD with that path brings vgpu's library into a program that this user starts: 0,
 * or a negative errno with a fault. The file is looked at (this user can read it, it is for this
 * machine, it is vgpu's), and then loaded by this program's own loader.
 */
int library_check(const char *path, struct fault *fault);

/* A library's file. */
struct library {
	struct elf elf;
	struct stat st;
	char version[LIBRARY_VERSION_LEN]; /* "": it is not vgpu's */
};

/* False: with the reason why it cannot be preloaded. ret_library->elf.file is to be unmapped in
 * either case. */
bool library_look(const char *path, struct library *ret_library, struct fault *ret_why);

/* The text of LIBRARY_LIST without comments, to be freed; NULL: there is none. */
char *library_read_list(void);
/* The next entry, cut out of the text of LIBRARY_LIST or LD_PRELOAD; NULL: there are no more. */
char *library_next_entry(char **text);
/* Whether LIBRARY_LIST names vgpu's library; whether this process's LD_PRELOAD does. */
bool library_is_for_all(void);
bool library_is_preloaded(void);
