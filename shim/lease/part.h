/* part.h: what part of its device's multiprocessors a component of a chain is to use. The program
 * itself keeps to it, by contexts that it has made (chain/parts.h).
 */
#ifndef GPU_LEASE_PART_H
#define GPU_LEASE_PART_H

#include <stdint.h>

struct part {
	uint16_t percent;
	uint16_t begins; /* per mille of the multiprocessors */
};

/* A thread of the program: what the daemon has said last; all of them if nothing. From the first
 * call on the daemon knows that this process keeps to it. */
struct part part_ask(void);

/* The client thread: the daemon has said it (GL_RUN_PART). */
void part_take(uint64_t percent, uint16_t begins);
/* The client thread: sends PARTS when it is due. */
void part_speak(void);
/* The client thread: the next daemon has to be told. */
void part_forget_daemon(void);

#endif
