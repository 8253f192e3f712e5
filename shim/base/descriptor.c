/* descriptor.c: file descriptors of our own among those of the program. */
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIGH 512 /* the number that is tried first; programs that use select() have 1024 */
#define LOWEST 4 /* the last one, where the limit of open files (ulimit -n) is small */

static int move_up(int number)
{
	for (int from = HIGH; from >= LOWEST; from /= 2) {
		int moved = fcntl(number, F_DUPFD_CLOEXEC, from);

		if (moved < 0)
			continue;
		close(number);
		return moved;
	}
	return number;
}

/* The first descriptor with a high number makes the kernel enlarge the process' table. While the
 * process has one thread it does so at once. With more threads it waits for an RCU grace period, 10
 * ms and more, and a thread of the program would wait for that. */
__attribute__((constructor)) static void enlarge_table(void)
{
	int number = eventfd(0, EFD_CLOEXEC);

	if (number >= 0)
		close(move_up(number));
}

struct descriptor descriptor_keep(int number)
{
	struct descriptor kept = NO_DESCRIPTOR;
	struct stat found;

	if (number < 0)
		return kept;
	kept.number = move_up(number);
	if (!fstat(kept.number, &found)) {
		kept.device = found.st_dev;
		kept.inode = found.st_ino;
	}
	return kept;
}

bool descriptor_is_high(const struct descriptor *descriptor)
{
	struct rlimit most;
	rlim_t half = getrlimit(RLIMIT_NOFILE, &most) ? HIGH : most.rlim_cur / 2;

	return descriptor->number >= 0 && (rlim_t)descriptor->number >= (half < HIGH ? half : HIGH);
}

int descriptor_number(const struct descriptor *descriptor)
{
	int saved_errno = errno;
	struct stat found;
	bool ours;

	if (descriptor->number < 0)
		return -1;
	ours = !fstat(descriptor->number, &found) && found.st_dev == descriptor->device &&
	       found.st_ino == descriptor->inode;
	errno = saved_errno;
	return ours ? descriptor->number : -1;
}

void descriptor_close(struct descriptor *descriptor)
{
	int number = descriptor_number(descriptor);

	if (number >= 0)
		close(number);
	*descriptor = (struct descriptor)NO_DESCRIPTOR;
}
