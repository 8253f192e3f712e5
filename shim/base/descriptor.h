/* descriptor.h: file descriptors of our own among those of the program.
 *
 * A program may close descriptors that it has not opened: by closefrom(3), by a dup2() to a fixed
 * number, or by closing its own number twice. The kernel then gives the number to a file of the
 * program. So we remember which file our number stood for, and never read from, write to or close
 * another one. And the numbers are high, since those from 0 on mean something to programs: what
 * they write to stdout would go to us if it was closed when we opened ours.
 */
#ifndef GPU_LEASE_DESCRIPTOR_H
#define GPU_LEASE_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct descriptor {
	int number; /* below 0: none */
	dev_t device;
	ino_t inode;
};

#define NO_DESCRIPTOR {.number = -1}

/* Takes over a descriptor of a socket or of a pipe, each of which has an inode of its own (an
 * eventfd has not), and moves it to a high number. */
struct descriptor descriptor_keep(int number);
/* Has it a number that few programs need, of the upper half of those that the process may have? */
bool descriptor_is_high(const struct descriptor *descriptor);
/* Its number; -1 if there is none, or if the program has closed it. Async-signal-safe; preserves
 * errno. */
int descriptor_number(const struct descriptor *descriptor);
/* Closes it, unless the program has done so, and sets it to NO_DESCRIPTOR. */
void descriptor_close(struct descriptor *descriptor);

#endif
