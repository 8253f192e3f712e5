// Ends a program whose first thread syncs a file to the disk while that is forbidden (LD_PRELOAD).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static volatile int forbidden;

__attribute__((visibility("default"))) void forbid_syncs(int forbid)
{
	forbidden = forbid;
}

static void check(void)
{
	static const char words[] = "the first thread syncs\n";

	if (!forbidden || gettid() != getpid())
		return;
	if (write(2, words, sizeof(words) - 1) < 0)
		_exit(2);
	_exit(1);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd)
{
	check();
	return REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	check();
	return REAL(fdatasync)(fd);
}
