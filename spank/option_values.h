/* option_values.h: the values of --gpu-share, of each key that keys.def lists. Inside of the
 * grammar only (grammar.h).
 */
#ifndef GPU_LEASE_OPTION_VALUES_H
#define GPU_LEASE_OPTION_VALUES_H

#include "grammar.h"

#include <stdbool.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define SHOWN 40 /* bytes of a user's text that an error repeats */

/* Where an error is written to. */
struct fault {
	char *text;
	size_t size;
};

/* Writes the error, one sentence with the remedy. Returns -1. */
int refuse(struct fault fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes a user's text so that an error may repeat it: cut, and with printable characters only. */
const char *shown(const char *text, size_t length, char out[SHOWN + 4]);

/* A text to which pieces are appended. */
struct writer {
	char *text;
	size_t size, used; /* bytes */
};

/* Returns false if the piece does not fit. */
bool append(struct writer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* parse_KEY() reads the value of a key, and returns 0, or -1 after refuse(). format_KEY() writes
 * the key and its value, with a comma behind it. */
#define OPTION_KEY(NAME, name, said, bit, values, example, help)                                   \
	int parse_##name(const struct gl_key_row *key, const char *value, struct gl_options *out,  \
	                 struct fault fault);                                                      \
	bool format_##name(const struct gl_key_row *key, const struct gl_options *options,         \
	                   struct writer *to);
#include "keys.def"
#undef OPTION_KEY

#endif
