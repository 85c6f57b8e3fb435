/*
 * vgpu needs little of ELF, so it needs no library for it.
 *
 * No offset or size in the file is trusted. All reading uses take, which copies a range that lies
 * within the file, or nothing. A malicious file cannot make a loop run for long. The lengths of
 * names, of the dynamic section and of the list of needed versions are bounded.
 */
#include "elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES_MAX   4096
#define DYNAMIC_MAX      8192  /* entries of a dynamic section; real ones have a few hundred */
#define VERSIONS_MAX     65536 /* needed versions */
#define GLIBC_PREFIX     "GLIBC_2."
#define VGPU_NOTE_OWNER  "vgpu" /* preload/interpose/note.S */
#define VGPU_NOTE_TYPE   1
#define ROUND_UP_4(size) (((uint64_t)(size) + 3) & ~(uint64_t)3)

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#error "what ELF files of this machine have in e_machine is not written yet"
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OUR_ORDER ELFDATA2LSB
#else
#define OUR_ORDER ELFDATA2MSB
#endif

/* -- the file ---------------------------------------------------------------------------------- */

static int map_open(int fd, const char *path, struct elf_file *ret_file, struct fault *fault)
{
	struct elf_file file = {NULL, 0};
	struct stat st;
	void *at;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return fault_set(fault, -EINVAL, "%.300s is not a file", path);
	if (st.st_size > 0) {
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (at == MAP_FAILED)
			return fault_set(fault, -errno, "%.300s cannot be read: %s", path,
					 strerror(errno));
		file = (struct elf_file){at, (size_t)st.st_size};
	}
	*ret_file = file;
	return 0;
}

int elf_map(const char *path, struct elf_file *ret_file, struct fault *fault)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error;

	if (fd < 0)
		return fault_set(fault, -errno, "%.300s cannot be read: %s", path, strerror(errno));
	error = map_open(fd, path, ret_file, fault);
	close(fd);
	return error;
}

void elf_unmap(struct elf_file *file)
{
	if (file->data)
		munmap((void *)file->data, file->size);
	*file = (struct elf_file){NULL, 0};
}

/* Copies len bytes at the offset. False: they do not lie within the file. */
static bool take(const struct elf_file *file, uint64_t offset, void *to, size_t len)
{
	if (len > file->size || offset > file->size - len)
		return false;
	memcpy(to, file->data + offset, len);
	return true;
}

/* Returns the string at the offset. NULL: no NUL is before `end`, or before the end of the
 * file. */
static const char *take_string(const struct elf_file *file, uint64_t offset, uint64_t end)
{
	if (end > file->size)
		end = file->size;
	if (offset >= end)
		return NULL;
	if (end - offset > NAME_BYTES_MAX)
		end = offset + NAME_BYTES_MAX;
	return memchr(file->data + offset, '\0', end - offset) ? (const char *)file->data + offset
							       : NULL;
}

bool elf_contains(const struct elf_file *file, const char *text)
{
	return file->data && memmem(file->data, file->size, text, strlen(text));
}

/* -- segments and the dynamic section ---------------------------------------------------------- */

/* Copies the n-th program header. False: there is none. */
static bool take_segment(const struct elf *elf, unsigned n, Elf64_Phdr *ret_segment)
{
	return n < elf->segment_count && take(&elf->file, elf->segments + n * sizeof(*ret_segment),
					      ret_segment, sizeof(*ret_segment));
}

/* Copies the n-th entry of the dynamic section. False: there is none, or it is the end's. */
static bool take_dynamic(const struct elf *elf, unsigned n, Elf64_Dyn *ret_entry)
{
	return n < elf->dynamic_count &&
	       take(&elf->file, elf->dynamic_at + n * sizeof(*ret_entry), ret_entry,
		    sizeof(*ret_entry)) &&
	       ret_entry->d_tag != DT_NULL;
}

