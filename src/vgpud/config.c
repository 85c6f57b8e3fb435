/*
 * The format is libconfig's. It has groups, types, and errors with their line, and neither Debian
 * 12 nor Ubuntu 24.04 has a TOML library for C. libconfig accepts any names and types. The table
 * below has the settings that exist, with their types and ranges.
 */
#include "config.h"

#include <errno.h>
#include <libconfig.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pod_cgroup.h"
#include "pod_logs.h"
#include "size.h"
#include "slice.h"

#define LIST_MAX 64 /* entries */

/* The type of a member of struct config: char *, unsigned, bool, uint64_t, char **. */
enum kind { TEXT, NUMBER, FLAG, SIZE, LIST };

struct row {
	const char *group, *name;
	/* the default of TEXT and SIZE, the only entry of a LIST's; NULL: where programs
	 * look for the socket */
	const char *text;
	size_t at; /* offset in struct config */
	enum kind kind;
	unsigned number;      /* of NUMBER and FLAG: the default */
	unsigned least, most; /* of NUMBER */
};

#define AT(member) offsetof(struct config, member)

static const struct row rows[] = {
	{"metrics", "listen", "127.0.0.1:9742", AT(listen), TEXT, 0, 0, 0},
	{"metrics", "tls_certificate", "", AT(tls_certificate), TEXT, 0, 0, 0},
	{"metrics", "tls_key", "", AT(tls_key), TEXT, 0, 0, 0},
	{"metrics", "token_file", "", AT(token_file), TEXT, 0, 0, 0},
	{"metrics", "connections", NULL, AT(connections), NUMBER, 32, 1, 1000},
	{"metrics", "client_connections", NULL, AT(client_connections), NUMBER, 8, 1, 1000},
	{"metrics", "timeout", NULL, AT(timeout_s), NUMBER, 10, 1, 300},
	{"metrics", "hami", NULL, AT(hami), FLAG, true, 0, 0},
	{"metrics", "pods", POD_LOGS_DIR, AT(pods), TEXT, 0, 0, 0},
	{"metrics", "containers", POD_CGROUP_LINKS_DIR, AT(containers), TEXT, 0, 0, 0},
	{"turns", "socket", NULL, AT(socket), TEXT, 0, 0, 0},
	{"events", "file", "", AT(events_file), TEXT, 0, 0, 0},
	{"events", "journal", NULL, AT(events_journal), FLAG, true, 0, 0},
	{"audit", "excess", "512M", AT(audit_excess_bytes), SIZE, 0, 0, 0},
	{"audit", "end_outside", NULL, AT(audit_end_outside), FLAG, false, 0, 0},
	{"audit", "end_excess", NULL, AT(audit_end_excess), FLAG, false, 0, 0},
	{"audit", "grace", NULL, AT(audit_grace_s), NUMBER, 30, 1, 86400},
	{"audit", "allow", "/usr/lib/xorg/Xorg", AT(audit_allow), LIST, 0, 0, 0},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void *member(struct config *config, const struct row *row)
{
	return (char *)config + row->at;
}

/* -- values ------------------------------------------------------------------------------------ */

static int keep_text(struct config *config, const struct row *row, const char *text)
{
	char **at = member(config, row), *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*at);
	*at = copy;
	return 0;
}

static void free_list(char **list)
{
	for (char **at = list; at && *at; at++)
		free(*at);
	free(list);
}

static int keep_list(struct config *config, const struct row *row, const char *const *texts,
		     unsigned count)
{
	char **list = calloc(count + 1, sizeof(*list)), ***at = member(config, row);

	for (unsigned i = 0; list && i < count; i++) {
		list[i] = strdup(texts[i]);
		if (!list[i]) {
			free_list(list);
			list = NULL;
		}
	}
	if (!list)
		return -ENOMEM;
	free_list(*at);
	*at = list;
	return 0;
}

static int set_default(struct config *config, const struct row *row)
{
	switch (row->kind) {
	case TEXT:
		return keep_text(config, row, row->text ? row->text : slice_socket_path());
	case LIST:
		return keep_list(config, row, &row->text, 1);
	case SIZE:
		return size_parse(row->text, member(config, row));
	case FLAG:
		*(bool *)member(config, row) = row->number;
		break;
	case NUMBER:
		*(unsigned *)member(config, row) = row->number;
		break;
	}
	return 0;
}

static int set_defaults(struct config *config)
{
	int error = 0;

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; !error && i < ROWS; i++)
		error = set_default(config, &rows[i]);
	return error;
}

static int read_text(struct config *config, const struct row *row, const config_setting_t *setting,
		     const char *path, struct fault *fault)
{
	if (config_setting_type(setting) == CONFIG_TYPE_STRING)
		return keep_text(config, row, config_setting_get_string(setting));
	return fault_set(fault, -EINVAL, "%.200s, line %u: %s is no text: write it in quotes", path,
			 config_setting_source_line(setting), row->name);
}

static int read_flag(struct config *config, const struct row *row, const config_setting_t *setting,
		     const char *path, struct fault *fault)
{
	if (config_setting_type(setting) == CONFIG_TYPE_BOOL) {
		*(bool *)member(config, row) = config_setting_get_bool(setting);
		return 0;
	}
	return fault_set(fault, -EINVAL, "%.200s, line %u: %s is neither true nor false", path,
			 config_setting_source_line(setting), row->name);
}

