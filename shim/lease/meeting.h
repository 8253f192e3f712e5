/* meeting.h: gets the process introduced to other processes of its job, by the daemon. */
#ifndef GPU_LEASE_MEETING_H
#define GPU_LEASE_MEETING_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Threads of the program that hold no lock; both wait for the daemon. */

/* This process's name, once the daemon knows it. */
CUresult meeting_own_name(uint8_t name[GL_NAME_BYTES]);
/* Gets *end, a connected socket, whose other end has been passed to the process of that name
 * together with `what`. The caller closes it. CUDA_ERROR_INVALID_VALUE: no process of the job has
 * that name. */
CUresult meeting_ask(const uint8_t name[GL_NAME_BYTES], const uint64_t what[2], int *end);

/* Is this the name of this process? Any thread may ask. */
bool meeting_is_own(const uint8_t name[GL_NAME_BYTES]);

/* The client thread. */

/* Sends what is due to a daemon that serves this process. */
void meeting_speak(void);
/* NAMED has come: the daemon knows the name. */
void meeting_named(void);
/* MET has come for a request of this process, with one end of a pair of sockets (below 0: none). */
void meeting_answer(const struct gl_met *met, int end);
/* The daemon is gone: unanswered requests are repeated to the next one. */
void meeting_forget_daemon(void);
/* Does a thread of the program wait for an answer? */
bool meeting_awaited(void);
/* The client thread ends: all waits end with an error. */
void meeting_end(void);

#endif
