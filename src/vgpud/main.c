/*
 * vgpud looks at a node's GPUs and slices once a second and serves what it found. It also hands out
 * the files by which slices take turns. No program depends on it. vgpud only reads regions, and a
 * program keeps the file that it has and asks for one with a short time limit. So vgpud may be
 * killed, stopped or started at any time.
 *
 * It has one thread and one loop over poll(2), which waits for the HTTP server, the socket for
 * turns, signals, and a timer. Each look is reported to systemd's watchdog. So if a look hangs
 * in the driver, systemd kills vgpud and starts it again.
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "listener.h"
#include "pressure.h"
#include "say.h"
#include "secrets.h"
#include "server.h"
#include "signals.h"
#include "turns_check.h"
#include "turns_server.h"
#include "watch.h"

#define FILES_MOST 4096 /* open files */

enum exit_status { EXIT_CONFIG = 1, EXIT_USAGE = 2, EXIT_FAILED = 125 };

enum { POLL_SIGNAL, POLL_TIMER, POLL_SERVER, POLL_TURNS, POLLS };

struct vgpud {
	const char *config_path;
	bool config_named; /* the command line names the file, so it must exist */
	struct config config;
	struct watch watch;
	int handed_over; /* systemd's HTTP socket, or -1: config.listen says where */
	int listener;    /* the HTTP socket in use: handed_over or vgpud's own, or -1 */
	struct server *server;
	struct turns_server turns;
	struct fault turns_said; /* the last logged reason why vgpud hands out no turns */
	struct pressure pressure;
	int signals, timer;
	bool ends;
};

/* -- serving ----------------------------------------------------------------------------------- */

static bool is_local(const struct vgpud *vgpud, const struct config *config)
{
	return vgpud->handed_over >= 0 ? listener_is_local(vgpud->handed_over)
				       : listener_address_is_local(config->listen);
}

static int check(const struct vgpud *vgpud, const struct config *config,
		 struct secrets *ret_secrets, struct fault *fault)
{
	int error = 0;

	if (vgpud->handed_over < 0 && *config->listen)
		error = listener_check(config->listen, fault);
	if (!error && (vgpud->handed_over >= 0 || *config->listen))
		error = secrets_suffice(
			config, vgpud->handed_over >= 0 ? "systemd's socket" : config->listen,
			is_local(vgpud, config), fault);
	return error ? error : secrets_read(config, ret_secrets, fault);
}

