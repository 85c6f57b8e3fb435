/* Passes a descriptor from one process to another, through a pair of sockets. */
#pragma once

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "check.h"

static inline void pass_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] = {0}, byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	CHECK_EQUAL(sendmsg(socket, &message, 0), 1);
}

static inline int take_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	int fd;

	CHECK_EQUAL(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
	CHECK(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}
