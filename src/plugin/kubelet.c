/*
 * A kubelet that starts removes every socket in its directory and makes its own. inotify
 * reports that socket, and each resource is then served and registered again. A look each
 * second covers the other cases: a directory that does not exist, a socket that was removed,
 * and a registration that failed. It also covers a kubelet that has registered a resource and
 * does not ask for the list.
 *
 * The kubelet may call GetDevicePluginOptions before it answers Register. So both are calls in
 * one loop, and neither waits for the other.
 */
#include "kubelet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "clock.h"
#include "say.h"

#define API_VERSION "v1beta1"
#define REGISTER    "/v1beta1.Registration/Register"
#define LOOK_MS     1000
#define CALL_MS     10000
#define UNSEEN_NS \
	(10 * NS_PER_S)       /* a resource that is not listed for that long is registered again */
#define WAIT_NS      NS_PER_S /* after a failure; twice as long after each further one */
#define WAIT_MAX_NS  (32 * NS_PER_S)
#define PATH_LEN     256
#define EVENTS_BYTES 4096
#define MASK         (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF)

struct plugin {
	struct kubelet *kubelet;
	struct resource *resource;
	char endpoint[PATH_LEN]; /* the socket's name in the directory */
	struct grpc_server *server;
	struct grpc_call *call; /* the call of Register, or NULL */
	bool registered;
	uint64_t seen_ns; /* when the kubelet last listed it, or it was registered */
	uint64_t next_ns; /* the next attempt (CLOCK_MONOTONIC) */
	uint64_t wait_ns;
	struct fault said; /* the last logged failure */
};

struct kubelet {
	struct loop *loop;
	const char *dir;
	struct loop_watch inotify, timer;
	int watch; /* inotify's watch of the directory, or -1 */
	unsigned count;
	struct plugin *plugin;
	void (*restarted)(void *arg);
	void *arg;
};

/* -- one resource ------------------------------------------------------------------------------ */

static void path_of(const struct kubelet *kubelet, const char *name, char path[2 * PATH_LEN])
{
	snprintf(path, (size_t)2 * PATH_LEN, "%s/%s", kubelet->dir, name);
}

/* Notes a failure, to be retried later. A failure that lasts is logged once. */
static void fail(struct plugin *plugin, const char *why)
{
	plugin->wait_ns = plugin->wait_ns ? 2 * plugin->wait_ns : WAIT_NS;
	if (plugin->wait_ns > WAIT_MAX_NS)
		plugin->wait_ns = WAIT_MAX_NS;
	plugin->next_ns = clock_now_ns() + plugin->wait_ns;
	if (say_changed(&plugin->said, why))
		say(LOG_WARNING, "%s is not registered yet: %s",
		    plugin->resource->devices.slice->resource, why);
}

static void on_registered(void *arg, enum grpc_status status, struct pb_message answer,
			  const char *why)
{
	struct plugin *plugin = arg;

	(void)answer;
	plugin->call = NULL;
	if (status != GRPC_OK) {
		fail(plugin, why);
		return;
	}
	plugin->registered = true;
	plugin->seen_ns = clock_now_ns();
	plugin->wait_ns = 0;
	say_changed(&plugin->said, "");
	say(LOG_NOTICE, "has registered %s with the kubelet",
	    plugin->resource->devices.slice->resource);
}

static void put_register(struct bytes *request, const struct plugin *plugin)
{
	struct bytes options = {0};

	pb_put_string(request, 1, API_VERSION);
	pb_put_string(request, 2, plugin->endpoint);
	pb_put_string(request, 3, plugin->resource->devices.slice->resource);
	resource_put_options(&options);
	pb_put_message(request, 4, &options);
	bytes_free(&options);
}

static void begin_register(struct plugin *plugin)
{
	char path[2 * PATH_LEN];
	struct fault fault = {""};
	struct bytes request = {0};

	path_of(plugin->kubelet, KUBELET_SOCKET, path);
	put_register(&request, plugin);
	plugin->call = grpc_call(plugin->kubelet->loop, path, REGISTER, &request, CALL_MS,
				 on_registered, plugin, &fault);
	bytes_free(&request);
	if (!plugin->call)
		fail(plugin, fault.text);
}

static bool serve(struct plugin *plugin)
{
	char path[2 * PATH_LEN];
	struct fault fault = {""};

	grpc_server_stop(plugin->server);
	path_of(plugin->kubelet, plugin->endpoint, path);
	plugin->server =
		grpc_serve(plugin->kubelet->loop, path, resource_methods, plugin->resource, &fault);
	plugin->registered = false;
	if (!plugin->server)
		fail(plugin, fault.text);
	return plugin->server != NULL;
}

static void look(struct plugin *plugin)
{
	uint64_t now_ns = clock_now_ns();

	if (plugin->call || now_ns < plugin->next_ns)
		return;
	if ((!plugin->server || !grpc_server_is_there(plugin->server)) && !serve(plugin))
		return;
	if (grpc_server_streams(plugin->server) > 0)
		plugin->seen_ns = now_ns;
	else if (now_ns - plugin->seen_ns > UNSEEN_NS)
		plugin->registered = false;
	if (!plugin->registered)
		begin_register(plugin);
}

