/* notify.c: tells the daemon that a job has ended. In C, so that an epilog does not start Python.
 */
#include "share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_S 2 /* for an answer, and for a daemon that is being restarted */
#define RETRY_US 100000

enum outcome {
	ANSWERED,
	UNREACHABLE, /* nothing listens at the socket, or no answer has come within WAIT_S */
	CLOSED       /* the daemon has closed the connection: it is ending */
};

static enum outcome send_once(const char *socket_path, const char *text, size_t length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = WAIT_S};
	char reply[256];
	enum outcome outcome = UNREACHABLE;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ssize_t got;

	if (fd < 0)
		return UNREACHABLE;
	memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		got = send(fd, text, length, MSG_NOSIGNAL);
		if (got >= 0)
			got = recv(fd, reply, sizeof(reply), 0);
		if (got > 0)
			outcome = ANSWERED;
		else if (!got || errno == ECONNRESET || errno == EPIPE)
			outcome = CLOSED;
	}
	close(fd);
	return outcome;
}

void notify_job_end(const char *socket_path, uint32_t job_id)
{
	char text[128];
	int length = snprintf(text, sizeof(text), "{\"op\":\"job_end\",\"job_id\":%u}", job_id);
	enum outcome outcome = send_once(socket_path, text, (size_t)length);

	/* A daemon that is ending is probably being restarted. */
	for (int i = 0; outcome == CLOSED && i < WAIT_S * 1000000 / RETRY_US; i++) {
		usleep(RETRY_US);
		outcome = send_once(socket_path, text, (size_t)length);
	}
	/* A daemon that does not run asks Slurm for ended jobs when it starts. */
	if (outcome != ANSWERED)
		slurm_info(
		    "gpu-share: gpu-leased does not answer; it will notice the end of job %u later",
		    job_id);
}
