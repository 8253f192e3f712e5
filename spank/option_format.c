/* option_format.c: writes the values of --gpu-share. */
#include "option_values.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool append(struct writer *to, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(to->text + to->used, to->size - to->used, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= to->size - to->used)
		return false;
	to->used += (size_t)n;
	return true;
}

bool format_tq(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	uint64_t ns = options->quantum_ns;

	if (ns % NS_PER_S)
		return append(to, "%s:%" PRIu64 ".%06" PRIu64 "ms,", key->name, ns / NS_PER_MS,
		              ns % NS_PER_MS);
	return append(to, "%s:%" PRIu64 "s,", key->name, ns / NS_PER_S);
}

/* The word with this number, from 1 on. */
static bool format_word(struct writer *to, const struct gl_key_row *key, uint32_t number)
{
	const char *word = key->words;

	for (; number > 1 && strchr(word, '|'); number--)
		word = strchr(word, '|') + 1;
	return append(to, "%s:%.*s,", key->name, (int)strcspn(word, "|"), word);
}

bool format_lock(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_word(to, key, options->lock);
}

bool format_memory(const struct gl_key_row *key, const struct gl_options *options,
                   struct writer *to)
{
	return format_word(to, key, options->memory);
}

bool format_oversub(const struct gl_key_row *key, const struct gl_options *options,
                    struct writer *to)
{
	return format_word(to, key, options->oversub ? 1 : 2);
}

bool format_mem(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	uint64_t unit = UINT64_C(1000000000000);
	uint64_t fraction = (uint64_t)(options->mem_fraction * 1e12 + 0.5);
	uint64_t bytes = options->mem_bytes;

	if (bytes % (1 << 20))
		return append(to, "%s:%" PRIu64 "K,", key->name, bytes >> 10);
	if (bytes)
		return append(to, "%s:%" PRIu64 "MiB,", key->name, bytes >> 20);
	return append(to, "%s:%" PRIu64 ".%012" PRIu64 ",", key->name, fraction / unit,
	              fraction % unit);
}

static bool format_part(struct writer *to, const struct gl_key_row *key, double part)
{
	uint64_t millionths = (uint64_t)(part * 1e6 + 0.5);

	return append(to, "%s:%" PRIu64 ".%06" PRIu64 ",", key->name, millionths / 1000000,
	              millionths % 1000000);
}

bool format_request(const struct gl_key_row *key, const struct gl_options *options,
                    struct writer *to)
{
	return format_part(to, key, options->request);
}

bool format_limit(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_part(to, key, options->limit);
}

static bool format_label(struct writer *to, const struct gl_key_row *key, const char *label)
{
	return append(to, "%s:%s,", key->name, *label ? label : "none");
}

bool format_affinity(const struct gl_key_row *key, const struct gl_options *options,
                     struct writer *to)
{
	return format_label(to, key, options->affinity);
}

bool format_anti_affinity(const struct gl_key_row *key, const struct gl_options *options,
                          struct writer *to)
{
	return format_label(to, key, options->anti_affinity);
}

bool format_exclusion(const struct gl_key_row *key, const struct gl_options *options,
                      struct writer *to)
{
	return format_label(to, key, options->exclusion);
}

bool format_class(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_word(to, key, options->job_class);
}

bool format_space(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_word(to, key, options->space);
}

bool format_sm(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_part(to, key, options->sm);
}

bool format_chain(const struct gl_key_row *key, const struct gl_options *options, struct writer *to)
{
	return format_label(to, key, options->chain);
}
