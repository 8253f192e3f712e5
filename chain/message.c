/* message.c: messages between a component and the keeper. */
#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	char space[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

bool message_send(int socket, const void *data, size_t size, int descriptor)
{
	union control control = {0};
	struct iovec part = {(void *)data, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (descriptor >= 0) {
		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &descriptor, sizeof(descriptor));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

bool message_receive(int socket, void *data, size_t size, int *descriptor)
{
	union control control;
	struct iovec part = {data, size};
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = control.space,
	                         .msg_controllen = sizeof(control.space)};
	const struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*descriptor = -1;
	c = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(descriptor, CMSG_DATA(c), sizeof(*descriptor));
	return n == (ssize_t)size;
}
