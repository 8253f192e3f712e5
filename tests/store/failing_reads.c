// Fails reads of a database as a disk does that is gone for a while (LD_PRELOAD).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/types.h>
#include <unistd.h>

static char failing[64];    // files whose names end so
static int succeeding = -1; // how many more of their reads succeed; -1: all

__attribute__((visibility("default"))) void fail_reads(const char *ending, int after)
{
	snprintf(failing, sizeof(failing), "%s", ending);
	succeeding = after;
}

static int is_failing(int fd)
{
	char link[64], name[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t length = succeeding < 0 ? -1 : readlink(link, name, sizeof(name) - 1);
	if (length < (ssize_t)strlen(failing))
		return 0;
	name[length] = 0;
	return strcmp(name + length - strlen(failing), failing) == 0;
}

static int fails(int fd)
{
	if (!is_failing(fd))
		return 0;
	if (succeeding > 0) {
		succeeding--;
		return 0;
	}
	errno = EIO;
	return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int fd, void *to, size_t bytes, off64_t from)
{
	return fails(fd) ? -1 : REAL(pread64)(fd, to, bytes, from);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t from)
{
	return fails(fd) ? -1 : REAL(pread)(fd, to, bytes, from);
}

ssize_t read(int fd, void *to, size_t bytes)
{
	return fails(fd) ? -1 : REAL(read)(fd, to, bytes);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t bytes)
{
	return fails(from) ? -1 : REAL(sendfile64)(to, from, offset, bytes);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t bytes)
{
	return fails(from) ? -1 : REAL(sendfile)(to, from, offset, bytes);
}
