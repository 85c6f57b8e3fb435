/*
 * Reads the same tables as the dynamic loader: the dynamic section, its symbol and hash tables, and
 * its relocations (System V gABI chapter 5). The layout of the GNU hash table is that of binutils.
 * Every table is mapped and relocated by the time the loader shows the object, so nothing is
 * checked twice.
 */
#include "objects.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys.h"

#define PAGE_MASK ((uintptr_t)sysconf(_SC_PAGESIZE) - 1)

struct walk {
	bool (*each)(void *arg, const struct object *object);
	void *arg;
};

static int walk_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct walk *walk = arg;
	struct object object = {
		.path = info->dlpi_name ? info->dlpi_name : "",
		.base = info->dlpi_addr,
		.segments = info->dlpi_phdr,
		.segment_count = info->dlpi_phnum,
	};

	(void)size;
	for (size_t i = 0; i < object.segment_count; i++)
		if (object.segments[i].p_type == PT_DYNAMIC)
			object.dynamic = (const void *)(object.base + object.segments[i].p_vaddr);
	return object.dynamic && walk->each(walk->arg, &object);
}

bool objects_each(bool (*each)(void *arg, const struct object *object), void *arg)
{
	struct walk walk = {each, arg};

	return dl_iterate_phdr(walk_one, &walk) != 0;
}

struct search {
	const void *address;
	const char *soname;
	struct object *found;
};

static bool holds_address(void *arg, const struct object *object)
{
	struct search *search = arg;
	ElfW(Addr) address = (ElfW(Addr))search->address;

	for (size_t i = 0; i < object->segment_count; i++) {
		const ElfW(Phdr) *segment = &object->segments[i];

		if (segment->p_type == PT_LOAD && address >= object->base + segment->p_vaddr &&
		    address - object->base - segment->p_vaddr < segment->p_memsz) {
			*search->found = *object;
			return true;
		}
	}
	return false;
}

bool objects_containing(const void *address, struct object *ret_object)
{
	struct search search = {.address = address, .found = ret_object};

	return objects_each(holds_address, &search);
}

static bool has_soname(void *arg, const struct object *object)
{
	struct search *search = arg;

	if (strcmp(object_soname(object), search->soname) != 0)
		return false;
	*search->found = *object;
	return true;
}

bool objects_named(const char *soname, struct object *ret_object)
{
	struct search search = {.soname = soname, .found = ret_object};

	return objects_each(has_soname, &search);
}

/* -- the dynamic section -- */

static bool dynamic_value(const struct object *object, ElfW(Sxword) tag, ElfW(Addr) * ret_value)
{
	for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag) {
			*ret_value = entry->d_un.d_val;
			return true;
		}
	return false;
}

/* A table's address. glibc has relocated the entry in place, except in objects whose dynamic
 * section is read-only (the vDSO): there it is still relative. */
static const void *dynamic_table(const struct object *object, ElfW(Sxword) tag)
{
	ElfW(Addr) value;

	if (!dynamic_value(object, tag, &value))
		return NULL;
	return (const void *)(value < object->base ? object->base + value : value);
}

const char *object_soname(const struct object *object)
{
	const char *strings = dynamic_table(object, DT_STRTAB);
	ElfW(Addr) offset;

	return strings && dynamic_value(object, DT_SONAME, &offset) ? strings + offset : "";
}

/* -- symbols -- */

struct symbols {
	const ElfW(Sym) * table;
	const ElfW(Half) * versions; /* NULL when the object has none */
	const char *strings;
};

#define VERSION_HIDDEN 0x8000 /* not the default version of its name */

static bool defines(const struct symbols *symbols, size_t i, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[i];

	return symbol->st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_LOCAL &&
	       !(symbols->versions && symbols->versions[i] & VERSION_HIDDEN) &&
	       strcmp(symbols->strings + symbol->st_name, name) == 0;
}

