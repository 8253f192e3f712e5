/* Stands for a program of aarch64 on a machine that has no binfmt for it: starts qemu with the
 * program that it stands for, whose name has ".real" at its end. Built statically, for this
 * machine. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QEMU "/usr/bin/qemu-aarch64-static"

int main(int argc, char **argv)
{
	char own[PATH_MAX - sizeof(".real")], real[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	char **command = calloc((size_t)argc + 4, sizeof(*command));
	if (length < 0 || !command)
		return 126;
	own[length] = '\0';
	snprintf(real, sizeof(real), "%s.real", own);
	command[0] = QEMU;
	command[1] = "-0";
	command[2] = argv[0];
	command[3] = real;
	memcpy(command + 4, argv + 1, (size_t)(argc - 1) * sizeof(*command));
	execv(QEMU, command);
	fprintf(stderr, "%s: %s\n", QEMU, strerror(errno));
	return 127;
}
