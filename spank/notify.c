/* notify.c: one message to the daemon, in C because epilogs should not start Python. */
#include "share.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_S 2

void notify_job_end(const char *socket_path, uint32_t job_id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = WAIT_S};
	char text[128], reply[256];
	int length = snprintf(text, sizeof(text), "{\"op\":\"job_end\",\"job_id\":%u}", job_id);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	/* A daemon that is down asks Slurm for ended jobs when it starts. */
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    send(fd, text, (size_t)length, MSG_NOSIGNAL) < 0 ||
	    recv(fd, reply, sizeof(reply), 0) < 0)
		slurm_info(
		    "gpu-share: gpu-leased does not answer; it finds the end of job %u later",
		    job_id);
	close(fd);
}
