/* saved.h: copies on the host are listed for whoever saves them, and their memory is given up and
 * taken again at the same addresses. The client thread calls these functions, while all memory of
 * the process is away and no lane has an order. */
#ifndef GPU_LEASE_SAVED_H
#define GPU_LEASE_SAVED_H

#include "base/wire.h"

/* Lists all copies. Returns NULL if the host has no memory for the list. */
struct gl_saved *saved_list(void);
/* Gives their memory up; the addresses remain reserved. */
void saved_give(void);
/* Memory of the process itself is there now, without content. */
void saved_take(void);

#endif
