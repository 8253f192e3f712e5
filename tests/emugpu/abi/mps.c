/* mps.c: whether this process is a client of an emulated MPS server (mps_control.py), as
 * CUDA_MPS_PIPE_DIRECTORY says. Where nobody answers there it runs as it would without MPS, as with
 * NVIDIA's driver. Its connection with the control program lasts as long as the process. */
#include "abi/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

uint64_t emu_mps_server, emu_mps_percent;

static int control = -1;

static int connect_control(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
	int fd;

	if (!pipes || snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", pipes) >=
	                  (int)sizeof(address.sun_path))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The answer is the number of a server, and comes when one takes clients of this user; or "0": it
 * recovers from a fault. */
CUresult emu_mps_join(void)
{
	const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	char answer[32] = "";
	double wanted = percent ? strtod(percent, NULL) : 100;

	control = connect_control();
	if (control < 0)
		return CUDA_SUCCESS;
	if (send(control, "client\n", 7, MSG_NOSIGNAL) != 7 ||
	    read(control, answer, sizeof(answer) - 1) <= 0)
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	emu_mps_server = strtoull(answer, NULL, 10);
	emu_mps_percent = wanted > 0 && wanted <= 100 ? (uint64_t)wanted : 100;
	return emu_mps_server ? CUDA_SUCCESS : CUDA_ERROR_MPS_SERVER_NOT_READY;
}

/* The server hears of it. */
void emu_mps_fault(void)
{
	if (emu_mps_server)
		(void)send(control, "fault\n", 6, MSG_NOSIGNAL);
}

void emu_mps_in_child(void)
{
	if (control >= 0)
		close(control);
	control = -1;
	emu_mps_server = 0;
}
