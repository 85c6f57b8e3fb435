#include "table.h"

#include <string.h>

#include "hash.h"
#include "sys.h"

#define CAPACITY_MIN 128

static size_t slot_of(const struct table *table, uint64_t key)
{
	/* Not the lower bits: keys are addresses, whose low bits are alike. */
	return (size_t)(hash_word(key) >> 20) & (table->capacity - 1);
}

/* The key's entry, or the free one where it would go. */
static struct entry *probe(struct table *table, uint64_t key)
{
	size_t i = slot_of(table, key);

	while (table->entries[i].key && table->entries[i].key != key)
		i = (i + 1) & (table->capacity - 1);
	return &table->entries[i];
}

struct entry *table_find(struct table *table, uint64_t key)
{
	struct entry *entry = table->count ? probe(table, key) : NULL;

	return entry && entry->key ? entry : NULL;
}

static bool grow(struct table *table)
{
	struct table bigger = {.capacity = table->capacity ? table->capacity * 2 : CAPACITY_MIN,
			       .count = table->count};
	void *memory;

	if (sys_map_private(bigger.capacity * sizeof(struct entry), &memory) != 0)
		return false;
	bigger.entries = memory;
	for (size_t i = 0; i < table->capacity; i++)
		if (table->entries[i].key)
			*probe(&bigger, table->entries[i].key) = table->entries[i];
	table_clear(table);
	*table = bigger;
	return true;
}

struct entry *table_add(struct table *table, uint64_t key)
{
	struct entry *entry;

	if (table->count * 2 >= table->capacity && !grow(table))
		return NULL;
	entry = probe(table, key);
	*entry = (struct entry){.key = key};
	table->count++;
	return entry;
}

void table_remove(struct table *table, struct entry *entry)
{
	size_t mask = table->capacity - 1, gap = (size_t)(entry - table->entries);

	/* Whatever follows in the same run moves up, unless it would then precede its own slot. */
	for (size_t i = (gap + 1) & mask; table->entries[i].key; i = (i + 1) & mask) {
		size_t home = slot_of(table, table->entries[i].key);

		if (((i - home) & mask) >= ((i - gap) & mask)) {
			table->entries[gap] = table->entries[i];
			gap = i;
		}
	}
	table->entries[gap].key = 0;
	table->count--;
}

/* A removal brings entries of the same run to its place: the walk looks there again. No run reaches
 * over the free place after which the walk begins, so each entry is looked at once. */
void table_remove_if(struct table *table, bool (*matches)(void *arg, const struct entry *entry),
		     void *arg)
{
	size_t mask = table->capacity - 1, first = 0;

	if (!table->count)
		return;
	while (table->entries[first].key)
		first++;
	for (size_t i = 1; i < table->capacity;) {
		struct entry *entry = &table->entries[(first + i) & mask];

		if (entry->key && matches(arg, entry))
			table_remove(table, entry);
		else
			i++;
	}
}

void table_clear(struct table *table)
{
	if (table->entries)
		sys_unmap(table->entries, table->capacity * sizeof(struct entry));
	*table = (struct table){NULL, 0, 0};
}
