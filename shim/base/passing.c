/* passing.c: messages with file descriptors, through sockets of the local machine. */
#include "base/passing.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union control {
	char space[CMSG_SPACE(PASS_MOST * sizeof(int))];
	struct cmsghdr align;
};

bool pass_send(int end, const void *message, size_t size, const int *files, size_t n)
{
	union control control = {0};
	struct iovec data = {(void *)(uintptr_t)message, size};
	struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};

	if (n) {
		header.msg_control = control.space;
		header.msg_controllen = CMSG_SPACE(n * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&control.align), files, n * sizeof(int));
	}
	return sendmsg(end, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

ssize_t pass_receive(int end, void *message, size_t size, int *files, size_t *n)
{
	union control control;
	struct iovec data = {message, size};
	struct msghdr header = {.msg_iov = &data,
	                        .msg_iovlen = 1,
	                        .msg_control = control.space,
	                        .msg_controllen = sizeof(control.space)};
	ssize_t got = recvmsg(end, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&header) : NULL;

	*n = 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(files, CMSG_DATA(c), *n * sizeof(int));
	}
	return got;
}
