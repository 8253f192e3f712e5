/* meeting.h: the daemon introduces processes of the job to each other. */
#ifndef GPU_LEASE_MEETING_H
#define GPU_LEASE_MEETING_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Of threads of the program. CUDA_ERROR_NOT_SUPPORTED: this daemon introduces nobody. */
CUresult meeting_own_name(uint8_t name[GL_NAME_BYTES]); /* which the daemon knows */
bool meeting_is_own(const uint8_t name[GL_NAME_BYTES]);
/* A connected socket, whose other end the process of that name has been given with `what`. */
CUresult meeting_ask(const uint8_t name[GL_NAME_BYTES], const uint64_t what[2], int *end);

/* Of the client thread. */
void meeting_speak(bool introduces);                    /* to a daemon that serves this process */
void meeting_named(void);                               /* the daemon knows the name */
void meeting_answer(const struct gl_met *met, int end); /* end: below 0 where there is none */
void meeting_forget_daemon(void);
bool meeting_awaited(void); /* a thread of the program waits for an answer */
void meeting_end(void);     /* nobody will be introduced any more */

#endif
