/*
 * libyaml parses the text into a tree of nodes. Each mapping has a table of its keys here, with
 * a function for each key. A key that is in no table, or appears twice, is an error, so that a
 * mistyped limit is not ignored.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "policy.h"
#include "size.h"

#define FILE_MAX  (64 * 1024) /* bytes */
#define UNLIMITED "unlimited"

/* The document that is read, and the destinations of its settings and faults. */
struct reader {
	const char *file;
	yaml_document_t document;
	struct config *config;
	struct fault *fault;
};

struct key {
	const char *name;
	int (*set)(struct reader *reader, const yaml_node_t *node, void *into);
};

/* -- nodes ------------------------------------------------------------------------------------- */

static int fail(const struct reader *reader, const yaml_node_t *node, const char *cure)
{
	return fault_set(reader->fault, -EINVAL, "%s, line %zu: %s", reader->file,
			 node->start_mark.line + 1, cure);
}

/* The text of a scalar; NULL: the node is no scalar, or has a NUL. */
static const char *text_of(const yaml_node_t *node)
{
	const char *text;

	if (node->type != YAML_SCALAR_NODE)
		return NULL;
	text = (const char *)node->data.scalar.value;
	return strlen(text) == node->data.scalar.length ? text : NULL;
}

static int bad_value(const struct reader *reader, const yaml_node_t *node, const char *cure)
{
	const char *text = text_of(node);

	return fault_set(reader->fault, -EINVAL, "%s, line %zu: \"%.60s\" %s", reader->file,
			 node->start_mark.line + 1, text ? text : "…", cure);
}

static int set_key(struct reader *reader, const struct key *keys, const yaml_node_pair_t *pair,
		   uint64_t *seen, void *into)
{
	const yaml_node_t *key = yaml_document_get_node(&reader->document, pair->key);
	const yaml_node_t *value = yaml_document_get_node(&reader->document, pair->value);
	const char *name = text_of(key);

	for (unsigned i = 0; name && keys[i].name; i++) {
		if (strcmp(keys[i].name, name) != 0)
			continue;
		if (*seen & (uint64_t)1 << i)
			return bad_value(reader, key, "appears twice");
		*seen |= (uint64_t)1 << i;
		return keys[i].set(reader, value, into);
	}
	return bad_value(reader, key, "is no setting here: vgpu-device-plugin(8) has them all");
}

static int read_mapping(struct reader *reader, const yaml_node_t *node, const struct key *keys,
			void *into)
{
	uint64_t seen = 0;
	int error = 0;

	if (node->type != YAML_MAPPING_NODE)
		return fail(reader, node, "settings are expected here, as in \"name: value\"");
	for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
	     !error && pair < node->data.mapping.pairs.top; pair++)
		error = set_key(reader, keys, pair, &seen, into);
	return error;
}

/* Calls set for each entry of a sequence. */
static int read_sequence(struct reader *reader, const yaml_node_t *node,
			 int (*set)(struct reader *reader, const yaml_node_t *entry, void *into),
			 void *into)
{
	int error = 0;

	if (node->type != YAML_SEQUENCE_NODE)
		return fail(reader, node, "a list is expected here");
	for (const yaml_node_item_t *item = node->data.sequence.items.start;
	     !error && item < node->data.sequence.items.top; item++)
		error = set(reader, yaml_document_get_node(&reader->document, *item), into);
	return error;
}

static int read_flag(struct reader *reader, const yaml_node_t *node, void *into)
{
	const char *text = text_of(node);
	bool *flag = into;

	if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
		return bad_value(reader, node, "is neither true nor false");
	*flag = strcmp(text, "true") == 0;
	return 0;
}

/* -- values ------------------------------------------------------------------------------------ */

static int keep_path(struct reader *reader, const yaml_node_t *node, char *path, size_t len)
{
	const char *text = text_of(node);

	if (!text || *text != '/' || strlen(text) >= len)
		return bad_value(reader, node, "is no absolute path, or too long");
	snprintf(path, len, "%s", text);
	return 0;
}

/* Whether the word has 1 to max letters, digits, "-", "." and "_", with a letter or digit at
 * both ends. */
