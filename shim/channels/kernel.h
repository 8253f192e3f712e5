/* kernel.h: calls of the kernel's module by the driver's library, and by us.
 *
 * The library reaches ioctl through its own import table. We put a function of ours into that
 * entry, which calls what stood there before and notes what the library has made; no other
 * library's calls come by. Our own calls go to what stood there before as well.
 */
#ifndef GPU_LEASE_CHANNELS_KERNEL_H
#define GPU_LEASE_CHANNELS_KERNEL_H

#include "channels/rm.h"

#include <stdbool.h>

/* The answer of a call that the system refused: this and errno. */
#define RM_SYSTEM 0xFFFF0000U

/* The driver's library is loaded: its calls come by from now on. Only the first call has an
 * effect. Without an entry for ioctl the process has no groups that we know. */
void kernel_watch(void *handle);
/* A control call. Returns its status: 0 if it worked. */
uint32_t kernel_control(int fd, const struct rm_control *call);

#endif
