/*
 * vgpu-device-plugin offers slices of a node's GPUs to the kubelet. It has one thread and one
 * loop. It may be killed at any time: containers continue without it, as their limits are
 * files, and the next vgpu-device-plugin tells the kubelet again.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "config.h"
#include "containers.h"
#include "in_use.h"
#include "kubelet.h"
#include "names.h"
#include "options.h"
#include "pod_resources.h"
#include "say.h"
#include "signals.h"

enum exit_status { EXIT_CONFIG = 1, EXIT_USAGE = 2, EXIT_FAILED = 125 };

#define HEALTH_MS 2000
#define GRACE_S   300 /* seconds */

struct options {
	const char *config_path, *kubelet_dir, *pods_socket;
	struct containers_places places;
	unsigned grace_s;
	struct xids_ignored ignored;
	bool only_check;
};

struct plugin {
	struct options options;
	struct config config;
	struct gpus gpus;
	struct loop *loop;
	struct loop_watch signals, health;
	struct kubelet *kubelet;
	struct in_use *in_use;
	struct names *names;
	struct resource resource[CONFIG_SLICES_MAX];
	int status; /* the program's exit status */
};

/* -- the loop's functions ---------------------------------------------------------------------- */

static void on_signal(void *arg, uint32_t events)
{
	struct plugin *plugin = arg;
	struct signalfd_siginfo info;

	(void)events;
	if (read(plugin->signals.fd, &info, sizeof(info)) == sizeof(info))
		loop_end(plugin->loop);
}

static void on_health(void *arg, uint32_t events)
{
	struct plugin *plugin = arg;

	(void)events;
	loop_timer_read(plugin->health.fd);
	if (containers_are_lost(&plugin->options.places)) {
		say(LOG_ERR,
		    "%.200s or %.200s was removed while it is mounted here: vgpu-device-plugin "
		    "ends, and makes a new one when it is started again",
		    plugin->options.places.state, plugin->options.places.regions);
		plugin->status = EXIT_FAILED;
		loop_end(plugin->loop);
	}
	containers_remove(&plugin->options.places);
	if (gpus_look(&plugin->gpus))
		kubelet_renew(plugin->kubelet);
}

static void on_pods(void *arg, const struct bytes *ids)
{
	const struct plugin *plugin = arg;
	int removed = containers_sweep(&plugin->options.places, ids, plugin->options.grace_s);

	if (removed > 0)
		say(LOG_INFO, "has removed the directories of %d containers that are gone",
		    removed);
	else if (removed < 0)
		say(LOG_WARNING, "cannot look at %s: %s", plugin->options.places.state,
		    strerror(-removed));
}

static void on_restart(void *arg)
{
	const struct plugin *plugin = arg;

	in_use_forget(plugin->in_use);
}

/* -- starting ---------------------------------------------------------------------------------- */

static int open_watches(struct plugin *plugin)
{
	int error;

	plugin->loop = loop_new();
	if (!plugin->loop)
		return -errno;
	plugin->signals = (struct loop_watch){signals_open(false), on_signal, plugin};
	plugin->health = (struct loop_watch){loop_timer(HEALTH_MS, HEALTH_MS), on_health, plugin};
	if (plugin->signals.fd < 0 || plugin->health.fd < 0)
		return -EMFILE;
	error = loop_add(plugin->loop, &plugin->signals);
	return error ? error : loop_add(plugin->loop, &plugin->health);
}

static int find_devices(struct plugin *plugin, struct fault *fault)
{
	struct config *config = &plugin->config;
	int error = config->overcommit ? 0 : devices_fit(config, &plugin->gpus, fault);

	for (unsigned i = 0; !error && i < config->slice_count; i++) {
		struct resource *resource = &plugin->resource[i];

		resource->config = config;
		resource->places = &plugin->options.places;
		error = devices_find(&config->slice[i], &plugin->gpus, &resource->devices, fault);
		if (!error)
			say(LOG_INFO, "%s: %u of each of %u GPUs", config->slice[i].resource,
			    config->slice[i].replicas, resource->devices.gpu_count);
	}
	return error;
}

static int begin(struct plugin *plugin, struct fault *fault)
{
	const struct options *options = &plugin->options;
	int error = open_watches(plugin);

	if (error)
		return fault_set(fault, error, "cannot start: %s", strerror(-error));
	plugin->in_use = in_use_begin(plugin->loop, options->pods_socket, options->grace_s, on_pods,
				      plugin, fault);
	if (!plugin->in_use)
		return -EIO;
	plugin->names =
		names_begin(plugin->loop, options->pods_socket, options->places.state, fault);
	if (!plugin->names)
		return -EIO;
	for (unsigned i = 0; i < plugin->config.slice_count; i++)
		plugin->resource[i].names = plugin->names;
	plugin->kubelet = kubelet_begin(plugin->loop, options->kubelet_dir, plugin->resource,
					plugin->config.slice_count, on_restart, plugin, fault);
	return plugin->kubelet ? 0 : -EIO;
}

static void end(struct plugin *plugin)
{
	kubelet_end(plugin->kubelet);
	names_end(plugin->names);
	in_use_end(plugin->in_use);
	loop_free(plugin->loop);
	gpus_close(&plugin->gpus);
}