static bool is_word(const char *word, size_t len, size_t max)
{
	if (len == 0 || len > max || !isalnum((unsigned char)word[0]) ||
	    !isalnum((unsigned char)word[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)word[i]) && !strchr("-._", word[i]))
			return false;
	return true;
}

static int set_name(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node), *name = text ? strchr(text, '/') : NULL;

	if (!name || !is_word(text, (size_t)(name - text), 128) ||
	    !is_word(name + 1, strlen(name + 1), CONFIG_NAME_LEN - 1))
		return bad_value(reader, node,
				 "is no name of a resource: write one such as "
				 "vgpu.dev/slice-8g-30c");
	snprintf(slice->resource, sizeof(slice->resource), "%s", text);
	snprintf(slice->name, sizeof(slice->name), "%s", name + 1);
	return 0;
}

/* Whether a size has no unit, or one that ends with "i". Others are refused, as Kubernetes' G
 * is a power of 10, and a policy's is a power of 2. */
static bool is_binary(const char *text)
{
	size_t len = strlen(text);

	return len && (isdigit((unsigned char)text[len - 1]) || text[len - 1] == 'i');
}

static int set_memory(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node);

	if (text && strcmp(text, UNLIMITED) == 0)
		return 0;
	if (!text || !is_binary(text) || size_parse(text, &slice->memory_bytes) ||
	    !slice->memory_bytes)
		return bad_value(reader, node,
				 "is no size: write bytes or a number with Ki, Mi or Gi, such as "
				 "8Gi, or " UNLIMITED);
	return 0;
}

static int set_cores(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node);
	struct policy_cores cores;

	if (text && strcmp(text, UNLIMITED) == 0)
		return 0;
	if (!text || strchr(text, '%') || !policy_cores_parse(text, &cores))
		return bad_value(reader, node,
				 "is no percentage: write 1 to 100, or the assured and the largest "
				 "share, such as 30-100, or " UNLIMITED);
	slice->cores_pct = cores.pct;
	slice->cores_most_pct = cores.most_pct;
	return 0;
}

static int set_burst(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node);

	if (!text || !policy_burst_parse(text, &slice->burst_ns))
		return bad_value(reader, node, "is no time up to 1s: write one such as 25ms");
	return 0;
}

static int set_replicas(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node);
	uint64_t count;

	if (!text || number_parse(text, CONFIG_REPLICAS_MAX, &count) || count == 0)
		return bad_value(reader, node, "is no number of replicas: write 1 to 256");
	slice->replicas = (unsigned)count;
	return 0;
}

static int set_placement(struct reader *reader, const yaml_node_t *node, void *into)
{
	static const char *const words[] = {
		[CONFIG_SPREAD] = "spread",
		[CONFIG_PACK] = "pack",
		[CONFIG_SAME_GPU] = "same-gpu",
		[CONFIG_NUMA] = "numa",
	};
	struct config_slice *slice = into;
	const char *text = text_of(node);

	for (unsigned i = 0; text && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(text, words[i]) == 0) {
			slice->placement = (enum config_placement)i;
			return 0;
		}
	return bad_value(reader, node, "is no placement: write spread, pack, same-gpu or numa");
}

static int set_single(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_flag(reader, node, &((struct config_slice *)into)->single);
}

static int add_device(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_slice *slice = into;
	const char *text = text_of(node);
	uint64_t index;

	if (!text || strlen(text) >= VGPU_UUID_LEN ||
	    (strncmp(text, "GPU-", 4) != 0 && number_parse(text, UINT32_MAX, &index)))
		return bad_value(reader, node, "is neither a GPU's index nor its UUID (GPU-…)");
	if (slice->device_count == VGPU_DEVICES_MAX)
		return bad_value(reader, node, "is one GPU too many");
	snprintf(slice->device[slice->device_count++], VGPU_UUID_LEN, "%s", text);
	return 0;
}

static int set_devices(struct reader *reader, const yaml_node_t *node, void *into)
{
	const char *text = text_of(node);

	return text && strcmp(text, "all") == 0 ? 0 : read_sequence(reader, node, add_device, into);
}

/* -- slices ------------------------------------------------------------------------------------ */

static const struct key slice_keys[] = {
	{"name", set_name},
	{"memory", set_memory},
	{"cores", set_cores},
	{"burst", set_burst},
	{"replicas", set_replicas},
	{"devices", set_devices},
	{"placement", set_placement},
	{"failRequestsGreaterThanOne", set_single},
	{NULL, NULL},
};