/* Finds the value of the first entry with that tag. */
static bool find_dynamic(const struct elf *elf, Elf64_Sxword tag, uint64_t *ret_value)
{
	Elf64_Dyn entry;

	for (unsigned i = 0; take_dynamic(elf, i, &entry); i++)
		if (entry.d_tag == tag) {
			*ret_value = entry.d_un.d_val;
			return true;
		}
	return false;
}

/* Finds the offset in the file of the byte that the loader puts at that address. */
static bool offset_of(const struct elf *elf, uint64_t address, uint64_t *ret_offset)
{
	Elf64_Phdr segment;

	for (unsigned i = 0; take_segment(elf, i, &segment); i++)
		if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
		    address - segment.p_vaddr < segment.p_filesz) {
			*ret_offset = segment.p_offset + (address - segment.p_vaddr);
			return true;
		}
	return false;
}

/* Finds the offset in the file of the table whose address the dynamic section has at that tag.
 */
static bool find_table(const struct elf *elf, Elf64_Sxword tag, uint64_t *ret_offset)
{
	uint64_t address;

	return find_dynamic(elf, tag, &address) && offset_of(elf, address, ret_offset);
}

/* -- reading ----------------------------------------------------------------------------------- */

/* Notes the segment if it is the interpreter or the dynamic section. False: it is damaged. */
static bool read_segment(struct elf *elf, const Elf64_Phdr *segment)
{
	uint64_t end = segment->p_offset + segment->p_filesz;

	if (segment->p_type != PT_INTERP && segment->p_type != PT_DYNAMIC)
		return true;
	if (end < segment->p_offset || end > elf->file.size)
		return false;
	if (segment->p_type == PT_DYNAMIC) {
		uint64_t count = segment->p_filesz / sizeof(Elf64_Dyn);

		elf->dynamic = true;
		elf->dynamic_at = segment->p_offset;
		elf->dynamic_count = count > DYNAMIC_MAX ? DYNAMIC_MAX : (unsigned)count;
		return true;
	}
	elf->interpreter = take_string(&elf->file, segment->p_offset, end);
	return elf->interpreter != NULL;
}

static int read_segments(struct elf *elf)
{
	Elf64_Phdr segment;
	Elf64_Ehdr header;

	if (!take(&elf->file, 0, &header, sizeof(header)) ||
	    (header.e_phnum > 0 && header.e_phentsize != sizeof(segment)))
		return -EINVAL;
	elf->segments = header.e_phoff;
	elf->segment_count = header.e_phnum;
	for (unsigned i = 0; i < elf->segment_count; i++)
		if (!take_segment(elf, i, &segment) || !read_segment(elf, &segment))
			return -EINVAL;
	if (find_table(elf, DT_STRTAB, &elf->strings_at))
		find_dynamic(elf, DT_STRSZ, &elf->strings_size);
	return 0;
}

