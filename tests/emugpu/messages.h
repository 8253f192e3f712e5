/* messages.h: whole messages over a stream socket. */
#ifndef EMUGPU_MESSAGES_H
#define EMUGPU_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

/* false: the other end has gone. */
bool send_all(int fd, const void *data, uint64_t size);
bool recv_all(int fd, void *data, uint64_t size);

#endif