static size_t find_in_gnu_hash(const struct symbols *symbols, const uint32_t *hash_table,
			       const char *name)
{
	uint32_t bucket_count = hash_table[0], first = hash_table[1], bloom_words = hash_table[2];
	const uint32_t *buckets =
		(const void *)((const ElfW(Addr) *)(hash_table + 4) + bloom_words);
	const uint32_t *chains = buckets + bucket_count;
	uint32_t hash = 5381, i;

	for (const char *p = name; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	i = bucket_count ? buckets[hash % bucket_count] : 0;
	if (i < first)
		return 0;
	for (;; i++) {
		uint32_t link = chains[i - first];

		if ((link | 1) == (hash | 1) && defines(symbols, i, name))
			return i;
		if (link & 1)
			return 0;
	}
}

static size_t find_in_sysv_hash(const struct symbols *symbols, const uint32_t *hash_table,
				const char *name)
{
	uint32_t bucket_count = hash_table[0];
	const uint32_t *buckets = hash_table + 2, *chains = buckets + bucket_count;
	uint32_t hash = 0;

	for (const char *p = name; *p; p++) {
		hash = (hash << 4) + (unsigned char)*p;
		hash = (hash ^ (hash & 0xf0000000) >> 24) & 0x0fffffff;
	}
	for (uint32_t i = bucket_count ? buckets[hash % bucket_count] : 0; i; i = chains[i])
		if (defines(symbols, i, name))
			return i;
	return 0;
}

static struct symbols symbols_of(const struct object *object)
{
	return (struct symbols){
		.table = dynamic_table(object, DT_SYMTAB),
		.versions = dynamic_table(object, DT_VERSYM),
		.strings = dynamic_table(object, DT_STRTAB),
	};
}

void *object_symbol(const struct object *object, const char *name)
{
	struct symbols symbols = symbols_of(object);
	const uint32_t *gnu = dynamic_table(object, DT_GNU_HASH),
		       *sysv = dynamic_table(object, DT_HASH);
	size_t i = 0;

	if (!symbols.table || !symbols.strings)
		return NULL;
	if (gnu)
		i = find_in_gnu_hash(&symbols, gnu, name);
	else if (sysv)
		i = find_in_sysv_hash(&symbols, sysv, name);
	return i ? (void *)(object->base + symbols.table[i].st_value) : NULL;
}

/* -- relocations -- */

/* Slots that hold a function's address: of calls, of pointers taken in code, and in data. */
#if defined(__x86_64__)
#define IS_FUNCTION_SLOT(type) \
	((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_FUNCTION_SLOT(type) \
	((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#error "relocation types of this architecture are not known here"
#endif

/* Whether the loader has write-protected the address after relocating (PT_GNU_RELRO). */
static bool is_relro(const struct object *object, uintptr_t address)
{
	for (size_t i = 0; i < object->segment_count; i++) {
		const ElfW(Phdr) *segment = &object->segments[i];
		uintptr_t start = object->base + segment->p_vaddr;
		uintptr_t end = (start + segment->p_memsz) & ~PAGE_MASK; /* as the loader does */

		if (segment->p_type == PT_GNU_RELRO && address >= start && address < end)
			return true;
	}
	return false;
}

static void store_slot(const struct object *object, void **slot, void *target)
{
	uintptr_t page = (uintptr_t)slot & ~PAGE_MASK;
	bool protected = is_relro(object, (uintptr_t)slot);

	if (*slot == target)
		return;
	if (protected && mprotect((void *)page, PAGE_MASK + 1, PROT_READ | PROT_WRITE) != 0)
		return;
	__atomic_store_n(slot, target, __ATOMIC_RELEASE);
	if (protected)
		mprotect((void *)page, PAGE_MASK + 1, PROT_READ);
}

static void redirect_table(const struct object *object, const ElfW(Rela) * table, size_t size,
			   void *(*choose)(const char *name))
{
	struct symbols symbols = symbols_of(object);

	for (size_t i = 0; table && i < size / sizeof(*table); i++) {
		const ElfW(Sym) *symbol = &symbols.table[ELF64_R_SYM(table[i].r_info)];
		void *target;

		if (!IS_FUNCTION_SLOT(ELF64_R_TYPE(table[i].r_info)) ||
		    symbol->st_shndx != SHN_UNDEF)
			continue;
		target = choose(symbols.strings + symbol->st_name);
		if (target)
			store_slot(object, (void **)(object->base + table[i].r_offset), target);
	}
}

void object_redirect(const struct object *object, void *(*choose)(const char *name))
{
	ElfW(Addr) calls = 0, others = 0;

	dynamic_value(object, DT_PLTRELSZ, &calls);
	dynamic_value(object, DT_RELASZ, &others);
	redirect_table(object, dynamic_table(object, DT_JMPREL), calls, choose);
	redirect_table(object, dynamic_table(object, DT_RELA), others, choose);
}
