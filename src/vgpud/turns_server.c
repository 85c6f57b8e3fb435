/*
 * How a client proves its slice. It sends a descriptor of the slice's region, opened for reading
 * and writing. vgpud looks for the file of that descriptor among the regions of the machine's
 * slices. A slice that is younger than the last look is found by listing the slices again,
 * LISTS_A_SECOND times a second at most. A client that is refused asks again.
 *
 * How clients are limited. vgpud neither receives messages nor closes connections itself
 * (turns_reader.h). A client that sends nothing, or stays after its answer, is ended after
 * PATIENCE, or when the table is full, the oldest first. A client that sends anything but a
 * request is ended at once. A user has USER_MOST connections at once, and PEER_MOST of one PID
 * namespace.
 *
 * A client that never reads the descriptor that it was given keeps it in flight. The kernel lets a
 * user have as many of these as the limit of open files. vgpud cannot take the descriptor back. So
 * such a client keeps its place in the table. A tenant with TENANT_MOST of these places gets no
 * further file. By writing into its regions, a tenant can have MADE_MOST files made for GPUs of
 * which NVML does not tell (MIG instances).
 */
#include "turns_server.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "hash.h"
#include "prom.h"
#include "say.h"
#include "sys.h"
#include "turn_offer.h"

#define AT_ONCE        64 /* events, and connections accepted, in one turns_server_run */
#define PATIENCE_NS    NS_PER_S
#define LISTS_A_SECOND 4
#define TENANT_MOST    64 /* enough for the processes of a job that all begin at once */
#define PEER_MOST      (TURNS_CLIENTS_MAX / 4)
#define USER_MOST      (TURNS_CLIENTS_MAX / 2)
#define MADE_MOST      8
#define REFUSED_NS     (600 * NS_PER_S) /* a message of turns_check.c says 10 minutes */

/* -- clients ----------------------------------------------------------------------------------- */

/* Shuts the connection down. The client sees that at once, and can send no more. */
static void end(struct turns_server *server, struct turns_client *client)
{
	if (client->fd < 0 || client->is_ended)
		return;
	shutdown(client->fd, SHUT_RDWR);
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
	client->is_ended = true;
	client->holds_file = false;
}

/* Closes connections that have ended. Returns whether none is left. */
static bool close_ended(struct turns_server *server)
{
	int fds[TURNS_CLIENTS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		if (server->client[i].fd >= 0 && server->client[i].is_ended)
			fds[count++] = server->client[i].fd;
	if (count > 0 && turns_reader_end(&server->reader, fds, count) != 0)
		return false;
	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		if (server->client[i].is_ended)
			server->client[i] = (struct turns_client){.fd = -1};
	return true;
}

static bool is_of_user(const struct turns_client *client, const struct turns_peer *peer)
{
	return client->peer.uid == peer->uid;
}

static bool is_of_peer(const struct turns_client *client, const struct turns_peer *peer)
{
	return is_of_user(client, peer) && client->peer.space == peer->space;
}

static bool is_of_anybody(const struct turns_client *client, const struct turns_peer *peer)
{
	(void)client;
	(void)peer;
	return true;
}

/* If `most` or more of the clients are the peer's, ends the oldest of them that holds no file.
 * Returns whether fewer are left. */
static bool make_room(struct turns_server *server, const struct turns_peer *peer,
		      bool (*is_of)(const struct turns_client *client,
				    const struct turns_peer *peer),
		      unsigned most)
{
	struct turns_client *oldest = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++) {
		struct turns_client *client = &server->client[i];

		if (client->fd < 0 || client->is_ended || !is_of(client, peer))
			continue;
		count++;
		if (!client->holds_file && (!oldest || client->since_ns < oldest->since_ns))
			oldest = client;
	}
	if (count < most)
		return true;
	if (oldest)
		end(server, oldest);
	return oldest != NULL;
}

static struct turns_client *find_place(struct turns_server *server)
{
	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		if (server->client[i].fd < 0)
			return &server->client[i];
	return NULL;
}

