/*
 * Code images: what a program gives the driver as a module. PTX text, a cubin (an ELF file), a
 * fatbin (a container of both), or the wrapper with which nvcc embeds a fatbin.
 *
 * Only descriptions are read: the names of kernels and variables, sizes, attributes. The bytes of
 * an image are not trusted: every offset and length in them is checked against the image's end.
 */
#pragma once

#include "cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the bytes of an image, or of a copy of them. */
struct image_bytes {
	const unsigned char *data;
	size_t count;
};

struct image_parameter {
	uint32_t offset, bytes;
};

struct image_kernel {
	char *name;
	struct image_parameter *parameters;
	unsigned parameter_count;
	unsigned registers; /* of a thread; 0: unknown */
	unsigned threads;   /* at most in a block; 0: as many as the GPU allows */
	uint32_t shared_bytes, local_bytes, constant_bytes;
};

struct image_variable {
	char *name;
	uint64_t bytes;
	uint64_t offset; /* in the memory for the image's managed variables, or for its others */
	struct image_bytes initial; /* count 0: zeroes */
	bool managed;
};

struct image {
	struct image_kernel *kernels;
	unsigned kernel_count;
	struct image_variable *variables;
	unsigned variable_count;
	uint64_t variable_bytes; /* of variables that are not managed, with gaps for alignment */
	uint64_t managed_bytes;  /* of managed variables, likewise */
	unsigned binary_version; /* 90: a cubin for compute capability 9.0; 0: PTX */
	unsigned ptx_version;    /* 90: PTX ISA 9.0; 0: a cubin */
	unsigned char
		*unpacked; /* the unpacked image with the initial values, if it was compressed */
};

enum {
	IMAGE_VARIABLE_ALIGNMENT = 256,
	/* Of all managed variables of an image, or of its others. */
	IMAGE_VARIABLE_BYTES_MAX = 1 << 30,
};

/* ---- image.c */

/* Reads the image that fits a GPU of that compute capability (90: 9.0). Initial values stay in the
 * bytes given, which must outlast their use. */
CUresult image_read(const void *data, size_t bytes, unsigned capability, struct image *ret_image);
/* As image_read, for an image whose length is only in its own headers. */
CUresult image_read_unsized(const void *data, unsigned capability, struct image *ret_image);
void image_free(struct image *image);
/* Adds a kernel or a variable of that name, whose other fields are 0. NULL: there is no memory. */
struct image_kernel *image_add_kernel(struct image *image, const char *name, size_t length);
/* Adds a variable. NULL: there is no memory, or the variables are too large together. */
struct image_variable *image_add_variable(struct image *image, const char *name, size_t length,
					  uint64_t bytes, bool managed);
bool image_add_parameter(struct image_kernel *kernel, unsigned ordinal, uint32_t offset,
			 uint32_t bytes);

/* ---- image_elf.c */

bool elf_is(struct image_bytes bytes);
/* The length of the ELF file by its headers; 0 if it is no ELF file. */
uint64_t elf_length(const void *data);
/* The compute capability that a cubin is for; 0 if it is no cubin. */
unsigned elf_capability(struct image_bytes bytes);
CUresult elf_read(struct image_bytes bytes, struct image *image);

/* ---- image_ptx.c */

/* The text ends at its first NUL, or at its end. */
CUresult ptx_read(struct image_bytes text, struct image *image);

/* ---- image_unpack.c */

/* Both fill a buffer of exactly `bytes` bytes, or fail. */
bool unpack_lz4(struct image_bytes packed, unsigned char *to, size_t bytes);
bool unpack_zstd(struct image_bytes packed, unsigned char *to, size_t bytes);
