/* wake.c: how the client thread waits, and how others wake it: a byte in a pipe does. */
#include "lease/wake.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/fork.h"
#include "lease/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#define MS INT64_C(1000000)
/* The client thread waits no longer than this, and then sees whether the program has closed our
 * descriptors. */
#define LOOK_NS (1000 * MS)
#define UNPOLLED_NS (5 * MS) /* the same while nothing can wake it */

static struct descriptor reader = NO_DESCRIPTOR, writer = NO_DESCRIPTOR;

bool wake_prepare(void)
{
	int ends[2];

	if (reader.number >= 0)
		return true;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return false;
	reader = descriptor_keep(ends[0]);
	writer = descriptor_keep(ends[1]);
	return true;
}

void wake(void)
{
	int number = descriptor_number(&writer);

	if (number >= 0) /* if the pipe is full the write fails, but the thread is woken anyway */
		syscall(SYS_write, number, "", 1);
}

/* Reads all wakes that have come. */
static void take_wakes(void)
{
	char dropped[256];
	int number;

	do
		number = descriptor_number(&reader);
	while (number >= 0 && read(number, dropped, sizeof(dropped)) == sizeof(dropped));
}

bool wake_wait(int64_t ns)
{
	bool wakes = descriptor_number(&reader) >= 0;
	int64_t most = wakes ? LOOK_NS : UNPOLLED_NS;
	struct pollfd fds[2] = {{connection_fd(), POLLIN, 0}, {reader.number, POLLIN, 0}};
	struct timespec time;

	if (connection_is_lost())
		return true;
	ns = ns < 0 || ns > most ? most : ns;
	time = (struct timespec){ns / 1000000000, ns % 1000000000};
	/* EINVAL: the limit of open files is lower than the number of ours. A program that wants to
	 * open no more sets it to 0. EPERM and the like: the program has forbidden itself the call
	 * (seccomp). */
	if (ppoll(fds, wakes ? 2 : 1, &time, NULL) < 0 && errno != EINTR) {
		pause_us((ns < UNPOLLED_NS ? ns : UNPOLLED_NS) / 1000);
		fds[0].revents = POLLIN;
	}
	take_wakes();
	return fds[0].revents && connection_fd() >= 0;
}

static void in_child(void)
{
	descriptor_close(&reader);
	descriptor_close(&writer);
}
FORK_WATCH(in_child);
