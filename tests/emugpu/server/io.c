/* io.c: whole messages over a stream socket. */
#include "server/server.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

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

bool send_reply(int fd, enum emu_status status, const uint64_t *r, const void *payload,
                uint64_t size)
{
	struct emu_reply reply = {.status = status, .payload = size};

	for (int i = 0; r && i < 5; i++)
		reply.r[i] = r[i];
	return send_all(fd, &reply, sizeof(reply)) && send_all(fd, payload, size);
}
