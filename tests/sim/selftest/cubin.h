/*
 * Makes a small cubin, as nvcc for compute capability 9.0 lays one out: a kernel "k" with the
 * parameters (pointer, int, double), 14 registers, 400 bytes of shared memory and 16 of local
 * memory; a variable "zeroes" of 20 bytes and a constant "values" of 8 with the bytes 1 to 8.
 */
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	CUBIN_BYTES_MAX = 4096,
};

struct cubin {
	unsigned char bytes[CUBIN_BYTES_MAX];
	size_t count;
	Elf64_Shdr sections[10];
	unsigned section_count;
	char names[256];
	size_t names_count;
};

static size_t cubin_append(struct cubin *cubin, const void *data, size_t count)
{
	size_t at = cubin->count = (cubin->count + 7) & ~(size_t)7;

	memcpy(cubin->bytes + at, data, count);
	cubin->count += count;
	return at;
}

static unsigned cubin_section(struct cubin *cubin, const char *name, uint32_t type,
			      const void *data, size_t count)
{
	Elf64_Shdr *section = &cubin->sections[cubin->section_count];

	*section = (Elf64_Shdr){.sh_name = (uint32_t)cubin->names_count, .sh_type = type};
	strcpy(cubin->names + cubin->names_count, name);
	cubin->names_count += strlen(name) + 1;
	section->sh_size = count;
	section->sh_offset = type == SHT_NOBITS ? cubin->count : cubin_append(cubin, data, count);
	return cubin->section_count++;
}

/* Makes the cubin for that compute capability (90: 9.0). Returns its length in bytes. */
static inline size_t cubin_make(struct cubin *cubin, unsigned capability)
{
	static const char strings[] = "\0k\0zeroes\0values";
	static const unsigned char values[] = {1, 2, 3, 4, 5, 6, 7, 8};
	static const uint32_t info[] = {0x00082f04, 1, 14, 0x00081104, 1, 16};
	static const uint32_t info_k[] = {0x000c1704, 0, 0x00100002, 0x0021f000,
					  0x000c1704, 0, 0x00080001, 0x0011f000,
					  0x000c1704, 0, 0x00000000, 0x0021f000};
	static const unsigned char text[128];
	Elf64_Sym symbols[4] = {{0}};
	Elf64_Ehdr header = {0};

	memset(cubin, 0, sizeof *cubin);
	cubin->count = sizeof header;
	cubin_section(cubin, "", SHT_NULL, NULL, 0);
	unsigned string_table =
		cubin_section(cubin, ".strtab", SHT_STRTAB, strings, sizeof strings);
	unsigned code = cubin_section(cubin, ".text.k", SHT_PROGBITS, text, sizeof text);
	cubin_section(cubin, ".nv.shared.k", SHT_NOBITS, NULL, 1024 + 400);
	unsigned global = cubin_section(cubin, ".nv.global", SHT_NOBITS, NULL, 20);
	unsigned constant =
		cubin_section(cubin, ".nv.constant3", SHT_PROGBITS, values, sizeof values);
	symbols[1] = (Elf64_Sym){
		1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0x10, (uint16_t)code, 0, sizeof text};
	symbols[2] =
		(Elf64_Sym){3, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, (uint16_t)global, 0, 20};
	symbols[3] = (Elf64_Sym){
		10, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, (uint16_t)constant, 0, sizeof values};
	unsigned table = cubin_section(cubin, ".symtab", SHT_SYMTAB, symbols, sizeof symbols);
	cubin->sections[table].sh_link = string_table;
	cubin_section(cubin, ".nv.info", SHT_LOPROC, info, sizeof info);
	cubin_section(cubin, ".nv.info.k", SHT_LOPROC, info_k, sizeof info_k);
	unsigned names =
		cubin_section(cubin, ".shstrtab", SHT_STRTAB, cubin->names, sizeof cubin->names);
	memcpy(header.e_ident, ELFMAG, SELFMAG);
	header.e_ident[EI_CLASS] = ELFCLASS64;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	header.e_ident[EI_ABIVERSION] = 8;
	header.e_type = ET_EXEC;
	header.e_machine = 190;
	header.e_flags = capability << 8;
	header.e_shentsize = sizeof(Elf64_Shdr);
	header.e_shnum = (uint16_t)cubin->section_count;
	header.e_shstrndx = (uint16_t)names;
	/* The names were not complete when their section was written. */
	memcpy(cubin->bytes + cubin->sections[names].sh_offset, cubin->names, sizeof cubin->names);
	header.e_shoff =
		cubin_append(cubin, cubin->sections, cubin->section_count * sizeof(Elf64_Shdr));
	memcpy(cubin->bytes, &header, sizeof header);
	return cubin->count;
}