static int fail(int status, const struct fault *fault)
{
	say(LOG_ERR, "%s", fault->text);
	return status;
}

static int run(struct plugin *plugin)
{
	struct fault fault = {""};

	if (gpus_open(&plugin->gpus, &plugin->options.ignored, &fault))
		return fail(EXIT_FAILED, &fault);
	if (find_devices(plugin, &fault))
		plugin->status = fail(EXIT_CONFIG, &fault);
	else if (containers_prepare(&plugin->options.places, plugin->config.library,
				    RESOURCE_LIBRARY, &fault) ||
		 begin(plugin, &fault))
		plugin->status = fail(EXIT_FAILED, &fault);
	else
		loop_run(plugin->loop);
	end(plugin);
	return plugin->status;
}

static int start(struct plugin *plugin)
{
	struct fault fault = {""};

	if (config_load(plugin->options.config_path, &plugin->config, &fault))
		return fail(EXIT_CONFIG, &fault);
	return plugin->options.only_check ? 0 : run(plugin);
}

/* -- the command line -------------------------------------------------------------------------- */

static int help(void)
{
	puts("Usage: vgpu-device-plugin [OPTION]...\n\n"
	     "Offers slices of a node's GPUs to Kubernetes' kubelet.\n\n"
	     "  --config FILE      the settings, instead of " CONFIG_PATH "\n"
	     "  --check            check the settings and exit\n"
	     "  --kubelet DIR      the kubelet's directory of plugins, instead of\n"
	     "                     " KUBELET_DIR "\n"
	     "  --pods SOCKET      the kubelet's socket for pod resources, instead of\n"
	     "                     " POD_RESOURCES_SOCKET "\n"
	     "  --state DIR        where containers' policies are, instead of\n"
	     "                     " CONTAINERS_STATE "\n"
	     "  --regions DIR      where containers' regions are, instead of\n"
	     "                     " CONTAINERS_REGIONS "\n"
	     "  --grace SECONDS    how long a container's directories are kept when no pod\n"
	     "                     has its devices any more: 300\n"
	     "  --ignore-xids LIST errors that leave a GPU healthy, by their numbers as\n"
	     "                     74,119; or all\n"
	     "  -h, --help         this text\n"
	     "  -V, --version      the version of vgpu-device-plugin\n\n"
	     "Exit status: 0 on success; 1 if the settings are wrong; 2 if the command line is;\n"
	     "125 if vgpu-device-plugin failed.\n\n"
	     "vgpu-device-plugin(8) says more.");
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

static bool read_ignored(const char *text, struct xids_ignored *ignored)
{
	bool good = xids_ignore(ignored, text);

	if (!good)
		say(LOG_ERR,
		    "--ignore-xids \"%s\" is no list of XIDs: write numbers with commas, such as "
		    "74,119, or all",
		    text);
	return good;
}

static int print_version(void)
{
	puts("vgpu-device-plugin " VGPU_VERSION);
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

/* Takes an option and its optarg. Returns the exit status to end with, or -1: the program
 * continues. */
static int take(struct options *options, int option)
{
	const struct text_option texts[] = {
		{"--config", &options->config_path, 'c', false},
		{"--kubelet", &options->kubelet_dir, 'k', true},
		{"--pods", &options->pods_socket, 'p', true},
		{"--state", &options->places.state, 's', true},
		{"--regions", &options->places.regions, 'r', true},
	};
	enum options_taken taken =
		options_take_text(texts, sizeof(texts) / sizeof(texts[0]), option, optarg);

	if (taken != OPTIONS_OTHER)
		return taken == OPTIONS_BAD ? EXIT_USAGE : -1;
	switch (option) {
	case 'n':
		options->only_check = true;
		return -1;
	case 'g':
		return options_read_seconds("--grace", optarg, &options->grace_s) ? -1 : EXIT_USAGE;
	case 'x':
		return read_ignored(optarg, &options->ignored) ? -1 : EXIT_USAGE;
	case 'h':
		return help();
	case 'V':
		return print_version();
	default:
		return EXIT_USAGE;
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'n'},
		{"kubelet", required_argument, NULL, 'k'},
		{"pods", required_argument, NULL, 'p'},
		{"state", required_argument, NULL, 's'},
		{"regions", required_argument, NULL, 'r'},
		{"grace", required_argument, NULL, 'g'},
		{"ignore-xids", required_argument, NULL, 'x'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	static struct plugin plugin = {
		.options = {CONFIG_PATH,
			    KUBELET_DIR,
			    POD_RESOURCES_SOCKET,
			    {.state = CONTAINERS_STATE, .regions = CONTAINERS_REGIONS},
			    GRACE_S,
			    {.all = false},
			    false},
	};
	int option;

	while ((option = getopt_long(argc, argv, "hV", options, NULL)) >= 0) {
		int status = take(&plugin.options, option);

		if (status >= 0)
			return status;
	}
	if (optind < argc) {
		say(LOG_ERR, "there is no argument \"%s\": see vgpu-device-plugin --help",
		    argv[optind]);
		return EXIT_USAGE;
	}
	return start(&plugin);
}
