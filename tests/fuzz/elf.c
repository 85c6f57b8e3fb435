/*
 * Fuzzes elf_read and what can be asked of a file that it takes: nothing outside the file is
 * touched, what is handed out lies within it and ends there, and nothing takes long.
 */
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "elf_file.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const struct elf_file *file, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	check(at >= file->data && at < file->data + file->size);
	check(memchr(at, '\0', (size_t)(file->data + file->size - at)) != NULL);
}

static void check_name(void *arg, const char *name)
{
	check_string(arg, name);
}

static void ask(const struct elf *elf)
{
	char version[16];
	const char *name;
	unsigned count = 0;

	if (elf->interpreter)
		check_string(&elf->file, elf->interpreter);
	while ((name = elf_needed(elf, count))) {
		check_string(&elf->file, name);
		check(elf_needs(elf, name));
		count++;
	}
	check(elf->ours || (count == 0 && !elf->interpreter && !elf->dynamic));
	elf_defines(elf, "cuInit");
	elf_uses(elf, "dlsym");
	elf_each_defined(elf, check_name, (void *)&elf->file);
	elf_each_used(elf, check_name, (void *)&elf->file);
	elf_glibc_minor(elf);
	if (elf_vgpu_version(elf, version, sizeof(version)))
		check(strlen(version) < sizeof(version));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_file file = {data, size};
	struct elf elf;
	int error = elf_read(&file, &elf);

	check(error == 0 || error == -ENOEXEC || error == -EINVAL);
	if (error == 0)
		ask(&elf);
	elf_contains(&file, "libcuda.so");
	return 0;
}
