/*
 * vgpu-dra is the driver by which Kubernetes' Dynamic Resource Allocation gives parts of a
 * node's GPUs to claims. It has one thread and one loop. A request to the API server blocks the
 * loop. Calls of the kubelet are answered after it, and the kubelet calls again where that is
 * too late.
 *
 * vgpu-dra may be killed at any time: containers continue without it, as their limits are
 * files, and the kubelet repeats calls that were not answered.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "directory.h"
#include "env.h"
#include "methods.h"
#include "options.h"
#include "publish.h"
#include "say.h"
#include "signals.h"
#include "sweep.h"
#include "users.h"

enum exit_status { EXIT_USAGE = 2, EXIT_FAILED = 125 };

#define DRIVER      "gpu.vgpu.dev"
#define KUBELET_DIR "/var/lib/kubelet"
#define LOOK_MS     1000
#define SWEEP_S     300 /* seconds */
#define PATH_LEN    256

struct options {
	const char *node, *kubelet_dir, *state, *regions, *cdi, *library;
	struct api_settings api;
	unsigned sweep_s;
};

/* A socket that is served. If its file is removed, it is made again. */
struct service {
	char path[PATH_LEN];
	const struct grpc_method *methods;
	void *arg;
	struct grpc_server *server;
	struct fault said;
};

struct driver {
	struct options options;
	struct gpus gpus;
	struct loop *loop;
	struct loop_watch signals, timer;
	struct service dra, registration;
	struct methods_registration registered;
	struct prepare prepare;
	struct publish publish;
	struct sweep sweep;
	struct users users;
	char pods_socket[PATH_LEN];
	int status; /* the program's exit status */
};

/* -- the loop's functions ---------------------------------------------------------------------- */

static void on_signal(void *arg, uint32_t events)
{
	struct driver *driver = arg;
	struct signalfd_siginfo info;

	(void)events;
	if (read(driver->signals.fd, &info, sizeof(info)) == sizeof(info))
		loop_end(driver->loop);
}

/* Serves the socket if it is not served. Returns whether it is served now. */
static bool serve(struct loop *loop, struct service *service)
{
	struct fault fault = {""};
	char dir[PATH_LEN];

	if (service->server && grpc_server_is_there(service->server))
		return true;
	grpc_server_stop(service->server);
	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(service->path, '/') - service->path),
		 service->path);
	service->server =
		directory_make_all(dir, 0750, &fault)
			? NULL
			: grpc_serve(loop, service->path, service->methods, service->arg, &fault);
	if (say_changed(&service->said, fault.text) && *fault.text)
		say(LOG_WARNING, "the kubelet cannot reach vgpu-dra yet: %s", fault.text);
	return service->server != NULL;
}

/* The kubelet calls at the driver's socket as soon as it sees the registration's, so that comes
 * second. */
static void on_timer(void *arg, uint32_t events)
{
	struct driver *driver = arg;

	(void)events;
	loop_timer_read(driver->timer.fd);
	if (prepare_is_lost(&driver->prepare)) {
		say(LOG_ERR,
		    "a directory of claims was removed while it is mounted here: vgpu-dra ends, "
		    "and makes a new one when it is started again. See --state, --regions and "
		    "--cdi");
		driver->status = EXIT_FAILED;
		loop_end(driver->loop);
		return;
	}
	if (serve(driver->loop, &driver->dra))
		serve(driver->loop, &driver->registration);
	if (gpus_look(&driver->gpus))
		publish_soon(&driver->publish);
	publish_look(&driver->publish);
	sweep_look(&driver->sweep);
	users_look(&driver->users);
}

/* The kubelet may have deleted the node's ResourceSlices when it started. */
static void on_registered(void *arg)
{
	struct driver *driver = arg;

	publish_soon(&driver->publish);
}

/* -- starting ---------------------------------------------------------------------------------- */

static int open_watches(struct driver *driver)
{
	int error;

	driver->loop = loop_new();
	if (!driver->loop)
		return -errno;
	driver->signals = (struct loop_watch){signals_open(false), on_signal, driver};
	driver->timer = (struct loop_watch){loop_timer(1, LOOK_MS), on_timer, driver};
	if (driver->signals.fd < 0 || driver->timer.fd < 0)
		return -EMFILE;
	error = loop_add(driver->loop, &driver->signals);
	return error ? error : loop_add(driver->loop, &driver->timer);
}