/* Logs the socket's address. For port 0, the kernel has chosen the port. */
static void say_address(int listener, bool tls)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char host[64] = "?", port[16] = "?";

	if (getsockname(listener, (struct sockaddr *)&address, &len) < 0)
		return;
	if (address.ss_family == AF_UNIX)
		say(LOG_INFO, "serves /metrics on a Unix socket");
	else if (getnameinfo((struct sockaddr *)&address, len, host, sizeof(host), port,
			     sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		say(LOG_INFO, "serves %s://%s%s%s:%s/metrics", tls ? "https" : "http",
		    address.ss_family == AF_INET6 ? "[" : "", host,
		    address.ss_family == AF_INET6 ? "]" : "", port);
}

/* Writes the answer to /metrics; arg is the struct vgpud. */
static void write_metrics(struct text *text, void *arg)
{
	struct vgpud *vgpud = arg;

	watch_write(text, &vgpud->watch);
	turns_server_write(text, &vgpud->turns);
	turns_check_write(text, &vgpud->turns);
	pressure_write(text, &vgpud->pressure);
}

/* Starts the server on a copy of vgpud->listener, which stays open for the next server. */
static int serve(struct vgpud *vgpud, const struct config *config, const struct secrets *secrets,
		 struct fault *fault)
{
	struct server_settings settings = {
		.listener = dup(vgpud->listener),
		.connections = config->connections,
		.client_connections = config->client_connections,
		.timeout_s = config->timeout_s,
		.certificate = secrets->certificate,
		.key = secrets->key,
		.token = secrets->token,
		.write = write_metrics,
		.arg = vgpud,
	};

	vgpud->server = server_start(&settings, fault);
	if (!vgpud->server)
		return -EIO;
	say_address(vgpud->listener, secrets->key != NULL);
	return 0;
}

static int open_listener(struct vgpud *vgpud, const struct config *config, struct fault *fault)
{
	if (vgpud->handed_over >= 0 || !*config->listen)
		vgpud->listener = vgpud->handed_over;
	else
		vgpud->listener = listener_open(config->listen, fault);
	return vgpud->listener >= 0 || !*config->listen ? 0 : vgpud->listener;
}

static void close_listener(const struct vgpud *vgpud, int listener)
{
	if (listener >= 0 && listener != vgpud->handed_over)
		close(listener);
}

static int start_serving(struct vgpud *vgpud, const struct config *config,
			 const struct secrets *secrets, struct fault *fault)
{
	int error = vgpud->listener < 0 ? open_listener(vgpud, config, fault) : 0;

	if (!error && vgpud->listener >= 0)
		error = serve(vgpud, config, secrets, fault);
	return error;
}

static void stop_serving(struct vgpud *vgpud)
{
	server_stop(vgpud->server);
	vgpud->server = NULL;
}

/* Opens the socket for turns if it is missing. Without it, slices take turns by files in a
 * directory. A fault that lasts is logged once. */
static void serve_turns(struct vgpud *vgpud)
{
	struct fault fault = {""};

	turns_server_listen(&vgpud->turns, vgpud->config.socket, &fault);
	if (!say_changed(&vgpud->turns_said, fault.text))
		return;
	if (*fault.text)
		say(LOG_WARNING, "%s", fault.text);
	else
		say(LOG_NOTICE, "hands out turns again");
}

/* -- reloading --------------------------------------------------------------------------------- */

/* Stops the server and starts it by the new configuration. On failure the listener is the old
 * one, and there is no server. */
static int move_server(struct vgpud *vgpud, const struct config *config,
		       const struct secrets *secrets, struct fault *fault)
{
	bool moves = strcmp(config->listen, vgpud->config.listen) != 0;
	int before = vgpud->listener, error;

	stop_serving(vgpud);
	if (moves)
		vgpud->listener = -1;
	error = start_serving(vgpud, config, secrets, fault);
	if (moves)
		close_listener(vgpud, error ? vgpud->listener : before);
	if (error)
		vgpud->listener = before;
	return error;
}

/* Takes the new configuration over. On failure it fills fault and keeps the old configuration,
 * but the server may have been stopped. */
static int reload_to(struct vgpud *vgpud, struct config *config, struct fault *fault)
{
	struct secrets secrets = {NULL, NULL, NULL};
	int error = check(vgpud, config, &secrets, fault);

	if (!error)
		error = watch_configure(&vgpud->watch, config, fault);
	if (!error) {
		error = move_server(vgpud, config, &secrets, fault);
		if (error)
			watch_configure(&vgpud->watch, &vgpud->config, NULL);
	}
	secrets_free(&secrets);
	if (error)
		return error;
	config_free(&vgpud->config);
	vgpud->config = *config;
	vgpud->watch.config = &vgpud->config; /* *config is the caller's variable */
	serve_turns(vgpud);
	return 0;
}

/* Starts the server again by the old configuration, after a reload that failed. */
static void serve_as_before(struct vgpud *vgpud)
{
	struct secrets secrets = {NULL, NULL, NULL};
	struct fault fault = {""};

	if (vgpud->server || vgpud->listener < 0)
		return;
	if (check(vgpud, &vgpud->config, &secrets, &fault) ||
	    serve(vgpud, &vgpud->config, &secrets, &fault))
		say(LOG_ERR, "/metrics is not served any more: %s", fault.text);
	secrets_free(&secrets);
}

static void reload(struct vgpud *vgpud)
{
	struct config config = {0};
	struct fault fault = {""};
	int error;

	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   (unsigned long long)(clock_now_ns() / NS_PER_US));
	error = config_load(vgpud->config_path, vgpud->config_named, &config, &fault);
	if (!error)
		error = reload_to(vgpud, &config, &fault);
	if (error) {
		say(LOG_ERR, "keeps its present settings: %s", fault.text);
		config_free(&config);
		serve_as_before(vgpud);
	} else {
		say(LOG_NOTICE, "has read %s again", vgpud->config_path);
	}
	sd_notify(0, "READY=1");
}

/* -- the loop ---------------------------------------------------------------------------------- */

