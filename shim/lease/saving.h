/* saving.h: this process's memory is saved to files, and perhaps the process with it. */
#ifndef GPU_LEASE_SAVING_H
#define GPU_LEASE_SAVING_H

#include <stdint.h>

/* The driver has restored the process with these two GPUs exchanged (UUIDs). */
void saving_process_moved(const uint8_t from[16], const uint8_t to[16]);

/* The daemon asks for it, with all memory away. Returns when the process shall go on: then it may
 * be on another node, without a connection. Of the client thread. */
void saving_run(void);

#endif
