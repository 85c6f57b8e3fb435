/*
 * Cubins: ELF files of machine 190. A kernel is a function symbol that is marked as an entry, a
 * variable an object symbol in one of the sections for variables. Numbers come from the sections
 * .nv.info (of the whole file) and .nv.info.KERNEL, which are lists of attributes.
 */
#include "image.h"

#include <elf.h>
#include <string.h>

enum {
	MACHINE_CUDA = 190,
	ABI_CAPABILITY_SHIFTED = 8, /* EI_ABIVERSION from which the flags have another form */
	SYMBOL_ENTRY = 0x10,        /* st_other of a kernel */
	SYMBOL_MANAGED = 0x04,      /* st_other of a __managed__ variable */
	ATTRIBUTE_MAX_THREADS = 0x05,
	ATTRIBUTE_PARAMETER_BANK = 0x0a,
	ATTRIBUTE_REQUIRED_THREADS = 0x10,
	ATTRIBUTE_FRAME_BYTES = 0x11,
	ATTRIBUTE_PARAMETER = 0x17,
	ATTRIBUTE_REGISTERS = 0x2f,
	FORMAT_SIZED = 4, /* the attribute's value is the number of bytes that follow */
	PARAMETER_BYTES_SHIFT = 18,
	/* The driver's part of each block's shared memory, in the section's size since compute
	 * capability 9.0. */
	SHARED_RESERVED_BYTES = 1024,
};

struct elf {
	struct image_bytes file;
	Elf64_Ehdr header;
	struct image_bytes names; /* of sections */
	struct image_bytes symbols, symbol_names;
};

static bool get(struct image_bytes from, uint64_t offset, void *to, size_t bytes)
{
	if (offset > from.count || bytes > from.count - offset)
		return false;
	memcpy(to, from.data + offset, bytes);
	return true;
}

static bool part(struct image_bytes whole, uint64_t offset, uint64_t bytes,
		 struct image_bytes *ret_part)
{
	if (offset > whole.count || bytes > whole.count - offset)
		return false;
	*ret_part = (struct image_bytes){whole.data + offset, (size_t)bytes};
	return true;
}

/* The string at the offset; "" if no string ends inside the table. */
static const char *string_at(struct image_bytes table, uint64_t offset)
{
	if (offset >= table.count || !memchr(table.data + offset, 0, table.count - offset))
		return "";
	return (const char *)table.data + offset;
}

bool elf_is(struct image_bytes bytes)
{
	return bytes.count >= SELFMAG && !memcmp(bytes.data, ELFMAG, SELFMAG);
}

static bool header_valid(const Elf64_Ehdr *header)
{
	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB &&
	       header->e_machine == MACHINE_CUDA && header->e_shentsize == sizeof(Elf64_Shdr);
}

static uint64_t further(uint64_t end, uint64_t offset, uint64_t bytes)
{
	if (offset > UINT64_MAX - bytes)
		return UINT64_MAX;
	return offset + bytes > end ? offset + bytes : end;
}

/* The length is the end of the last section, or of the tables. */
uint64_t elf_length(const void *data)
{
	Elf64_Ehdr header;
	uint64_t end = sizeof header;

	const unsigned char *ident = data;

	if (memcmp(ident, ELFMAG, SELFMAG))
		return 0;
	if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
		return SELFMAG;
	memcpy(&header, data, sizeof header);
	if (!header_valid(&header))
		return sizeof header;
	end = further(end, header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize);
	uint64_t table = further(0, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr));
	/* A table that lies at the end of memory would be read outside of it. */
	if (table > PTRDIFF_MAX - (uintptr_t)data)
		return sizeof header;
	for (unsigned i = 0; i < header.e_shnum; i++) {
		Elf64_Shdr section;

		memcpy(&section, (const char *)data + header.e_shoff + (size_t)i * sizeof section,
		       sizeof section);
		if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL)
			end = further(end, section.sh_offset, section.sh_size);
	}
	return end > table ? end : table;
}

unsigned elf_capability(struct image_bytes bytes)
{
	Elf64_Ehdr header;

	if (!get(bytes, 0, &header, sizeof header) || !header_valid(&header))
		return 0;
	return header.e_ident[EI_ABIVERSION] >= ABI_CAPABILITY_SHIFTED
		       ? (header.e_flags >> 8) & 0xff
		       : header.e_flags & 0xff;
}

