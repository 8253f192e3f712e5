/* messages.c: whole messages over a stream socket. */
#include "messages.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>

bool send_all(int fd, const void *data, uint64_t size)
{
	const uint8_t *at = data;

	while (size) {
		ssize_t n = send(fd, at, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (uint64_t)n;
	}
	return true;
}

bool recv_all(int fd, void *data, uint64_t size)
{
	uint8_t *at = data;

	while (size) {
		ssize_t n = recv(fd, at, size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (uint64_t)n;
	}
	return true;
}
