/* message.h: messages between a component and the keeper, with or without a descriptor. */
#ifndef CHAIN_MESSAGE_H
#define CHAIN_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Sends a message; descriptor below 0: none. Returns false if the other side has ended. */
bool message_send(int socket, const void *data, size_t size, int descriptor);
/* Waits for a message of that size; *descriptor: below 0 if none came with it, and the caller
 * closes it. Returns false after any other message, or if the other side has ended. */
bool message_receive(int socket, void *data, size_t size, int *descriptor);

#endif
