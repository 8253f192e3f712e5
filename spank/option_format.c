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

static bool format_time(struct writer *to, const struct gl_key_row *key, uint64_t ns)
{
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

static bool format_amount(struct writer *to, const struct gl_key_row *key,
                          const struct gl_options *options)
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

static bool format_label(struct writer *to, const struct gl_key_row *key, const char *label)
{
	return append(to, "%s:%s,", key->name, *label ? label : "none");
}

bool format_value(const struct gl_key_row *key, const struct gl_options *options,
                  const void *member, struct writer *to)
{
	const uint32_t *number = member;

	switch (key->values) {
	case GL_VALUES_WORDS:
		return format_word(to, key, *number ? *number : 2); /* 0 is oversub:off */
	case GL_VALUES_TIME:
		return format_time(to, key, *(const uint64_t *)member);
	case GL_VALUES_AMOUNT:
		return format_amount(to, key, options);
	case GL_VALUES_PART:
		return format_part(to, key, *(const double *)member);
	default:
		return format_label(to, key, member);
	}
}
