/* signal_sender.c: has slurmstepd sent a signal?
 *
 * slurmstepd is a process of root with that name. In a container less is known of a sender. In a
 * user namespace the kernel shows root of the host by the id of nobody, unless the namespace
 * contains root. In a pid namespace the kernel shows every sender from outside as process 0. Such a
 * sender is taken for slurmstepd if it is root; the signal of any other sender is left to its usual
 * effect.
 *
 * The first process of a pid namespace is a special case, since only signals that it handles can
 * stop it. It also gets the signal from the container's runtime (podman), which has received it
 * from slurmstepd and passes it on as the job's user. So it takes a signal of any sender from
 * outside for slurmstepd's: if the job is not being suspended the daemon finds that out.
 *
 * A terminal's Ctrl-Z is sent by the kernel, not by a process (SI_USER).
 */
#include "lease/signal_sender.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define STEPD "slurmstepd\n"
#define NOBODY 65534 /* the kernel's overflow id, which hardly anybody changes */

/* The ids by which root of the host may be shown: where it is in our namespace, and where not. */
static uid_t mapped_root, unmapped_root;

void signal_sender_init(void)
{
	FILE *map = fopen("/proc/self/uid_map", "re");
	unsigned int inside, outside, count;

	mapped_root = unmapped_root = map ? NOBODY : 0;
	while (map && fscanf(map, "%u %u %u", &inside, &outside, &count) == 3) {
		if (outside)
			continue;
		mapped_root = inside;
		if (count == UINT_MAX) /* everybody is here */
			unmapped_root = inside;
	}
	if (map)
		fclose(map);
}

static bool is_root(uid_t user)
{
	return user == mapped_root || user == unmapped_root;
}

/* "/proc/PID/comm" */
static void comm_path(char *out, pid_t pid)
{
	char digits[16];
	int n = 0;

	memcpy(out, "/proc/", 6);
	out += 6;
	do {
		digits[n++] = (char)('0' + pid % 10);
		pid /= 10;
	} while (pid);
	while (n)
		*out++ = digits[--n];
	memcpy(out, "/comm", 6);
}

/* If /proc hides its name, it has that name if it is our parent. */
static bool has_stepds_name(pid_t pid)
{
	char path[32], name[sizeof(STEPD)] = "";
	ssize_t n;
	int fd;

	comm_path(path, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return pid == getppid();
	n = read(fd, name, sizeof(name) - 1);
	close(fd);
	return n == sizeof(STEPD) - 1 && !memcmp(name, STEPD, sizeof(STEPD) - 1);
}

bool signal_is_slurmstepds(const siginfo_t *info)
{
	bool outside = !info->si_pid;

	if (info->si_code != SI_USER)
		return false;
	if (outside && getpid() == 1)
		return true;
	return is_root(info->si_uid) && (outside || has_stepds_name(info->si_pid));
}