static bool section_at(const struct elf *elf, unsigned index, Elf64_Shdr *ret_section)
{
	return index < elf->header.e_shnum &&
	       get(elf->file, elf->header.e_shoff + (uint64_t)index * sizeof *ret_section,
		   ret_section, sizeof *ret_section);
}

static bool contents(const struct elf *elf, const Elf64_Shdr *section, struct image_bytes *ret)
{
	if (section->sh_type == SHT_NOBITS) {
		*ret = (struct image_bytes){0};
		return true;
	}
	return part(elf->file, section->sh_offset, section->sh_size, ret);
}

static bool open_symbols(struct elf *elf)
{
	Elf64_Shdr section, names;

	if (!section_at(elf, elf->header.e_shstrndx, &section) ||
	    !contents(elf, &section, &elf->names))
		return false;
	for (unsigned i = 0; i < elf->header.e_shnum; i++) {
		if (!section_at(elf, i, &section))
			return false;
		if (section.sh_type == SHT_SYMTAB)
			return contents(elf, &section, &elf->symbols) &&
			       section_at(elf, section.sh_link, &names) &&
			       contents(elf, &names, &elf->symbol_names);
	}
	return true; /* a cubin without symbols has no kernels */
}

static bool symbol_at(const struct elf *elf, uint64_t index, Elf64_Sym *ret_symbol)
{
	return index < elf->symbols.count / sizeof *ret_symbol &&
	       get(elf->symbols, index * sizeof *ret_symbol, ret_symbol, sizeof *ret_symbol);
}

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static CUresult variable_read(const struct elf *elf, const Elf64_Sym *symbol, struct image *image)
{
	const char *name = string_at(elf->symbol_names, symbol->st_name);
	struct image_bytes data;
	Elf64_Shdr section;

	if (!*name || !section_at(elf, symbol->st_shndx, &section))
		return CUDA_SUCCESS;
	const char *section_name = string_at(elf->names, section.sh_name);
	if (!begins(section_name, ".nv.global") && strcmp(section_name, ".nv.constant3"))
		return CUDA_SUCCESS;
	if (symbol->st_size > section.sh_size ||
	    symbol->st_value > section.sh_size - symbol->st_size || !contents(elf, &section, &data))
		return CUDA_ERROR_INVALID_IMAGE;
	struct image_variable *variable = image_add_variable(
		image, name, strlen(name), symbol->st_size, symbol->st_other & SYMBOL_MANAGED);
	if (!variable)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (data.data)
		variable->initial =
			(struct image_bytes){data.data + symbol->st_value, (size_t)symbol->st_size};
	return CUDA_SUCCESS;
}

static CUresult symbols_read(const struct elf *elf, struct image *image)
{
	Elf64_Sym symbol;

	for (uint64_t i = 0; symbol_at(elf, i, &symbol); i++) {
		const char *name = string_at(elf->symbol_names, symbol.st_name);
		CUresult result = CUDA_SUCCESS;

		if (symbol.st_shndx == SHN_UNDEF)
			continue;
		if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT)
			result = variable_read(elf, &symbol, image);
		else if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
			 symbol.st_other & SYMBOL_ENTRY && *name &&
			 !image_add_kernel(image, name, strlen(name)))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}

static struct image_kernel *kernel_named(struct image *image, const char *name)
{
	for (unsigned i = 0; i < image->kernel_count; i++) {
		if (!strcmp(image->kernels[i].name, name))
			return &image->kernels[i];
	}
	return NULL;
}

static uint64_t threads_of(struct image_bytes value)
{
	uint32_t shape[3] = {0};

	if (!get(value, 0, shape, sizeof shape) || shape[0] > UINT16_MAX || shape[1] > UINT16_MAX ||
	    shape[2] > UINT16_MAX)
		return 0;
	return (uint64_t)shape[0] * (shape[1] ? shape[1] : 1) * (shape[2] ? shape[2] : 1);
}

/* Reads an attribute of the whole file, which names its kernel by the symbol's number. */
static void file_attribute(const struct elf *elf, unsigned attribute, struct image_bytes value,
			   struct image *image)
{
	struct image_kernel *kernel;
	uint32_t pair[2];
	Elf64_Sym symbol;

