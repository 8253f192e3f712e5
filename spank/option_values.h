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

/* Reads the value of a key into its member of *out. Returns 0, or -1 after refuse(). */
int parse_value(const struct gl_key_row *key, const char *value, struct gl_options *out,
                void *member, struct fault fault);
/* Writes the key and the value of its member, with a comma behind it. Returns false if that does
 * not fit. */
bool format_value(const struct gl_key_row *key, const struct gl_options *options,
                  const void *member, struct writer *to);

#endif
