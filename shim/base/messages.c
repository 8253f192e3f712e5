/* messages.c: messages.def as a table, for the interposer and (through cffi) for the daemon. */
#include "base/wire.h"

static const struct gl_message messages[] = {
#define MESSAGE(name, number, body, sender)                                                        \
	{#name, #body, sizeof(struct body), number, GL_##sender},
#include "base/messages.def"
#undef MESSAGE
};

#define N_MESSAGES (sizeof(messages) / sizeof(messages[0]))

#define MESSAGE(name, number, body, sender)                                                        \
	_Static_assert(sizeof(struct body) <= GL_MAX_MESSAGE, "no message is longer");
#include "base/messages.def"
#undef MESSAGE

const struct gl_message *gl_message_at(uint32_t index)
{
	return index < N_MESSAGES ? &messages[index] : NULL;
}

const struct gl_message *gl_message_of(uint32_t type)
{
	for (size_t i = 0; i < N_MESSAGES; i++)
		if (messages[i].type == type)
			return &messages[i];
	return NULL;
}
