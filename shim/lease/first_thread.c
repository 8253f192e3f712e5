/* first_thread.c: has the first thread of the program handled a signal while it waits for another
 * one?
 *
 * The kernel gives a signal of the process to its first thread, if that does not block it. (Python
 * runs handlers in that thread alone.) It may wait for a thread that waits at the gate, as
 * PyTorch's does in backward(): then nobody at the gate sees the signal. So the client thread looks
 * whether the first thread has used the processor although it stands in the same wait of a futex
 * without a limit as before. Whoever ends such a wait changes the futex, so that only a signal does
 * so. (A stop and a freezer do, too, now and then; the turn that follows from it is one of a few.)
 *
 * Where /proc does not say so, such signals are heard with the next turn.
 */
#include "lease/first_thread.h"

#include "base/clock.h"
#include "base/fork.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(250000000)

/* Where the thread stood at the last look: what /proc says of its system call, with its arguments,
 * and how long it had run on the processor. `call` is empty while it does not stand still. */
static struct {
	char call[160];
	uint64_t ran_ns;
	uint64_t seen_at;
} last;

/* The clock is the one that pthread_getcpuclockid() gives; the number of the first thread is that
 * of the process. */
static uint64_t ran_ns(void)
{
	clockid_t processor_time = (clockid_t)(~(unsigned int)getpid() << 3 | 6);
	struct timespec time = {0};

	clock_gettime(processor_time, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Number and arguments of the system call in which the first thread is: "202 0x7f... 0x80 ..." */
static void read_call(char *call, size_t size)
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, call, size - 1);
		close(fd);
	}
	call[n > 0 ? n : 0] = '\0';
}

/* A wait for a futex, without a limit? */
static bool waits_without_limit(const char *call)
{
	unsigned long word, operation, value, limit;
	long number;

	return sscanf(call, "%ld %lx %lx %lx %lx", &number, &word, &operation, &value, &limit) ==
	           5 &&
	       number == SYS_futex && !limit;
}

bool first_thread_was_woken(void)
{
	char call[sizeof(last.call)];
	uint64_t before = ran_ns(), now = now_ns();
	bool woken;

	if (now - last.seen_at < LOOK_NS)
		return false;
	last.seen_at = now;
	read_call(call, sizeof(call));
	if (!waits_without_limit(call) || ran_ns() != before)
		call[0] = '\0';
	woken = call[0] && !strcmp(call, last.call) && before != last.ran_ns;
	memcpy(last.call, call, sizeof(call));
	last.ran_ns = before;
	return woken;
}

static void in_child(void)
{
	last.call[0] = '\0';
}
FORK_WATCH(in_child);