static bool has_key(struct reader *reader, const yaml_node_t *node, const char *name)
{
	for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
	     pair < node->data.mapping.pairs.top; pair++) {
		const char *key = text_of(yaml_document_get_node(&reader->document, pair->key));

		if (key && strcmp(key, name) == 0)
			return true;
	}
	return false;
}

static int check_slice(struct reader *reader, const yaml_node_t *node,
		       const struct config_slice *slice)
{
	const struct config *config = reader->config;

	if (!has_key(reader, node, "name") || !has_key(reader, node, "memory") ||
	    !has_key(reader, node, "replicas"))
		return fail(reader, node,
			    "a slice needs name, memory and replicas, as in {name: "
			    "vgpu.dev/slice-8g-30c, memory: 8Gi, cores: 30, replicas: 4}");
	for (unsigned i = 0; i < config->slice_count; i++)
		if (strcmp(config->slice[i].name, slice->name) == 0)
			return fail(reader, node,
				    "two slices have the same name, so their devices would too");
	if (slice->memory_bytes > INT64_MAX / slice->replicas)
		return fail(
			reader, node,
			"a container may get all replicas of a GPU, and their memory together is "
			"8 EiB or more: write less memory or fewer replicas");
	return 0;
}

static int add_slice(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config *config = into;
	struct config_slice slice = {.placement = CONFIG_SPREAD};
	int error = read_mapping(reader, node, slice_keys, &slice);

	if (!error)
		error = check_slice(reader, node, &slice);
	if (!error && config->slice_count == CONFIG_SLICES_MAX)
		error = fail(reader, node, "there are 32 kinds of slices at most");
	if (!error)
		config->slice[config->slice_count++] = slice;
	return error;
}

static int set_slices(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_sequence(reader, node, add_slice, into);
}

static int refuse_time_slicing(struct reader *reader, const yaml_node_t *node, void *into)
{
	(void)into;
	return fail(
		reader, node,
		"timeSlicing and mps are settings of NVIDIA's device plugin: write slices, with "
		"memory and cores for each resource");
}

static int set_overcommit(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_flag(reader, node, &((struct config *)into)->overcommit);
}

static const struct key sharing_keys[] = {
	{"slices", set_slices},
	{"overcommit", set_overcommit},
	{"timeSlicing", refuse_time_slicing},
	{"mps", refuse_time_slicing},
	{NULL, NULL},
};

static int set_sharing(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_mapping(reader, node, sharing_keys, into);
}

/* -- flags ------------------------------------------------------------------------------------- */

static int add_list(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config_lists *lists = &((struct config *)into)->lists;
	const struct {
		const char *name;
		bool *flag;
	} words[] = {
		{"envvar", &lists->envvar},
		{"volume-mounts", &lists->volume_mounts},
		{"cdi-cri", &lists->cdi_cri},
		{"cdi-annotations", &lists->cdi_annotations},
	};
	const char *text = text_of(node);

	for (unsigned i = 0; text && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(text, words[i].name) == 0) {
			*words[i].flag = true;
			return 0;
		}
	return bad_value(reader, node,
			 "is no strategy: write envvar, volume-mounts, cdi-cri or "
			 "cdi-annotations");
}

static int set_lists(struct reader *reader, const yaml_node_t *node, void *into)
{
	((struct config *)into)->lists = (struct config_lists){0};
	return node->type == YAML_SEQUENCE_NODE ? read_sequence(reader, node, add_list, into)
						: add_list(reader, node, into);
}

static int set_specs(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_flag(reader, node, &((struct config *)into)->device_specs);
}

static int set_id_strategy(struct reader *reader, const yaml_node_t *node, void *into)
{
	const char *text = text_of(node);

	(void)into;
	return text && strcmp(text, "uuid") == 0
		       ? 0
		       : bad_value(reader, node,
				   "is no strategy: slices belong to UUIDs, so write uuid");
}