static void set_services(struct driver *driver)
{
	const char *dir = driver->options.kubelet_dir;

	snprintf(driver->dra.path, PATH_LEN, "%s/plugins/" DRIVER "/dra.sock", dir);
	driver->dra.methods = methods_dra;
	driver->dra.arg = &driver->prepare;
	driver->registered =
		(struct methods_registration){DRIVER, driver->dra.path, on_registered, driver};
	snprintf(driver->registration.path, PATH_LEN, "%s/plugins_registry/" DRIVER "-reg.sock",
		 dir);
	driver->registration.methods = methods_registration;
	driver->registration.arg = &driver->registered;
}

static void set_users(struct driver *driver)
{
	snprintf(driver->pods_socket, PATH_LEN, "%s/pod-resources/kubelet.sock",
		 driver->options.kubelet_dir);
	driver->users = (struct users){.loop = driver->loop,
				       .socket = driver->pods_socket,
				       .places = &driver->prepare.places};
	driver->prepare.users = &driver->users;
}

static int begin(struct driver *driver, struct fault *fault)
{
	const struct options *options = &driver->options;
	struct api_server *server = api_server_open(&options->api, fault);
	int error;

	driver->publish = (struct publish){
		.server = server, .gpus = &driver->gpus, .driver = DRIVER, .node = options->node};
	driver->prepare.server = server;
	driver->prepare.gpus = &driver->gpus;
	driver->prepare.driver = DRIVER;
	driver->prepare.node = options->node;
	driver->sweep = (struct sweep){.prepare = &driver->prepare, .period_s = options->sweep_s};
	if (!server)
		return -EINVAL;
	error = prepare_open(&driver->prepare, options->state, options->regions, options->cdi,
			     options->library, fault);
	if (error)
		return error;
	set_services(driver);
	error = open_watches(driver);
	set_users(driver);
	return error ? fault_set(fault, error, "cannot start: %s", strerror(-error)) : 0;
}

/* The ResourceSlice stays, as the driver may return soon. The kubelet deletes the
 * ResourceSlices of a driver that does not return. */
static void end(struct driver *driver)
{
	grpc_server_stop(driver->registration.server);
	grpc_server_stop(driver->dra.server);
	users_end(&driver->users);
	if (driver->loop)
		loop_free(driver->loop);
	sweep_end(&driver->sweep);
	prepare_close(&driver->prepare);
	api_server_close(driver->publish.server);
	gpus_close(&driver->gpus);
}

static int run(struct driver *driver)
{
	static const struct xids_ignored ignored;
	struct fault fault = {""};
	int error = gpus_open(&driver->gpus, &ignored, &fault);

	if (!error)
		error = begin(driver, &fault);
	if (error)
		say(LOG_ERR, "%s", fault.text);
	else
		loop_run(driver->loop);
	end(driver);
	return error ? EXIT_FAILED : driver->status;
}

/* -- the command line -------------------------------------------------------------------------- */

