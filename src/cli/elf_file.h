/*
 * Reads ELF files: programs that vgpu might limit, and libraries that are preloaded. A file may
 * have any bytes. A table that does not fit into the file counts as absent, and no file takes long.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/* A file in memory. One that is truncated while it is looked at ends us by SIGBUS. */
struct elf_file {
	const unsigned char *data; /* NULL of an empty one */
	size_t size;
};

/* -EINVAL for what is no regular file, or open(2)'s, with a fault; follows links. */
int elf_map(const char *path, struct elf_file *ret_file, struct fault *fault);
void elf_unmap(struct elf_file *file); /* also of a zeroed one */

struct elf {
	struct elf_file file; /* the caller's, who keeps it */
	unsigned bits;        /* 32 or 64 */
	unsigned machine;     /* EM_… */
	/* For this machine: only of such a file, whatever follows is filled in, and the functions
	 * below find something. */
	bool ours;
	bool dynamic;            /* has a dynamic section */
	const char *interpreter; /* of a program, its loader's path; NULL: none, it is static */
	uint64_t segments;       /* their offset; with their number */
	unsigned segment_count;
	uint64_t dynamic_at; /* likewise */
	unsigned dynamic_count;
	uint64_t strings_at, strings_size; /* the dynamic section's */
};

/* -ENOEXEC when it is no ELF file, -EINVAL when it is one that was cut off or damaged. */
int elf_read(const struct elf_file *file, struct elf *ret_elf);

/* For people: "x86-64", "AArch64" …; in buf where it has no name. */
const char *elf_machine_name(unsigned machine, char buf[24]);

/* The n-th library that it is linked with, from 0; NULL if there are no more. */
const char *elf_needed(const struct elf *elf, unsigned n);
bool elf_needs(const struct elf *elf, const char *library);

/* Whether a function of that name is defined in it for others, or used by it and defined elsewhere.
 */
bool elf_defines(const struct elf *elf, const char *name);
bool elf_uses(const struct elf *elf, const char *name);

/* Calls each(arg, name) for each function or object that is defined in it for others. */
void elf_each_defined(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg);
/* Calls each(arg, name) for each function or object that the file uses and another one defines. */
void elf_each_used(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg);

/* The newest GLIBC_2.x of which it needs something: x, or 0. */
unsigned elf_glibc_minor(const struct elf *elf);

/* Whether the bytes of the text, without its NUL, are anywhere in the file. */
bool elf_contains(const struct elf_file *file, const char *text);

/* The version in the note by which libvgpu.so is known (preload/interpose/note.S), into buf; false:
 * it has none. The other is for such notes in memory, those of a segment aligned to 4 bytes. */
bool elf_vgpu_version(const struct elf *elf, char *buf, size_t len);
bool elf_vgpu_note(const void *notes, size_t size, char *buf, size_t len);