int elf_read(const struct elf_file *file, struct elf *ret_elf)
{
	unsigned char id[EI_NIDENT];
	struct elf elf = {.file = *file};
	uint16_t machine;
	int error;

	if (!take(file, 0, id, sizeof(id)) || memcmp(id, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	if (!take(file, offsetof(Elf64_Ehdr, e_machine), &machine, sizeof(machine)) ||
	    (id[EI_CLASS] != ELFCLASS32 && id[EI_CLASS] != ELFCLASS64) ||
	    (id[EI_DATA] != ELFDATA2LSB && id[EI_DATA] != ELFDATA2MSB))
		return -EINVAL;
	elf.bits = id[EI_CLASS] == ELFCLASS64 ? 64 : 32;
	elf.machine = id[EI_DATA] == OUR_ORDER ? machine : __builtin_bswap16(machine);
	elf.ours = elf.bits == 64 && id[EI_DATA] == OUR_ORDER && machine == OUR_MACHINE;
	error = elf.ours ? read_segments(&elf) : 0;
	if (!error)
		*ret_elf = elf;
	return error;
}

const char *elf_machine_name(unsigned machine, char buf[24])
{
	static const struct {
		unsigned machine;
		const char *name;
	} names[] = {{EM_386, "x86"},         {EM_X86_64, "x86-64"}, {EM_ARM, "ARM"},
		     {EM_AARCH64, "AArch64"}, {EM_PPC64, "PPC64"},   {EM_RISCV, "RISC-V"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].machine == machine)
			return names[i].name;
	snprintf(buf, 24, "machine %u", machine);
	return buf;
}

/* -- libraries --------------------------------------------------------------------------------- */

/* Returns the string at that offset of the dynamic section's strings; NULL: there is none. */
static const char *string_at(const struct elf *elf, uint64_t offset)
{
	uint64_t end = elf->strings_at + elf->strings_size;

	if (offset >= elf->strings_size || end < elf->strings_at)
		return NULL;
	return take_string(&elf->file, elf->strings_at + offset, end);
}

const char *elf_needed(const struct elf *elf, unsigned n)
{
	Elf64_Dyn entry;

	for (unsigned i = 0; take_dynamic(elf, i, &entry); i++)
		if (entry.d_tag == DT_NEEDED && n-- == 0)
			return string_at(elf, entry.d_un.d_val);
	return NULL;
}

bool elf_needs(const struct elf *elf, const char *library)
{
	Elf64_Dyn entry;

	for (unsigned i = 0; take_dynamic(elf, i, &entry); i++) {
		const char *name =
			entry.d_tag == DT_NEEDED ? string_at(elf, entry.d_un.d_val) : NULL;

		if (name && strcmp(name, library) == 0)
			return true;
	}
	return false;
}

/* -- symbols ----------------------------------------------------------------------------------- */

static uint64_t count_by_hash(const struct elf *elf, uint64_t at)
{
	uint32_t head[2]; /* numbers of buckets and of chains; each symbol has a chain */

	return take(&elf->file, at, head, sizeof(head)) ? head[1] : 0;
}

/* The last symbol is the last one of the chain with the highest first symbol. */
static uint64_t count_by_gnu_hash(const struct elf *elf, uint64_t at)
{
	uint32_t head[4]; /* buckets, first symbol in them, words and shift of the Bloom filter */
	uint64_t buckets, chains;
	uint32_t last = 0, word;

	if (!take(&elf->file, at, head, sizeof(head)))
		return 0;
	buckets = at + sizeof(head) + (uint64_t)head[2] * sizeof(uint64_t);
	chains = buckets + (uint64_t)head[0] * sizeof(word);
	for (uint32_t i = 0; i < head[0]; i++) {
		if (!take(&elf->file, buckets + (uint64_t)i * sizeof(word), &word, sizeof(word)))
			return 0;
		last = word > last ? word : last;
	}
	if (last < head[1]) /* the file defines no symbol */
		return head[1];
	for (;; last++) {
		if (!take(&elf->file, chains + ((uint64_t)last - head[1]) * sizeof(word), &word,
			  sizeof(word)))
			return 0;
		if (word & 1)
			return (uint64_t)last + 1;
	}
}

static uint64_t count_symbols(const struct elf *elf)
{
	uint64_t at;

	if (find_table(elf, DT_HASH, &at))
		return count_by_hash(elf, at);
	return find_table(elf, DT_GNU_HASH, &at) ? count_by_gnu_hash(elf, at) : 0;
}

/* Calls each(arg, name) for each named symbol that the file defines or, if defined is false,
 * does not define. Stops when `each` returns true. Returns whether it did. */
static bool each_symbol(const struct elf *elf, bool defined,
			bool (*each)(void *arg, const char *name), void *arg)
{
	uint64_t symbols, count = count_symbols(elf);
	Elf64_Sym symbol;

	if (!elf->strings_size || !find_table(elf, DT_SYMTAB, &symbols))
		return false;
	for (uint64_t i = 0; i < count; i++) {
		const char *name;

		if (!take(&elf->file, symbols + i * sizeof(symbol), &symbol, sizeof(symbol)))
			return false;
		if ((symbol.st_shndx != SHN_UNDEF) != defined)
			continue;
		name = string_at(elf, symbol.st_name);
		if (name && *name && each(arg, name))
			return true;
	}
	return false;
}

static bool is_called(void *arg, const char *name)
{
	return strcmp(arg, name) == 0;
}

bool elf_defines(const struct elf *elf, const char *name)
{
	return each_symbol(elf, true, is_called, (char *)name);
}

bool elf_uses(const struct elf *elf, const char *name)
{
	return each_symbol(elf, false, is_called, (char *)name);
}

struct visit {
	void (*each)(void *arg, const char *name);
	void *arg;
};

static bool visit_one(void *arg, const char *name)
{
	const struct visit *visit = arg;

	visit->each(visit->arg, name);
	return false;
}

void elf_each_defined(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg)
{
	struct visit visit = {each, arg};

	each_symbol(elf, true, visit_one, &visit);
}

void elf_each_used(const struct elf *elf, void (*each)(void *arg, const char *name), void *arg)
{
	struct visit visit = {each, arg};

	each_symbol(elf, false, visit_one, &visit);
}

/* -- versions ---------------------------------------------------------------------------------- */

/* Returns x of "GLIBC_2.x"; 0: the version has another form. */
static unsigned minor_of(const char *version)
{
	unsigned minor = 0;

	if (!version || strncmp(version, GLIBC_PREFIX, strlen(GLIBC_PREFIX)) != 0)
		return 0;
	for (version += strlen(GLIBC_PREFIX); *version >= '0' && *version <= '9'; version++)
		if (minor < 1000)
			minor = minor * 10 + (unsigned)(*version - '0');
	return minor;
}

/* Returns the highest x of the GLIBC_2.x that the file needs of one library. `at`: the offset
 * of the first version. *left: how many versions may still be read. */
static unsigned newest_of(const struct elf *elf, uint64_t at, unsigned *left)
{
	unsigned newest = 0;
	Elf64_Vernaux version;

	for (; *left > 0 && take(&elf->file, at, &version, sizeof(version)); --*left) {
		unsigned minor = minor_of(string_at(elf, version.vna_name));

		newest = minor > newest ? minor : newest;
		if (!version.vna_next)
			break;
		at += version.vna_next;
	}
	return newest;
}

unsigned elf_glibc_minor(const struct elf *elf)
{
	unsigned newest = 0, left = VERSIONS_MAX;
	Elf64_Verneed library;
	uint64_t at;

	if (!find_table(elf, DT_VERNEED, &at))
		return 0;
	for (; left > 0 && take(&elf->file, at, &library, sizeof(library)); left--) {
		unsigned minor = newest_of(elf, at + library.vn_aux, &left);

		newest = minor > newest ? minor : newest;
		if (!library.vn_next || !left)
			break;
		at += library.vn_next;
	}
	return newest;
}

/* -- the note ---------------------------------------------------------------------------------- */

bool elf_vgpu_note(const void *notes, size_t size, char *buf, size_t len)
{
	const struct elf_file part = {notes, size};
	Elf64_Nhdr note;

	for (uint64_t at = 0; take(&part, at, &note, sizeof(note));) {
		uint64_t owner = at + sizeof(note), text = owner + ROUND_UP_4(note.n_namesz);
		const char *name = take_string(&part, owner, owner + note.n_namesz);
		const char *version = take_string(&part, text, text + note.n_descsz);

		if (note.n_type == VGPU_NOTE_TYPE && name && version &&
		    strcmp(name, VGPU_NOTE_OWNER) == 0) {
			snprintf(buf, len, "%s", version);
			return true;
		}
		at = text + ROUND_UP_4(note.n_descsz);
	}
	return false;
}

bool elf_vgpu_version(const struct elf *elf, char *buf, size_t len)
{
	Elf64_Phdr segment;

	for (unsigned i = 0; take_segment(elf, i, &segment); i++)
		if (segment.p_type == PT_NOTE && segment.p_offset <= elf->file.size &&
		    segment.p_filesz <= elf->file.size - segment.p_offset &&
		    elf_vgpu_note(elf->file.data + segment.p_offset, segment.p_filesz, buf, len))
			return true;
	return false;
}
