/* Fuzzes config_parse: what it accepts must keep what config.h promises, and what it refuses must
 * have a reason. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "config.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_slice(const struct config_slice *slice)
{
	const char *name = strchr(slice->resource, '/');

	check(name && strcmp(name + 1, slice->name) == 0 && slice->name[0]);
	check(!strchr(slice->name, '/') && !strchr(slice->name, ':'));
	check(slice->replicas >= 1 && slice->replicas <= CONFIG_REPLICAS_MAX);
	check(slice->cores_pct <= 100 && slice->memory_bytes <= (uint64_t)1 << 63);
	check(slice->placement <= CONFIG_NUMA && slice->device_count <= VGPU_DEVICES_MAX);
	for (unsigned i = 0; i < slice->device_count; i++)
		check(memchr(slice->device[i], '\0', VGPU_UUID_LEN) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config config;
	struct fault fault = {""};

	if (config_parse("file", (const char *)data, size, &config, &fault)) {
		check(fault.text[0] != '\0');
		return 0;
	}
	check(config.slice_count >= 1 && config.slice_count <= CONFIG_SLICES_MAX);
	for (unsigned i = 0; i < config.slice_count; i++) {
		check_slice(&config.slice[i]);
		for (unsigned j = 0; j < i; j++)
			check(strcmp(config.slice[i].name, config.slice[j].name) != 0);
	}
	check(config.library[0] == '/' && strchr(config.cdi_kind, '/'));
	return 0;
}
