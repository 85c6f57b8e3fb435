/*
 * Images as a whole: the form of an image, the part of a fatbin that fits the GPU, and the lists of
 * kernels and variables.
 *
 * A fatbin is a header of 16 bytes, and then entries. An entry is a header, which has its own
 * length, and a payload. The meaning of the header's fields was found in files that nvcc 12 and 13
 * made.
 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

enum {
	WRAPPER_MAGIC = 0x466243b1,
	FATBIN_VERSION = 1,
	ENTRY_PTX = 1,
	ENTRY_ELF = 2,
	ENTRY_LZ4 = 0x2000,
	ENTRY_ZSTD = 0x8000,
	UNPACKED_BYTES_MAX = 1 << 30,
};

static const uint32_t fatbin_magic = 0xba55ed50;

struct wrapper {
	uint32_t magic, version;
	const void *fatbin, *more;
};

struct fatbin_header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t payload_bytes;
};

struct fatbin_entry {
	uint16_t kind, reserved;
	uint32_t header_bytes;
	uint64_t payload_bytes; /* padded */
	uint32_t packed_bytes, reserved2;
	uint16_t minor, major;
	uint32_t capability;
	uint32_t reserved3[2];
	uint64_t flags, reserved4;
	uint64_t unpacked_bytes;
};

static bool name_add(char **name, const char *from, size_t length)
{
	*name = strndup(from, length);
	return *name != NULL;
}

/* Makes place for one more element, which is zeroed. The list is reallocated when its length is a
 * power of two, or 0. */
static void *list_grow(void *list, unsigned count, size_t element_bytes)
{
	if (count & (count - 1))
		return list;
	return realloc(list, (count ? 2 * (size_t)count : 1) * element_bytes);
}

struct image_kernel *image_add_kernel(struct image *image, const char *name, size_t length)
{
	struct image_kernel *kernels =
		list_grow(image->kernels, image->kernel_count, sizeof *kernels);

	if (!kernels)
		return NULL;
	image->kernels = kernels;
	struct image_kernel *kernel = &kernels[image->kernel_count];
	memset(kernel, 0, sizeof *kernel);
	if (!name_add(&kernel->name, name, length))
		return NULL;
	image->kernel_count++;
	return kernel;
}

struct image_variable *image_add_variable(struct image *image, const char *name, size_t length,
					  uint64_t bytes, bool managed)
{
	uint64_t *sum = managed ? &image->managed_bytes : &image->variable_bytes;
	const uint64_t rest = IMAGE_VARIABLE_ALIGNMENT - 1;
	struct image_variable *variables;

	if (bytes > IMAGE_VARIABLE_BYTES_MAX - *sum)
		return NULL;
	variables = list_grow(image->variables, image->variable_count, sizeof *variables);
	if (!variables)
		return NULL;
	image->variables = variables;
	struct image_variable *variable = &variables[image->variable_count];
	memset(variable, 0, sizeof *variable);
	if (!name_add(&variable->name, name, length))
		return NULL;
	variable->bytes = bytes;
	variable->managed = managed;
	variable->offset = *sum;
	*sum = (*sum + bytes + rest) & ~rest;
	image->variable_count++;
	return variable;
}

bool image_add_parameter(struct image_kernel *kernel, unsigned ordinal, uint32_t offset,
			 uint32_t bytes)
{
	const unsigned most =
		4096; /* more than the 32,764 bytes of parameters can have in practice */

	if (ordinal >= most)
		return false;
	if (ordinal >= kernel->parameter_count) {
		struct image_parameter *parameters =
			realloc(kernel->parameters, (ordinal + 1) * sizeof *parameters);

		if (!parameters)
			return false;
		memset(parameters + kernel->parameter_count, 0,
		       (ordinal + 1 - kernel->parameter_count) * sizeof *parameters);
		kernel->parameters = parameters;
		kernel->parameter_count = ordinal + 1;
	}
	kernel->parameters[ordinal] = (struct image_parameter){offset, bytes};
	return true;
}

void image_free(struct image *image)
{
	for (unsigned i = 0; i < image->kernel_count; i++) {
		free(image->kernels[i].name);
		free(image->kernels[i].parameters);
	}
	for (unsigned i = 0; i < image->variable_count; i++)
		free(image->variables[i].name);
	free(image->kernels);
	free(image->variables);
	free(image->unpacked);
	*image = (struct image){0};
}

/* A cubin runs on GPUs of its own major version whose minor version is not lower. */
static bool elf_fits(unsigned wanted, unsigned capability)
{
	return wanted && wanted / 10 == capability / 10 && wanted <= capability;
}

/* Reads the entry at an offset; its payload is then inside the fatbin. */
static bool entry_at(struct image_bytes fatbin, size_t at, struct fatbin_entry *ret_entry,
		     struct image_bytes *ret_payload)
{
	size_t left = fatbin.count - at;