static void begin_again(struct plugin *plugin)
{
	grpc_call_cancel(plugin->call);
	plugin->call = NULL;
	plugin->registered = false;
	plugin->next_ns = 0;
	plugin->wait_ns = 0;
}

/* -- the directory ----------------------------------------------------------------------------- */

/* Watches the directory if it is not watched: it may be made, or made again, after this program
 * started. */
static void watch_directory(struct kubelet *kubelet)
{
	if (kubelet->watch < 0)
		kubelet->watch = inotify_add_watch(kubelet->inotify.fd, kubelet->dir, MASK);
}

static void look_at_all(struct kubelet *kubelet)
{
	watch_directory(kubelet);
	for (unsigned i = 0; i < kubelet->count; i++)
		look(&kubelet->plugin[i]);
}

static void on_event(struct kubelet *kubelet, const struct inotify_event *event)
{
	if (event->mask & IN_MOVE_SELF)
		inotify_rm_watch(kubelet->inotify.fd, event->wd);
	if (event->mask & IN_IGNORED)
		kubelet->watch = -1;
	if (!(event->mask & (IN_CREATE | IN_MOVED_TO)) || !event->len ||
	    strcmp(event->name, KUBELET_SOCKET) != 0)
		return;
	say(LOG_NOTICE, "the kubelet was started");
	for (unsigned i = 0; i < kubelet->count; i++)
		begin_again(&kubelet->plugin[i]);
	kubelet->restarted(kubelet->arg);
}

static void on_inotify(void *arg, uint32_t events)
{
	_Alignas(struct inotify_event) char buf[EVENTS_BYTES];
	struct kubelet *kubelet = arg;
	ssize_t len = read(kubelet->inotify.fd, buf, sizeof(buf));

	(void)events;
	for (ssize_t at = 0; at < len;) {
		const struct inotify_event *event = (const struct inotify_event *)(buf + at);

		on_event(kubelet, event);
		at += (ssize_t)(sizeof(*event) + event->len);
	}
	look_at_all(kubelet);
}

static void on_timer(void *arg, uint32_t events)
{
	struct kubelet *kubelet = arg;

	(void)events;
	loop_timer_read(kubelet->timer.fd);
	look_at_all(kubelet);
}

/* -- all of it --------------------------------------------------------------------------------- */

static int open_watches(struct kubelet *kubelet)
{
	int error;

	kubelet->watch = -1;
	kubelet->inotify =
		(struct loop_watch){inotify_init1(IN_CLOEXEC | IN_NONBLOCK), on_inotify, kubelet};
	kubelet->timer = (struct loop_watch){loop_timer(1, LOOK_MS), on_timer, kubelet};
	if (kubelet->inotify.fd < 0)
		return -errno;
	if (kubelet->timer.fd < 0)
		return kubelet->timer.fd;
	error = loop_add(kubelet->loop, &kubelet->inotify);
	if (!error)
		error = loop_add(kubelet->loop, &kubelet->timer);
	watch_directory(kubelet);
	return error;
}

static int set_plugins(struct kubelet *kubelet, struct resource *resources, unsigned count)
{
	kubelet->plugin = calloc(count, sizeof(*kubelet->plugin));
	if (!kubelet->plugin)
		return -ENOMEM;
	kubelet->count = count;
	for (unsigned i = 0; i < count; i++) {
		struct plugin *plugin = &kubelet->plugin[i];

		plugin->kubelet = kubelet;
		plugin->resource = &resources[i];
		snprintf(plugin->endpoint, sizeof(plugin->endpoint), "vgpu-%s.sock",
			 resources[i].devices.slice->name);
	}
	return 0;
}

struct kubelet *kubelet_begin(struct loop *loop, const char *dir, struct resource *resources,
			      unsigned count, void (*restarted)(void *arg), void *arg,
			      struct fault *fault)
{
	struct kubelet *kubelet = calloc(1, sizeof(*kubelet));
	int error = -ENOMEM;

	if (kubelet) {
		kubelet->loop = loop;
		kubelet->dir = dir;
		kubelet->restarted = restarted;
		kubelet->arg = arg;
		error = set_plugins(kubelet, resources, count);
	}
	if (!error)
		error = open_watches(kubelet);
	if (!error)
		return kubelet;
	fault_set(fault, error, "cannot watch %.200s: %s", dir, strerror(-error));
	kubelet_end(kubelet);
	return NULL;
}

static void close_watch(struct kubelet *kubelet, struct loop_watch *watch)
{
	if (!watch->ready || watch->fd < 0)
		return;
	loop_remove(kubelet->loop, watch);
	close(watch->fd);
}

void kubelet_end(struct kubelet *kubelet)
{
	if (!kubelet)
		return;
	for (unsigned i = 0; i < kubelet->count; i++) {
		grpc_call_cancel(kubelet->plugin[i].call);
		grpc_server_stop(kubelet->plugin[i].server);
	}
	close_watch(kubelet, &kubelet->inotify);
	close_watch(kubelet, &kubelet->timer);
	free(kubelet->plugin);
	free(kubelet);
}

void kubelet_renew(struct kubelet *kubelet)
{
	for (unsigned i = 0; i < kubelet->count; i++)
		if (kubelet->plugin[i].server)
			grpc_server_renew(kubelet->plugin[i].server);
}
