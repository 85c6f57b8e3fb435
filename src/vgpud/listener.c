#include "listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "size.h"

#define BACKLOG 64

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

static bool is_local(const union address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	if (address->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
	return address->any.sa_family == AF_UNIX;
}

static bool read_host(const char *host, uint16_t port, union address *ret_address)
{
	size_t len = strlen(host);
	char inner[INET6_ADDRSTRLEN] = "";

	memset(ret_address, 0, sizeof(*ret_address));
	if (inet_pton(AF_INET, host, &ret_address->v4.sin_addr) == 1) {
		ret_address->v4.sin_family = AF_INET;
		ret_address->v4.sin_port = htons(port);
		return true;
	}
	if (host[0] != '[' || host[len - 1] != ']' || len - 2 >= sizeof(inner))
		return false;
	memcpy(inner, host + 1, len - 2);
	if (inet_pton(AF_INET6, inner, &ret_address->v6.sin6_addr) != 1)
		return false;
	ret_address->v6.sin6_family = AF_INET6;
	ret_address->v6.sin6_port = htons(port);
	return true;
}

static int read_address(const char *text, union address *ret_address, struct fault *fault)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	char host[INET6_ADDRSTRLEN + 2];
	uint64_t port;

	if (len > 0 && len < sizeof(host) && number_parse(colon + 1, UINT16_MAX, &port) == 0) {
		memcpy(host, text, len);
		host[len] = '\0';
		if (read_host(host, (uint16_t)port, ret_address))
			return 0;
	}
	return fault_set(fault, -EINVAL,
			 "listen = \"%.100s\" is no address: write one such as 127.0.0.1:9742 or "
			 "[::1]:9742",
			 text);
}

int listener_check(const char *address, struct fault *fault)
{
	union address parsed;

	return read_address(address, &parsed, fault);
}

bool listener_address_is_local(const char *address)
{
	union address parsed;

	return read_address(address, &parsed, NULL) == 0 && is_local(&parsed);
}

bool listener_is_local(int fd)
{
	union address address;
	socklen_t len = sizeof(address);

	return getsockname(fd, &address.any, &len) == 0 && is_local(&address);
}

static int listen_at(int fd, const union address *address)
{
	socklen_t len =
		address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
	int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, &address->any, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

int listener_open(const char *address, struct fault *fault)
{
	union address parsed;
	int error = read_address(address, &parsed, fault), fd;

	if (error)
		return error;
	fd = socket(parsed.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	error = fd < 0 ? -errno : listen_at(fd, &parsed);
	if (!error)
		return fd;
	if (fd >= 0)
		close(fd);
	return fault_set(fault, error, "vgpud cannot listen on %.100s: %s%s", address,
			 strerror(-error),
			 error == -EADDRINUSE ? "; another program does, so write another port "
						"under listen in vgpud.conf"
					      : "; write another address under listen in "
						"vgpud.conf");
}