	/* The fields of the header after these may be absent in an entry without compression. */
	if (left < sizeof *ret_entry)
		return false;
	memcpy(ret_entry, fatbin.data + at, sizeof *ret_entry);
	if (ret_entry->header_bytes < sizeof *ret_entry - 8 || ret_entry->header_bytes > left ||
	    ret_entry->payload_bytes > left - ret_entry->header_bytes)
		return false;
	*ret_payload = (struct image_bytes){fatbin.data + at + ret_entry->header_bytes,
					    (size_t)ret_entry->payload_bytes};
	return true;
}

static CUresult plain_read(struct image_bytes bytes, unsigned capability, struct image *image)
{
	if (!elf_is(bytes))
		return ptx_read(bytes, image);
	unsigned wanted = elf_capability(bytes);
	if (!wanted)
		return CUDA_ERROR_INVALID_IMAGE;
	return elf_fits(wanted, capability) ? elf_read(bytes, image) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult entry_read(const struct fatbin_entry *entry, struct image_bytes payload,
			   unsigned capability, struct image *image)
{
	if (!(entry->flags & (ENTRY_LZ4 | ENTRY_ZSTD)))
		return plain_read(payload, capability, image);
	if (entry->packed_bytes > payload.count || !entry->unpacked_bytes ||
	    entry->unpacked_bytes > UNPACKED_BYTES_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	size_t bytes = (size_t)entry->unpacked_bytes;
	payload.count = entry->packed_bytes;
	image->unpacked = malloc(bytes);
	if (!image->unpacked)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!(entry->flags & ENTRY_ZSTD ? unpack_zstd : unpack_lz4)(payload, image->unpacked,
								    bytes))
		return CUDA_ERROR_INVALID_IMAGE;
	return plain_read((struct image_bytes){image->unpacked, bytes}, capability, image);
}

/* How well an entry fits: cubins before PTX, newer before older; 0: not at all. */
static unsigned entry_rank(const struct fatbin_entry *entry, unsigned capability)
{
	const unsigned elf_bonus = 1 << 16;

	if (entry->kind == ENTRY_ELF && elf_fits(entry->capability, capability))
		return elf_bonus + entry->capability;
	if (entry->kind == ENTRY_PTX && entry->capability && entry->capability <= capability)
		return entry->capability;
	return 0;
}

static CUresult fatbin_read(struct image_bytes fatbin, unsigned capability, struct image *image)
{
	struct fatbin_header header;
	struct fatbin_entry entry, best = {0};
	struct image_bytes payload, best_payload = {0};
	unsigned best_rank = 0;

	if (fatbin.count < sizeof header)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&header, fatbin.data, sizeof header);
	if (header.version != FATBIN_VERSION || header.header_bytes < sizeof header ||
	    header.header_bytes > fatbin.count ||
	    header.payload_bytes > fatbin.count - header.header_bytes)
		return CUDA_ERROR_INVALID_IMAGE;
	fatbin.count = header.header_bytes + (size_t)header.payload_bytes;
	for (size_t at = header.header_bytes; at < fatbin.count;) {
		if (!entry_at(fatbin, at, &entry, &payload))
			return CUDA_ERROR_INVALID_IMAGE;
		at = (size_t)(payload.data - fatbin.data) + payload.count;
		if (entry_rank(&entry, capability) <= best_rank)
			continue;
		best_rank = entry_rank(&entry, capability);
		best = entry;
		best_payload = payload;
	}
	return best_rank ? entry_read(&best, best_payload, capability, image)
			 : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static uint32_t magic_of(const void *data)
{
	uint32_t magic;

	memcpy(&magic, data, sizeof magic);
	return magic;
}

CUresult image_read(const void *data, size_t bytes, unsigned capability, struct image *ret_image)
{
	const struct image_bytes image = {data, bytes};
	CUresult result;

	*ret_image = (struct image){0};
	if (bytes >= sizeof(uint32_t) && magic_of(data) == fatbin_magic)
		result = fatbin_read(image, capability, ret_image);
	else
		result = plain_read(image, capability, ret_image);
	if (result)
		image_free(ret_image);
	return result;
}

CUresult image_read_unsized(const void *data, unsigned capability, struct image *ret_image)
{
	struct fatbin_header header;
	struct wrapper wrapper;
	const char *text = data;
	uint64_t bytes = 0;

	/* A text may be shorter than a number, and ends with NUL. */
	if (memchr(text, 0, sizeof(uint32_t)))
		return CUDA_ERROR_INVALID_IMAGE;
	if (magic_of(data) == WRAPPER_MAGIC) {
		memcpy(&wrapper, data, sizeof wrapper);
		data = wrapper.fatbin;
		if (!data || magic_of(data) != fatbin_magic)
			return CUDA_ERROR_INVALID_IMAGE;
	}
	if (magic_of(data) == fatbin_magic) {
		memcpy(&header, data, sizeof header);
		bytes = header.header_bytes + header.payload_bytes;
	} else {
		bytes = elf_length(data);
		bytes = bytes ? bytes : strlen(data);
	}
	if (bytes > PTRDIFF_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	return image_read(data, (size_t)bytes, capability, ret_image);
}
