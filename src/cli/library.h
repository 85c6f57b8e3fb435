/* Finds libvgpu.so, and checks that the loader preloads it into programs of this user. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "elf_file.h"
#include "fault.h"

#define LIBRARY_NAME        "libvgpu.so"
#define LIBRARY_LIST        "/etc/ld.so.preload"
#define LIBRARY_VERSION_LEN 32

/* Finds the absolute path of libvgpu.so: the value of VGPU_LIBRARY, or else the first of the
 * usual places that has the file. Returns 0, or a negative errno with a fault. A place that
 * this user may not look at is an error as well. */
int library_find(char ret_path[PATH_MAX], struct fault *fault);

/*
 * Checks that LD_PRELOAD with this path brings vgpu's library into a program that this user
 * starts. Checks the file (this user can read it, it is for this machine, it is vgpu's), then
 * loads it in a child process. Returns 0, or a negative errno with a fault.
 */
int library_check(const char *path, struct fault *fault);

/* The file of a shared library. */
struct library {
	struct elf elf;
	struct stat st;
	char version[LIBRARY_VERSION_LEN]; /* vgpu's version; "": the library is not vgpu's */
};

/* Reads the file. Returns false, with the reason, if the file cannot be preloaded. In both
 * cases the caller unmaps ret_library->elf.file with elf_unmap. */
bool library_look(const char *path, struct library *ret_library, struct fault *ret_why);

/* Returns the text of LIBRARY_LIST without its comments, which the caller frees; NULL: the file
 * cannot be read. */
char *library_read_list(void);

/* Returns the next entry of a text from LIBRARY_LIST or LD_PRELOAD, and moves *text past it.
 * The text is changed: the entry ends with a NUL. NULL: there are no more entries. */
char *library_next_entry(char **text);

/* Whether LIBRARY_LIST names vgpu's library, so that the loader loads it into every program. */
bool library_is_for_all(void);

/* Whether LD_PRELOAD of this process names vgpu's library. */
bool library_is_preloaded(void);
