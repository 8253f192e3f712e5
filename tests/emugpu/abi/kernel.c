/* kernel.c: what answers the library's calls of ioctl in place of a card's kernel module. The
 * library calls ioctl through its own import table, as a card's does; when it is loaded it puts
 * this function into that table. What replaces the entry later, and calls what stood there, comes
 * here. */
#include "abi/client.h"
#include "import_table.h"
#include "rm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PARAMETERS_MOST 2048

int emu_kernel_fd = -1;

static __typeof__(&ioctl) others; /* where calls go that are not for a GPU */

/* The parameters behind a call; NULL: there are none. */
static void *parameters(unsigned number, const void *call, uint32_t *size)
{
	const struct rm_alloc *alloc = call;
	const struct rm_control *control = call;

	*size = number == RM_ALLOC ? alloc->parms_size : number == RM_CONTROL ? control->size : 0;
	return (void *)(uintptr_t)(number == RM_ALLOC     ? alloc->parms
	                           : number == RM_CONTROL ? control->params
	                                                  : 0);
}

static int call_kernel(unsigned number, void *call)
{
	uint32_t head = rm_call_size(number), size;
	void *params = parameters(number, call, &size), *after;
	uint8_t both[sizeof(struct rm_alloc) + PARAMETERS_MOST];

	if (size > PARAMETERS_MOST || (size && !params)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(both, call, head);
	if (size)
		memcpy(both + head, params, size);
	if (emu_kernel_call(number, both, head + size, &after)) {
		errno = EIO;
		return -1;
	}
	memcpy(call, after, head);
	if (size)
		memcpy(params, (uint8_t *)after + head, size);
	free(after);
	return 0;
}

static int kernel(int fd, unsigned long request, ...)
{
	void *argument;
	va_list rest;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	if (_IOC_TYPE(request) != 'F' || fd != emu_kernel_fd)
		return others(fd, request, argument);
	if (!argument || !_IOC_SIZE(request) ||
	    _IOC_SIZE(request) != rm_call_size(_IOC_NR(request))) {
		errno = EINVAL;
		return -1;
	}
	/* A filter of the process (seccomp) sees it as on a card. /dev/null has no such call. */
	if (syscall(SYS_ioctl, fd, request, argument) && errno != ENOTTY)
		return -1;
	return call_kernel(_IOC_NR(request), argument);
}

/* As early as the library can. */
__attribute__((constructor)) static void install(void)
{
	others = (__typeof__(others))(uintptr_t)dlsym(RTLD_DEFAULT, "ioctl");
	(void)import_replace(&emu_kernel_fd, "ioctl", (void *)(uintptr_t)kernel);
}

void emu_kernel_open(void)
{
	emu_kernel_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
}