static int help(void)
{
	puts("Usage: vgpu-dra [OPTION]...\n\n"
	     "Gives parts of a node's GPUs to ResourceClaims: Kubernetes' Dynamic Resource\n"
	     "Allocation, as the driver " DRIVER ".\n\n"
	     "  --node NAME        the node's name, instead of the variable NODE_NAME\n"
	     "  --server URL       the API server, instead of the one in a pod's environment\n"
	     "  --token FILE       the token for the API server, instead of\n"
	     "                     " API_TOKEN "\n"
	     "  --ca FILE          certificates to trust, instead of\n"
	     "                     " API_CA "\n"
	     "  --kubelet DIR      the kubelet's directory, instead of " KUBELET_DIR "\n"
	     "  --state DIR        where claims' policies are, instead of " CLAIMS_STATE "\n"
	     "  --regions DIR      where claims' regions are, instead of " CLAIMS_REGIONS "\n"
	     "  --cdi DIR          where container runtimes look for CDI devices, instead of\n"
	     "                     " PREPARE_CDI "\n"
	     "  --cdi-kind KIND    GPUs are the CDI devices KIND=UUID; without it NVIDIA's "
	     "runtime\n"
	     "                     gets their UUIDs\n"
	     "  --library FILE     libvgpu.so, instead of\n"
	     "                     " VGPU_LIBDIR "/vgpu/libvgpu.so\n"
	     "  --turns DIR        a directory by which all claims take turns on a GPU\n"
	     "  --sweep SECONDS    how often the API server is asked for claims that are gone: "
	     "300\n"
	     "  -h, --help         this text\n"
	     "  -V, --version      the version of vgpu-dra\n\n"
	     "Exit status: 0 on success; 2 if the command line is wrong;\n"
	     "125 if vgpu-dra failed.\n\n"
	     "vgpu-dra(8) says more.");
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

/* Whether the name is one that a node can have, so that it is safe in a path of the API
 * server. */
static bool is_node_name(const char *name)
{
	return name && *name && strlen(name) < CLAIM_NAME_LEN - sizeof(DRIVER) &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == strlen(name);
}

static int check(const struct options *options)
{
	if (!is_node_name(options->node)) {
		say(LOG_ERR, "the node's name is missing, or not one that Kubernetes allows: "
			     "write --node NAME");
		return EXIT_USAGE;
	}
	if (strlen(options->kubelet_dir) > 48) {
		say(LOG_ERR, "--kubelet \"%s\" is too long for the path of a socket",
		    options->kubelet_dir);
		return EXIT_USAGE;
	}
	return 0;
}

static int print_version(void)
{
	puts("vgpu-dra " VGPU_VERSION);
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

/* Takes an option and its optarg. Returns the exit status to end with, or -1: the program
 * continues. */
static int take(struct driver *driver, int option)
{
	struct options *options = &driver->options;
	const struct text_option texts[] = {
		{"--node", &options->node, 'n', false},
		{"--server", &options->api.url, 's', false},
		{"--token", &options->api.token, 't', false},
		{"--ca", &options->api.ca, 'a', false},
		{"--kubelet", &options->kubelet_dir, 'k', true},
		{"--state", &options->state, 'p', true},
		{"--regions", &options->regions, 'r', true},
		{"--cdi", &options->cdi, 'c', true},
		{"--library", &options->library, 'l', false},
		{"--cdi-kind", &driver->prepare.cdi_kind, 'd', false},
		{"--turns", &driver->prepare.turns, 'u', true},
	};
	enum options_taken taken =
		options_take_text(texts, sizeof(texts) / sizeof(texts[0]), option, optarg);

	if (taken != OPTIONS_OTHER)
		return taken == OPTIONS_BAD ? EXIT_USAGE : -1;
	switch (option) {
	case 'w':
		return options_read_seconds("--sweep", optarg, &options->sweep_s) ? -1 : EXIT_USAGE;
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
		{"node", required_argument, NULL, 'n'},
		{"server", required_argument, NULL, 's'},
		{"token", required_argument, NULL, 't'},
		{"ca", required_argument, NULL, 'a'},
		{"kubelet", required_argument, NULL, 'k'},
		{"state", required_argument, NULL, 'p'},
		{"regions", required_argument, NULL, 'r'},
		{"cdi", required_argument, NULL, 'c'},
		{"cdi-kind", required_argument, NULL, 'd'},
		{"library", required_argument, NULL, 'l'},
		{"turns", required_argument, NULL, 'u'},
		{"sweep", required_argument, NULL, 'w'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	static struct driver driver = {
		.options = {NULL,
			    KUBELET_DIR,
			    CLAIMS_STATE,
			    CLAIMS_REGIONS,
			    PREPARE_CDI,
			    VGPU_LIBDIR "/vgpu/libvgpu.so",
			    {NULL, API_TOKEN, API_CA},
			    SWEEP_S},
	};
	int option;

	driver.options.node = env_get("NODE_NAME");
	while ((option = getopt_long(argc, argv, "hV", options, NULL)) >= 0) {
		int status = take(&driver, option);

		if (status >= 0)
			return status;
	}
	if (optind < argc) {
		say(LOG_ERR, "there is no argument \"%s\": see vgpu-dra --help", argv[optind]);
		return EXIT_USAGE;
	}
	return check(&driver.options) ? EXIT_USAGE : run(&driver);
}