/* Returns a free place, for which it may end a client; NULL: there is none at the moment. */
static struct turns_client *place(struct turns_server *server)
{
	struct turns_client *client = find_place(server);

	if (client)
		return client;
	make_room(server, NULL, is_of_anybody, TURNS_CLIENTS_MAX);
	return close_ended(server) ? find_place(server) : NULL;
}

static bool has_read(const struct turns_client *client)
{
	int unread = 0;

	return ioctl(client->fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

/* The number of the tenant's clients that have not read the file that they were given. */
static unsigned unread_of(const struct turns_server *server, uint64_t tenant)
{
	unsigned count = 0;

	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		count += server->client[i].holds_file && server->client[i].tenant == tenant &&
			 !has_read(&server->client[i]);
	return count;
}

/* -- identity ---------------------------------------------------------------------------------- */

/* A number for the tenant of a slice, a user or a container (tenants.h); never 0. */
static uint64_t tenant_of(const struct slices_one *one)
{
	if (!slices_is_of_container(one))
		return (uint64_t)1 << 32 | one->owner;
	return hash_bytes(one->name, one->holder_len) | (uint64_t)1 << 63;
}

/* Whether the message brought the slice's region. A link in its place is not followed, as a
 * tenant can put one there. */
static bool has_region(const struct slices_one *one, const struct turns_message *message)
{
	struct stat of;

	return lstat(one->region_path, &of) == 0 && of.st_ino == message->inode &&
	       of.st_dev == message->device;
}

static const struct slices_one *find_region(const struct slices *slices,
					    const struct turns_message *message)
{
	for (unsigned i = 0; i < slices->count; i++)
		if (has_region(&slices->one[i], message))
			return &slices->one[i];
	return NULL;
}

/* The slice of the last look whose region came with the message, or NULL. It calls lstat() only
 * for a region with the same inode. */
static const struct slices_one *find_seen(const struct overview *overview,
					  const struct turns_message *message)
{
	for (unsigned i = 0; i < overview->count; i++)
		if (overview->slice[i].file_inode == message->inode &&
		    overview->slice[i].file_device == message->device &&
		    has_region(overview->slice[i].one, message))
			return overview->slice[i].one;
	return NULL;
}

/* The tenant of a slice that is younger than the last look, or 0. It lists the slices again. */
static uint64_t find_young(struct turns_server *server, const struct turns_message *message)
{
	const struct slices_one *one;
	struct fault fault = {""};
	struct slices slices;
	uint64_t tenant;

	if (clock_now_ns() < server->lists_next_ns)
		return 0;
	server->lists_next_ns = clock_now_ns() + NS_PER_S / LISTS_A_SECOND;
	if (slices_list(&slices, &fault) != 0)
		return 0;
	one = find_region(&slices, message);
	tenant = one ? tenant_of(one) : 0;
	slices_free(&slices);
	return tenant;
}

/* The tenant whose slice has the region that came with the message; 0: none. */
static uint64_t identify(struct turns_server *server, const struct overview *overview,
			 const struct turns_message *message)
{
	const struct slices_one *one;

	if (!message->may_be_region)
		return 0;
	one = find_seen(overview, message);
	if (!one)
		one = find_region(&overview->slices, message);
	return one ? tenant_of(one) : find_young(server, message);
}

static bool is_gpu(const struct overview *overview, const char *uuid)
{
	for (unsigned i = 0; i < overview->usage.gpu_count; i++)
		if (strcmp(overview->usage.gpu[i].uuid, uuid) == 0)
			return true;
	return false;
}

/* Whether the text has the form of NVIDIA's UUIDs for GPUs and MIG instances. A tenant may
 * write any text into its region, and the UUID is part of a name by which systemd keeps the
 * file. */
static bool is_uuid(const char *uuid)
{
	return (strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0) &&
	       !uuid[strspn(uuid, "-0123456789"
				  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

static bool is_in_a_region(const struct overview *overview, const char *uuid)
{
	for (unsigned i = 0; i < overview->count; i++)
		if (overview_find_device(&overview->slice[i], uuid))
			return true;
	return false;
}

/* The GPU's file, which is made if it is missing. NULL: this tenant must not have it made, or
 * making it failed. */
static struct turns_file *file_for(struct turns_server *server, const struct overview *overview,
				   const char *uuid, uint64_t tenant)
{
	struct turns_file *file = turns_store_find(&server->store, uuid);
	struct fault fault = {""};
	bool is_known;

	if (file)
		return file;
	is_known = is_gpu(overview, uuid);
	if (!is_known && (!is_uuid(uuid) || !is_in_a_region(overview, uuid) ||
			  turns_store_made_by(&server->store, tenant) >= MADE_MOST))
		return NULL;
	file = turns_store_get(&server->store, uuid, is_known ? 0 : tenant, &fault);
	if (!file)
		say(LOG_WARNING, "%s", fault.text);
	return file;
}

int turns_server_refuse(struct turns_server *server, struct turns_file *file,
			const struct slices_one *one, struct fault *fault)
{
	struct turns_refused *refused = &server->refusal[server->refusals % TURNS_REFUSED_MAX];
	struct stat of;
	int error = lstat(one->region_path, &of) == 0 ? turns_store_replace(file) : -errno;

	if (error)
		return fault_set(fault, error, "slice %s keeps its turns on %s: %s", one->name,
				 file->uuid, strerror(-error));
	*refused = (struct turns_refused){
		.device = of.st_dev, .inode = of.st_ino, .until_ns = clock_now_ns() + REFUSED_NS};
	snprintf(refused->uuid, sizeof(refused->uuid), "%s", file->uuid);
	server->refusals++;
	return 0;
}

static bool is_refused(const struct turns_server *server, const struct turns_message *message)
{
	uint64_t now_ns = clock_now_ns();

	for (unsigned i = 0; i < TURNS_REFUSED_MAX; i++) {
		const struct turns_refused *refused = &server->refusal[i];

		if (now_ns < refused->until_ns && refused->inode == message->inode &&
		    refused->device == message->device &&
		    strcmp(refused->uuid, message->request.uuid) == 0)
			return true;
	}
	return false;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void send_answer(struct turns_server *server, struct turns_client *client,
			enum turn_offer_kind kind, int passed)
{
	struct turn_offer_answer answer = {
		.magic = TURN_OFFER_MAGIC, .version = VGPU_TURNS_VERSION, .kind = kind};

	client->is_answered = true;
	client->holds_file = passed >= 0;
	client->since_ns = clock_now_ns();
	if (sys_send(client->fd, &answer, sizeof(answer), passed) != 0) {
		end(server, client);
		return;
	}
	if (kind == TURN_OFFER_REFUSED)
		server->refused++;
	else if (kind == TURN_OFFER_SAME)
		server->same++;
	else
		server->given++;
}

static void answer(struct turns_server *server, const struct overview *overview,
		   struct turns_client *client, const struct turns_message *message)
{
	const struct turn_offer_request *request = &message->request;
	uint64_t tenant = identify(server, overview, message);
	struct turns_file *file = NULL;
	int fd;

	client->tenant = tenant;
	if (tenant && !is_refused(server, message) && unread_of(server, tenant) < TENANT_MOST)
		file = file_for(server, overview, request->uuid, tenant);
	if (!file) {
		send_answer(server, client, TURN_OFFER_REFUSED, -1);
		return;
	}
	if (file->device == request->device && file->inode == request->inode) {
		send_answer(server, client, TURN_OFFER_SAME, -1);
		return;
	}
	fd = turns_store_open(file);
	send_answer(server, client, fd < 0 ? TURN_OFFER_REFUSED : TURN_OFFER_FILE, fd);
	if (fd >= 0)
		sys_close(fd);
}

/* The client has sent more or has closed its end after its answer. While the answer is unread,
 * the client keeps its place and counts for its tenant; turns_server_tick ends it later. */
static void hear_more(struct turns_server *server, struct turns_client *client)
{
	if (!client->holds_file || has_read(client))
		end(server, client);
	else
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
}

/* Handles a client's message, or the end of its connection, if one of them has come. */
static void hear(struct turns_server *server, const struct overview *overview,
		 struct turns_client *client)
{
	struct turns_message message;

	if (sys_wait_readable(client->fd, 0) <= 0)
		return;
	if (client->is_answered)
		hear_more(server, client);
	else if (turns_reader_receive(&server->reader, client->fd, &client->peer, &message) != 0 ||
		 message.len == 0) {
		end(server, client);
	} else if (message.len < 0 || !message.has_descriptor ||
		   !turn_offer_is_request(&message.request, (size_t)message.len)) {
		server->garbled++;
		end(server, client);
	} else {
		answer(server, overview, client, &message);
	}
}

/* No connection is accepted until the next tick. */
static void stop_accepting(struct turns_server *server)
{
	server->is_full = true;
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->socket.fd, NULL);
}

static int start_accepting(struct turns_server *server)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = TURNS_CLIENTS_MAX};

	server->is_full = false;
	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->socket.fd, &event) < 0 ? -errno : 0;
}

/* Gives the client a place in the table, even if it is ended at once. */
static void admit(struct turns_server *server, const struct overview *overview,
		  struct turns_client *client, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
				    .data.u32 = (uint32_t)(client - server->client)};
	struct turns_peer peer = turns_reader_peer(fd);
	bool has_room = make_room(server, &peer, is_of_peer, PEER_MOST) &&
			make_room(server, &peer, is_of_user, USER_MOST);

	*client = (struct turns_client){.fd = fd, .since_ns = clock_now_ns(), .peer = peer};
	if (!has_room || epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		end(server, client);
	else
		hear(server, overview, client); /* an honest client has sent its request */
}

/* Accepts one connection. Returns false if there is none, or no place for it. */
static bool accept_one(struct turns_server *server, const struct overview *overview)
{
	struct turns_client *client = place(server);
	int fd;

	if (!client) {
		stop_accepting(server);
		return false;
	}
	fd = accept4(server->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		admit(server, overview, client, fd);
	return fd >= 0;
}

void turns_server_run(struct turns_server *server, const struct overview *overview)
{
	struct epoll_event events[AT_ONCE];
	int count = server->socket.fd < 0 ? 0 : epoll_wait(server->epoll, events, AT_ONCE, 0);

	for (int i = 0; i < count; i++) {
		if (events[i].data.u32 < TURNS_CLIENTS_MAX) {
			struct turns_client *client = &server->client[events[i].data.u32];

			if (client->fd >= 0 && !client->is_ended)
				hear(server, overview, client);
			continue;
		}
		for (unsigned n = 0; n < AT_ONCE && accept_one(server, overview); n++)
			;
	}
}

void turns_server_tick(struct turns_server *server)
{
	uint64_t now_ns = clock_now_ns();

	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++) {
		struct turns_client *client = &server->client[i];

		if (client->fd >= 0 && now_ns - client->since_ns >= PATIENCE_NS &&
		    (!client->holds_file || has_read(client)))
			end(server, client);
	}
	turns_reader_tick(&server->reader);
	if (close_ended(server) && server->is_full && server->socket.fd >= 0)
		start_accepting(server);
}

/* -- the socket -------------------------------------------------------------------------------- */

void turns_server_init(struct turns_server *server)
{
	memset(server, 0, sizeof(*server));
	server->socket.fd = server->epoll = -1;
	turns_reader_init(&server->reader);
	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		server->client[i].fd = -1;
}

static bool take_socket(struct turns_server *server, int fd)
{
	if (server->socket.fd >= 0 || !turns_socket_is(fd))
		return false;
	server->socket.fd = fd;
	return true;
}

bool turns_server_take(struct turns_server *server, const char *name, int fd)
{
	size_t prefix = strlen(TURNS_KEPT_NAME);
	bool taken;

	if (strncmp(name, TURNS_KEPT_NAME, prefix) != 0)
		return false;
	taken = strcmp(name, TURNS_SOCKET_NAME) == 0
			? take_socket(server, fd)
			: turns_store_take(&server->store, name + prefix, fd);
	if (taken)
		return true;
	say(LOG_WARNING,
	    "systemd has kept the descriptor \"%s\", which this vgpud cannot use: vgpud closes it",
	    name);
	if (turns_reader_end(&server->reader, &fd, 1) != 0)
		close(fd);
	return true;
}

static int begin(struct turns_server *server)
{
	if (server->epoll < 0)
		server->epoll = epoll_create1(EPOLL_CLOEXEC);
	return server->epoll < 0 ? -errno : start_accepting(server);
}

/* Ends all connections and closes the socket. An ender closes the socket, as connections that
 * were not accepted may have messages too. */
static void end_all(struct turns_server *server)
{
	for (unsigned i = 0; i < TURNS_CLIENTS_MAX; i++)
		end(server, &server->client[i]);
	close_ended(server);
	if (server->socket.fd >= 0 && turns_reader_end(&server->reader, &server->socket.fd, 1) != 0)
		close(server->socket.fd);
	if (server->epoll >= 0)
		close(server->epoll);
	server->socket.fd = server->epoll = -1;
	server->is_full = false;
}

static int listen_at(struct turns_server *server, const char *path)
{
	int error;

	if (server->socket.fd >= 0 && !turns_socket_is_at(&server->socket, path))
		end_all(server);
	if (server->socket.fd < 0) {
		if (turns_socket_is_served(path))
			return -EADDRINUSE;
		server->socket.fd = turns_socket_open(path);
		if (server->socket.fd < 0)
			return server->socket.fd;
		turns_store_keep(TURNS_SOCKET_NAME, server->socket.fd);
	}
	error = turns_socket_note(&server->socket, path);
	return error ? error : begin(server);
}

int turns_server_listen(struct turns_server *server, const char *path, struct fault *fault)
{
	bool in_place = server->epoll >= 0 && turns_socket_is_in_place(&server->socket);
	int error;

	if (in_place && strcmp(server->socket.path, path) == 0)
		return 0;
	if (in_place)
		unlink(server->socket.path);
	if (server->epoll >= 0 || !*path)
		end_all(server);
	if (!*path)
		return 0;
	error = listen_at(server, path);
	if (!error)
		return 0;
	end_all(server);
	return fault_set(fault, error,
			 "no turns are handed out at %.200s: %s; vgpud tries again, and socket "
			 "under turns in vgpud.conf sets another path",
			 path, error == -EADDRINUSE ? "another vgpud does" : strerror(-error));
}

void turns_server_close(struct turns_server *server)
{
	end_all(server);
	turns_reader_close(&server->reader);
	turns_store_close(&server->store);
}

/* -- metrics ----------------------------------------------------------------------------------- */

void turns_server_write(struct text *text, const struct turns_server *server)
{
	static const struct prom_family files = {"vgpud_turns_files", PROM_GAUGE,
						 "GPUs for which vgpud has made a file of turns."};
	static const struct prom_family requests = {
		"vgpud_turns_requests_total", PROM_COUNTER,
		"Requests of programs for a file of turns, by vgpud's answer."};

	prom_begin(text, &files);
	prom_sample(text, &files, "", "", server->store.count);
	prom_begin(text, &requests);
	prom_sample(text, &requests, "", "answer=\"given\"", (double)server->given);
	prom_sample(text, &requests, "", "answer=\"same\"", (double)server->same);
	prom_sample(text, &requests, "", "answer=\"refused\"", (double)server->refused);
	prom_sample(text, &requests, "", "answer=\"none\"", (double)server->garbled);
}