static void on_signal(struct vgpud *vgpud)
{
	struct signalfd_siginfo info;

	if (read(vgpud->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP)
		reload(vgpud);
	else
		vgpud->ends = true;
}

static void look(struct vgpud *vgpud)
{
	watch_look(&vgpud->watch);
	turns_check_look(&vgpud->turns, &vgpud->watch.overview, &vgpud->watch.track,
			 &vgpud->watch.events);
	pressure_look(&vgpud->pressure, &vgpud->watch.overview, &vgpud->turns,
		      &vgpud->watch.events);
	if (vgpud->server)
		server_renew(vgpud->server);
	sd_notify(0, "WATCHDOG=1");
}

static void on_timer(struct vgpud *vgpud)
{
	uint64_t count;

	if (read(vgpud->timer, &count, sizeof(count)) != sizeof(count))
		return;
	look(vgpud);
	if (vgpud->server)
		server_tick(vgpud->server);
	turns_server_tick(&vgpud->turns);
	serve_turns(vgpud);
}

static void loop(struct vgpud *vgpud)
{
	while (!vgpud->ends) {
		struct pollfd polls[POLLS] = {
			[POLL_SIGNAL] = {.fd = vgpud->signals, .events = POLLIN},
			[POLL_TIMER] = {.fd = vgpud->timer, .events = POLLIN},
			[POLL_SERVER] = {.fd = vgpud->server ? server_fd(vgpud->server) : -1,
					 .events = POLLIN},
			[POLL_TURNS] = {.fd = vgpud->turns.epoll, .events = POLLIN},
		};

		if (poll(polls, POLLS, vgpud->server ? server_wait_ms(vgpud->server) : -1) < 0)
			continue;
		if (vgpud->server)
			server_run(vgpud->server);
		if (polls[POLL_TURNS].revents)
			turns_server_run(&vgpud->turns, &vgpud->watch.overview);
		if (polls[POLL_TIMER].revents)
			on_timer(vgpud);
		if (polls[POLL_SIGNAL].revents)
			on_signal(vgpud);
	}
}

/* Raises the limit of open files, as many clients of turns_server.c may hold connections. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_MOST)
		return;
	limit.rlim_cur = limit.rlim_max < FILES_MOST ? limit.rlim_max : FILES_MOST;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_timer(void)
{
	struct itimerspec each_second = {{1, 0}, {1, 0}};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd >= 0)
		timerfd_settime(fd, 0, &each_second, NULL);
	return fd;
}

/* -- starting ---------------------------------------------------------------------------------- */

static int fail(int status, const struct fault *fault)
{
	say(LOG_ERR, "%s", fault->text);
	return status;
}

/* Takes the descriptors that systemd hands over. They are a listening socket for HTTP, and the
 * socket and files of turns that an earlier vgpud had it keep. */
static int take_descriptors(struct vgpud *vgpud, struct fault *fault)
{
	char **names = NULL;
	int count = sd_listen_fds_with_names(1, &names), error = 0;

	for (int i = 0; i < count; i++) {
		int fd = SD_LISTEN_FDS_START + i;

		if (!turns_server_take(&vgpud->turns, names ? names[i] : "", fd)) {
			if (vgpud->handed_over >= 0 ||
			    sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
				error = -EINVAL;
			vgpud->handed_over = fd;
		}
		if (names)
			free(names[i]);
	}
	free(names);
	if (error)
		return fault_set(fault, error,
				 "systemd hands over more than one socket for HTTP, or one that "
				 "does not listen: write one ListenStream= in vgpud.socket");
	return 0;
}

static int run(struct vgpud *vgpud, const struct secrets *secrets)
{
	struct fault fault = {""};

	raise_limit();
	vgpud->signals = signals_open(true);
	vgpud->timer = open_timer();
	if (vgpud->signals < 0 || vgpud->timer < 0) {
		fault_set(&fault, -errno, "vgpud cannot start: %s", strerror(errno));
		return fail(EXIT_FAILED, &fault);
	}
	if (watch_open(&vgpud->watch, &vgpud->config, &fault))
		return fail(EXIT_FAILED, &fault);
	look(vgpud);
	if (start_serving(vgpud, &vgpud->config, secrets, &fault))
		return fail(EXIT_FAILED, &fault);
	serve_turns(vgpud);
	sd_notify(0, "READY=1");
	loop(vgpud);
	sd_notify(0, "STOPPING=1");
	stop_serving(vgpud);
	close_listener(vgpud, vgpud->listener);
	pressure_end(&vgpud->pressure, &vgpud->turns);
	turns_server_close(&vgpud->turns);
	watch_close(&vgpud->watch);
	return 0;
}

static int start(struct vgpud *vgpud, bool only_check)
{
	struct secrets secrets = {NULL, NULL, NULL};
	struct fault fault = {""};
	int status = 0;

	if (!only_check && take_descriptors(vgpud, &fault))
		return fail(EXIT_CONFIG, &fault);
	if (config_load(vgpud->config_path, vgpud->config_named, &vgpud->config, &fault) ||
	    check(vgpud, &vgpud->config, &secrets, &fault))
		status = fail(EXIT_CONFIG, &fault);
	else if (!only_check)
		status = run(vgpud, &secrets);
	secrets_free(&secrets);
	config_free(&vgpud->config);
	return status;
}

static int help(void)
{
	puts("Usage: vgpud [--config FILE] [--check]\n\n"
	     "Watches a node's GPUs and slices, serves metrics for Prometheus, and hands out the\n"
	     "files by which slices take turns.\n\n"
	     "  --config FILE   its settings, instead of " CONFIG_PATH "\n"
	     "  --check         check the settings and exit\n"
	     "  -h, --help      this text\n"
	     "  -V, --version   the version of vgpud\n\n"
	     "Exit status: 0 on success; 1 if the settings are wrong; 2 if the command line is;\n"
	     "125 if vgpud failed.\n\n"
	     "vgpud(8) says more.");
	return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	static struct vgpud vgpud = {.config_path = CONFIG_PATH, .handed_over = -1, .listener = -1};
	bool only_check = false;
	int option;

	turns_server_init(&vgpud.turns);
	while ((option = getopt_long(argc, argv, "hV", options, NULL)) >= 0)
		switch (option) {
		case 'c':
			vgpud.config_path = optarg;
			vgpud.config_named = true;
			break;
		case 'k':
			only_check = true;
			break;
		case 'h':
			return help();
		case 'V':
			puts("vgpud " VGPU_VERSION);
			return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
		default:
			return EXIT_USAGE;
		}
	if (optind < argc) {
		say(LOG_ERR,
		    "there is no argument \"%s\": vgpud takes only options, see vgpud --help",
		    argv[optind]);
		return EXIT_USAGE;
	}
	return start(&vgpud, only_check);
}