	if (!get(value, 0, pair, sizeof pair) || !symbol_at(elf, pair[0], &symbol))
		return;
	kernel = kernel_named(image, string_at(elf->symbol_names, symbol.st_name));
	if (kernel && attribute == ATTRIBUTE_REGISTERS)
		kernel->registers = pair[1];
	if (kernel && attribute == ATTRIBUTE_FRAME_BYTES)
		kernel->local_bytes = pair[1];
}

static bool kernel_attribute(unsigned attribute, struct image_bytes value,
			     struct image_kernel *kernel)
{
	struct {
		uint32_t index;
		uint16_t ordinal, offset;
		uint32_t packed;
	} parameter;
	uint64_t threads = 0;

	if (attribute == ATTRIBUTE_PARAMETER) {
		return get(value, 0, &parameter, sizeof parameter) &&
		       image_add_parameter(kernel, parameter.ordinal, parameter.offset,
					   parameter.packed >> PARAMETER_BYTES_SHIFT);
	}
	if (attribute == ATTRIBUTE_MAX_THREADS || attribute == ATTRIBUTE_REQUIRED_THREADS)
		threads = threads_of(value);
	if (threads && threads <= UINT16_MAX)
		kernel->threads = (unsigned)threads;
	return true;
}

/* Reads the attributes of a kernel; NULL: of the whole file. */
static bool attributes_read(const struct elf *elf, struct image_bytes list,
			    struct image_kernel *kernel, struct image *image)
{
	struct {
		uint8_t format, attribute;
		uint16_t value;
	} item;

	for (uint64_t at = 0; at < list.count;) {
		struct image_bytes value = {0};

		if (!get(list, at, &item, sizeof item))
			return false;
		at += sizeof item;
		if (item.format != FORMAT_SIZED)
			continue;
		if (!part(list, at, item.value, &value))
			return false;
		at += item.value;
		if (!kernel)
			file_attribute(elf, item.attribute, value, image);
		else if (!kernel_attribute(item.attribute, value, kernel))
			return false;
	}
	return true;
}

static bool section_read(const struct elf *elf, unsigned index, struct image *image)
{
	static const char info[] = ".nv.info", shared[] = ".nv.shared.";
	static const char constant[] = ".nv.constant2.";
	struct image_kernel *kernel = NULL;
	struct image_bytes data;
	Elf64_Shdr section;

	if (!section_at(elf, index, &section))
		return false;
	const char *name = string_at(elf->names, section.sh_name);
	if (begins(name, info)) {
		if (name[sizeof info - 1] == '.')
			kernel = kernel_named(image, name + sizeof info);
		if (name[sizeof info - 1] && !kernel)
			return true; /* the attribute is of a function that is no kernel */
		return contents(elf, &section, &data) && attributes_read(elf, data, kernel, image);
	}
	if (begins(name, shared))
		kernel = kernel_named(image, name + sizeof shared - 1);
	if (kernel && section.sh_size <= UINT32_MAX) {
		uint32_t bytes = (uint32_t)section.sh_size;
		bool reserved = image->binary_version >= 90 && bytes >= SHARED_RESERVED_BYTES;

		kernel->shared_bytes = bytes - (reserved ? SHARED_RESERVED_BYTES : 0);
	}
	if (begins(name, constant))
		kernel = kernel_named(image, name + sizeof constant - 1);
	if (kernel && begins(name, constant) && section.sh_size <= UINT32_MAX)
		kernel->constant_bytes = (uint32_t)section.sh_size;
	return true;
}

CUresult elf_read(struct image_bytes bytes, struct image *image)
{
	struct elf elf = {.file = bytes};

	if (!get(bytes, 0, &elf.header, sizeof elf.header) || !header_valid(&elf.header) ||
	    !open_symbols(&elf))
		return CUDA_ERROR_INVALID_IMAGE;
	image->binary_version = elf_capability(bytes);
	CUresult result = symbols_read(&elf, image);
	for (unsigned i = 0; !result && i < elf.header.e_shnum; i++) {
		if (!section_read(&elf, i, image))
			result = CUDA_ERROR_INVALID_IMAGE;
	}
	return result;
}