static int read_number(struct config *config, const struct row *row,
		       const config_setting_t *setting, const char *path, struct fault *fault)
{
	long long number =
		config_setting_get_int64(setting); /* 0 if the setting has another type */

	if ((config_setting_type(setting) == CONFIG_TYPE_INT ||
	     config_setting_type(setting) == CONFIG_TYPE_INT64) &&
	    number >= row->least && number <= row->most) {
		*(unsigned *)member(config, row) = (unsigned)number;
		return 0;
	}
	return fault_set(fault, -EINVAL,
			 "%.200s, line %u: %s is no number from %u to %u: write one", path,
			 config_setting_source_line(setting), row->name, row->least, row->most);
}

static int read_size(struct config *config, const struct row *row, const config_setting_t *setting,
		     const char *path, struct fault *fault)
{
	if (config_setting_type(setting) == CONFIG_TYPE_STRING &&
	    size_parse(config_setting_get_string(setting), member(config, row)) == 0)
		return 0;
	return fault_set(fault, -EINVAL,
			 "%.200s, line %u: %s is no size: write one in quotes, such as \"512M\"",
			 path, config_setting_source_line(setting), row->name);
}

static int read_list(struct config *config, const struct row *row, const config_setting_t *setting,
		     const char *path, struct fault *fault)
{
	const char *texts[LIST_MAX];
	int count = config_setting_length(setting);
	bool good = config_setting_is_array(setting) && count <= LIST_MAX;

	for (int i = 0; good && i < count; i++) {
		texts[i] = config_setting_get_string_elem(setting, i);
		good = texts[i] != NULL;
	}
	if (good)
		return keep_list(config, row, texts, (unsigned)count);
	return fault_set(fault, -EINVAL,
			 "%.200s, line %u: %s is no list of up to %d texts: write one such as "
			 "[\"/usr/bin/a\", \"/usr/bin/b\"]",
			 path, config_setting_source_line(setting), row->name, LIST_MAX);
}

/* -- settings ---------------------------------------------------------------------------------- */

static int read_setting(struct config *config, const char *group, const config_setting_t *setting,
			const char *path, struct fault *fault)
{
	static int (*const readers[])(struct config * config, const struct row *row,
				      const config_setting_t *setting, const char *path,
				      struct fault *fault) = {[TEXT] = read_text,
							      [NUMBER] = read_number,
							      [FLAG] = read_flag,
							      [SIZE] = read_size,
							      [LIST] = read_list};
	const char *name = config_setting_name(setting);

	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].group, group) == 0 && strcmp(rows[i].name, name) == 0)
			return readers[rows[i].kind](config, &rows[i], setting, path, fault);
	return fault_set(
		fault, -EINVAL,
		"%.200s, line %u: there is no setting \"%.60s\" in %s: vgpud(8) lists them", path,
		config_setting_source_line(setting), name, group);
}

static bool is_group(const config_setting_t *setting)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].group, config_setting_name(setting)) == 0)
			return config_setting_is_group(setting);
	return false;
}

static int read_group(struct config *config, const config_setting_t *group, const char *path,
		      struct fault *fault)
{
	int error = 0;

	if (!is_group(group))
		return fault_set(fault, -EINVAL,
				 "%.200s, line %u: \"%.60s\" is no group of settings: vgpud(8) "
				 "lists them",
				 path, config_setting_source_line(group),
				 config_setting_name(group));
	for (int i = 0; !error && i < config_setting_length(group); i++)
		error = read_setting(config, config_setting_name(group),
				     config_setting_get_elem(group, (unsigned)i), path, fault);
	return error;
}

/* -- the file ---------------------------------------------------------------------------------- */

static int read_all(config_t *library, FILE *file, const char *path, struct config *config,
		    struct fault *fault)
{
	const config_setting_t *root;
	int error = set_defaults(config);

	if (!error && file && config_read(library, file) != CONFIG_TRUE)
		return fault_set(fault, -EINVAL, "%.200s, line %d: %s: vgpud(8) has examples", path,
				 config_error_line(library), config_error_text(library));
	root = config_root_setting(library);
	for (int i = 0; !error && i < config_setting_length(root); i++)
		error = read_group(config, config_setting_get_elem(root, (unsigned)i), path, fault);
	return error == -ENOMEM ? fault_set(fault, error, "there is no memory to read %.200s", path)
				: error;
}

int config_load(const char *path, bool must_exist, struct config *ret_config, struct fault *fault)
{
	FILE *file = fopen(path, "re");
	struct config config;
	config_t library;
	int error = errno;

	if (!file && (error != ENOENT || must_exist))
		return fault_set(fault, -error, "%.200s cannot be read: %s", path, strerror(error));
	config_init(&library);
	error = read_all(&library, file, path, &config, fault);
	config_destroy(&library);
	if (file)
		fclose(file);
	if (error)
		config_free(&config);
	else
		*ret_config = config;
	return error;
}

void config_free(struct config *config)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].kind == TEXT)
			free(*(char **)member(config, &rows[i]));
		else if (rows[i].kind == LIST)
			free_list(*(char ***)member(config, &rows[i]));
	memset(config, 0, sizeof(*config));
}
