/*
 * Reads ELF files: programs that vgpu may limit, and libraries that are preloaded. A file may
 * have any content. A table that does not lie within the file counts as absent. The time that a
 * function needs is bounded by the size of the file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

/* A file that is mapped into memory. If another process truncates the file meanwhile, a read
 * may end this process with SIGBUS. */
struct elf_file {
	const unsigned char *data; /* NULL if the file is empty */
	size_t size;               /* bytes */
};

/* Maps the file read-only; follows symbolic links. Returns 0, or with a fault -EINVAL (the path
 * is no regular file) or the negative errno of open(2) or mmap(2). The caller unmaps the file.
 */
int elf_map(const char *path, struct elf_file *ret_file, struct fault *fault);
void elf_unmap(struct elf_file *file); /* file may be zeroed */

/* An ELF file's header, as elf_read found it. */
struct elf {
	struct elf_file file; /* the caller must keep it mapped */
	unsigned bits;        /* 32 or 64 */
	unsigned machine;     /* EM_… of elf.h */
	/* Whether the file is for this machine. If not, the fields below are zero, and functions
	 * that take a struct elf find nothing. */
	bool ours;
	bool dynamic;            /* the file has a dynamic section */
	const char *interpreter; /* path of the program's loader; NULL: the file has none */
	uint64_t segments;       /* offset in the file of the program headers */
	unsigned segment_count;
	uint64_t dynamic_at; /* offset in the file of the dynamic section */
	unsigned dynamic_count;
	uint64_t strings_at, strings_size; /* offset and bytes of the dynamic section's strings */
};

/* Reads the header. Returns 0; -ENOEXEC: the file is no ELF file; -EINVAL: it is a truncated or
 * damaged ELF file. *ret_elf points into the file. */
int elf_read(const struct elf_file *file, struct elf *ret_elf);

/* Returns the machine's name, such as "x86-64" or "AArch64". For other machines, writes
 * "machine N" into buf, and returns buf. */
const char *elf_machine_name(unsigned machine, char buf[24]);

/* Returns the name of the n-th library that the file is linked with; n counts from 0. NULL:
 * there are no more, or the name is damaged. The name is valid while the file is mapped. */
const char *elf_needed(const struct elf *elf, unsigned n);
bool elf_needs(const struct elf *elf, const char *library);

/* elf_defines: whether the file exports a function or object of that name. elf_uses: whether
 * the file uses one that another file defines. */
bool elf_defines(const struct elf *elf, const char *name);
bool elf_uses(const struct elf *elf, const char *name);

/* Calls each(arg, name) for each function or object that the file exports. */
void elf_each_defined(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg);
/* Calls each(arg, name) for each function or object that the file uses and another file
 * defines. */
void elf_each_used(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg);

/* Returns x of the newest version GLIBC_2.x that the file needs; 0: it needs none. */
unsigned elf_glibc_minor(const struct elf *elf);

/* Whether the file has the bytes of the text, without its NUL, at any offset. */
bool elf_contains(const struct elf_file *file, const char *text);

/* Look for the note that identifies libvgpu.so (preload/interpose/note.S), and write the
 * version in it into buf of len bytes. False: there is no such note. elf_vgpu_version reads the
 * file; elf_vgpu_note reads size bytes of notes in memory, which are aligned to 4 bytes. */
bool elf_vgpu_version(const struct elf *elf, char *buf, size_t len);
bool elf_vgpu_note(const void *notes, size_t size, char *buf, size_t len);
