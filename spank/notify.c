/* notify.c: one message to the daemon, in C because epilogs should not start Python. */
#include "share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_S 2
#define AGAIN_US 100000

enum outcome { TOLD, NOBODY, WENT_AWAY };

static enum outcome tell(const char *socket_path, const char *text, size_t length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = WAIT_S};
	char reply[256];
	enum outcome outcome = NOBODY;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ssize_t got;

	if (fd < 0)
		return NOBODY;
	memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		got = send(fd, text, length, MSG_NOSIGNAL);
		if (got >= 0)
			got = recv(fd, reply, sizeof(reply), 0);
		if (got > 0)
			outcome = TOLD;
		else if (!got || errno == ECONNRESET || errno == EPIPE)
			outcome = WENT_AWAY;
	}
	close(fd);
	return outcome;
}

void notify_job_end(const char *socket_path, uint32_t job_id)
{
	char text[128];
	int length = snprintf(text, sizeof(text), "{\"op\":\"job_end\",\"job_id\":%u}", job_id);
	enum outcome outcome = tell(socket_path, text, (size_t)length);

	/* One that ends just now is restarted in a moment. */
	for (int i = 0; outcome == WENT_AWAY && i < WAIT_S * 1000000 / AGAIN_US; i++) {
		usleep(AGAIN_US);
		outcome = tell(socket_path, text, (size_t)length);
	}
	/* A daemon that is down asks Slurm for ended jobs when it starts. */
	if (outcome != TOLD)
		slurm_info(
		    "gpu-share: gpu-leased does not answer; it will notice the end of job %u later",
		    job_id);
}