static int set_kind(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config *config = into;
	const char *text = text_of(node), *class = text ? strchr(text, '/') : NULL;

	if (!class || !is_word(text, (size_t)(class - text), 63) ||
	    !is_word(class + 1, strlen(class + 1), 63))
		return bad_value(reader, node,
				 "is no kind of CDI devices: write one such as nvidia.com/gpu");
	snprintf(config->cdi_kind, sizeof(config->cdi_kind), "%s", text);
	return 0;
}

static int set_library(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config *config = into;

	return keep_path(reader, node, config->library, sizeof(config->library));
}

static int set_turns(struct reader *reader, const yaml_node_t *node, void *into)
{
	struct config *config = into;

	return keep_path(reader, node, config->turns, sizeof(config->turns));
}

static const struct key plugin_keys[] = {
	{"deviceListStrategy", set_lists},
	{"deviceIDStrategy", set_id_strategy},
	{"passDeviceSpecs", set_specs},
	{"cdiKind", set_kind},
	{"library", set_library},
	{"turns", set_turns},
	{NULL, NULL},
};

static int set_plugin(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_mapping(reader, node, plugin_keys, into);
}

static int set_mig(struct reader *reader, const yaml_node_t *node, void *into)
{
	const char *text = text_of(node);

	(void)into;
	return text && strcmp(text, "none") == 0
		       ? 0
		       : bad_value(reader, node,
				   "is no strategy: GPUs in MIG mode are left out, so write none");
}

static const struct key flag_keys[] = {
	{"migStrategy", set_mig},
	{"plugin", set_plugin},
	{NULL, NULL},
};

static int set_flags(struct reader *reader, const yaml_node_t *node, void *into)
{
	return read_mapping(reader, node, flag_keys, into);
}

/* -- the file ---------------------------------------------------------------------------------- */

static int set_version(struct reader *reader, const yaml_node_t *node, void *into)
{
	const char *text = text_of(node);

	(void)into;
	return text && strcmp(text, "v1") == 0 ? 0
					       : bad_value(reader, node, "is not the version v1");
}

static const struct key top_keys[] = {
	{"version", set_version},
	{"flags", set_flags},
	{"sharing", set_sharing},
	{NULL, NULL},
};

static int read_document(struct reader *reader)
{
	const yaml_node_t *root = yaml_document_get_root_node(&reader->document);
	int error = root ? read_mapping(reader, root, top_keys, reader->config) : 0;

	if (!error && reader->config->slice_count == 0)
		error = fault_set(reader->fault, -EINVAL,
				  "%s: there are no slices: write some below sharing, as in "
				  "slices: [{name: vgpu.dev/slice-8g-30c, memory: 8Gi, cores: 30, "
				  "replicas: 4}]",
				  reader->file);
	return error;
}

int config_parse(const char *name, const char *text, size_t len, struct config *ret_config,
		 struct fault *fault)
{
	struct config config = {
		.lists.envvar = true,
		.cdi_kind = "nvidia.com/gpu",
		.library = VGPU_LIBDIR "/vgpu/libvgpu.so",
	};
	struct reader reader = {.file = name, .config = &config, .fault = fault};
	yaml_parser_t parser;
	int error;

	if (!yaml_parser_initialize(&parser))
		return fault_set(fault, -ENOMEM, "there is no memory to read %s", name);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	if (!yaml_parser_load(&parser, &reader.document)) {
		error = fault_set(fault, -EINVAL, "%s, line %zu: %s", name,
				  parser.problem_mark.line + 1,
				  parser.problem ? parser.problem : "this is no YAML");
	} else {
		error = read_document(&reader);
		yaml_document_delete(&reader.document);
	}
	yaml_parser_delete(&parser);
	if (!error)
		*ret_config = config;
	return error;
}

int config_load(const char *path, struct config *ret_config, struct fault *fault)
{
	char text[FILE_MAX];
	FILE *file = fopen(path, "re");
	size_t len;
	int error;

	if (!file)
		return fault_set(fault, -errno, "cannot read %s: %s", path, strerror(errno));
	len = fread(text, 1, sizeof(text), file);
	error = ferror(file) ? -EIO : 0;
	fclose(file);
	if (error)
		return fault_set(fault, error, "cannot read %s: %s", path, strerror(-error));
	if (len == sizeof(text))
		return fault_set(fault, -EFBIG,
				 "%s is too long for settings: it has 64 KiB or more", path);
	return config_parse(path, text, len, ret_config, fault);
}
