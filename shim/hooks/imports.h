/* imports.h: maps memory of the chain's keeper again whenever this process has its lease. */
#ifndef GPU_LEASE_IMPORTS_H
#define GPU_LEASE_IMPORTS_H

#include <stdbool.h>

/* Lent memory is mapped in each turn from now on. Returns false if the system gives no thread for
 * it. A thread of the program calls it. */
bool imports_follow(void);

#endif
