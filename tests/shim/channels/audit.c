/* audit.c: for LD_AUDIT: stands between every library and ioctl, as tracers do. */
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

static __typeof__(&ioctl) real;

unsigned int la_version(unsigned int version)
{
	return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
	(void)map;
	(void)space;
	(void)cookie;
	return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

static int audited(int fd, unsigned long request, ...)
{
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	return real(fd, request, argument);
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                       unsigned int *flags, const char *name)
{
	(void)index;
	(void)from;
	(void)to;
	(void)flags;
	if (strcmp(name, "ioctl"))
		return symbol->st_value;
	real = (__typeof__(&ioctl))symbol->st_value;
	return (uintptr_t)audited;
}
