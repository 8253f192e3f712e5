/* random.h: random bytes from the kernel. glibc has getrandom only from 2.25 on. */
#ifndef GPU_LEASE_RANDOM_H
#define GPU_LEASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Fills `size` bytes, at most 256. flags: 0, or GRND_NONBLOCK. */
static inline bool random_bytes(void *at, size_t size, unsigned flags)
{
	return syscall(SYS_getrandom, at, size, flags) == (long)size;
}

#endif
