/* The slices for containers that there are, and what they may have, as a table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdi.h"
#include "gpus.h"
#include "size.h"
#include "table.h"

struct finder {
	const struct container_places *places;
	struct cdi_slices *slices;
};

static int add(void *arg, const char *name)
{
	const struct finder *finder = arg;
	struct cdi_slices *slices = finder->slices;
	struct cdi_slice *slice =
		realloc(slices->slice, (slices->count + 1) * sizeof(*slices->slice));
	struct fault fault = {""};

	if (!slice)
		return -ENOMEM;
	slices->slice = slice;
	slice += slices->count;
	*slice = (struct cdi_slice){.why = NULL};
	snprintf(slice->name, sizeof(slice->name), "%s", name);
	container_policy_path(finder->places, name, slice->policy_path);
	container_region_path(finder->places, name, slice->region_path);
	container_spec_path(finder->places, name, slice->spec_path);
	slice->has_spec = access(slice->spec_path, F_OK) == 0;
	if (policy_read(slice->policy_path, &slice->policy, &fault)) {
		slice->why = strdup(fault.text[0] ? fault.text : "it was removed just now");
		if (!slice->why)
			return -ENOMEM;
	}
	slices->count++;
	return 0;
}

static int by_name(const void *left, const void *right)
{
	const struct cdi_slice *one = left, *other = right;

	return strcmp(one->name, other->name);
}

int cdi_find(const struct container_places *places, struct cdi_slices *ret_slices)
{
	struct finder finder = {places, ret_slices};
	int error;

	*ret_slices = (struct cdi_slices){0, NULL};
	error = container_each(places, add, &finder);
	if (error) {
		cdi_free(ret_slices);
		return cli_fail(CLI_FAILED, "%.300s cannot be read: %s", places->policies,
				strerror(-error));
	}
	if (ret_slices->count > 0)
		qsort(ret_slices->slice, ret_slices->count, sizeof(*ret_slices->slice), by_name);
	return 0;
}

void cdi_free(struct cdi_slices *slices)
{
	for (unsigned i = 0; i < slices->count; i++)
		free(slices->slice[i].why);
	free(slices->slice);
	*slices = (struct cdi_slices){0, NULL};
}

/* -- the table --------------------------------------------------------------------------------- */

enum { NAME, GPU, MEMORY, CORES, SPEC, COLUMNS };

static const struct table_column columns[] = {
	[NAME] = {"SLICE", false},         [GPU] = {"GPU", true},
	[MEMORY] = {"MEMORY", true},       [CORES] = {"CORES", true},
	[SPEC] = {"SPECIFICATION", false},
};

/* The GPU's index; its UUID where NVML does not tell. */
static void set_gpu(struct table_cell *cell, const struct gpus *gpus, const char *uuid)
{
	const struct gpu *gpu = gpus_by_uuid(gpus, uuid);

	if (gpu)
		table_set(cell, TABLE_PLAIN, "%u", gpu->index);
	else
		table_set(cell, TABLE_PLAIN, "%s", uuid);
}

static void add_device(struct table *table, const struct cdi_slice *slice, unsigned d,
		       const struct gpus *gpus)
{
	const struct policy_device *device = &slice->policy.device[d];
	struct table_row *row = table_add(table);
	char size[32] = "none", pcts[32];

	if (device->memory_bytes)
		size_format(device->memory_bytes, size, sizeof(size));
	table_set(&row->cell[NAME], TABLE_BOLD, "%s", slice->name);
	set_gpu(&row->cell[GPU], gpus, device->uuid);
	table_set(&row->cell[MEMORY], TABLE_PLAIN, "%s", size);
	if (device->cores_pct)
		table_set(&row->cell[CORES], TABLE_PLAIN, "%s %%",
			  policy_cores_name(device->cores_pct, device->cores_most_pct, pcts,
					    sizeof(pcts)));
	else
		table_set(&row->cell[CORES], TABLE_PLAIN, "none");
	table_set(&row->cell[SPEC], slice->has_spec ? TABLE_PLAIN : TABLE_YELLOW, "%s",
		  slice->has_spec ? slice->spec_path : "none");
}

static void add_unreadable(struct table *table, const struct cdi_slice *slice)
{
	struct table_row *row = table_add(table);

	row->is_text = true;
	table_set(&row->cell[NAME], TABLE_BOLD, "%s", slice->name);
	table_set(&row->cell[GPU], TABLE_RED, "%s", slice->why);
}

int cdi_print(const struct cdi_slices *slices)
{
	struct table table = {.column = columns, .column_count = COLUMNS, .flexible = SPEC};
	struct table_paper paper = table_stdout();
	struct gpus gpus = {.count = 0};

	gpus_find(&gpus, NULL);
	for (unsigned i = 0; i < slices->count; i++) {
		if (slices->slice[i].why)
			add_unreadable(&table, &slices->slice[i]);
		for (unsigned d = 0; d < slices->slice[i].policy.device_count; d++)
			add_device(&table, &slices->slice[i], d, &gpus);
	}
	if (table.row_count > 0)
		table_print(&table, &paper);
	table_free(&table);
	return cli_written(0);
}
