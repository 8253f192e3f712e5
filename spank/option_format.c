/* option_format.c: writes the values of --gpu-share. */
#include "option_values.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

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

bool format_tq(const struct gl_options *options, struct writer *to)
{
	uint64_t ns = options->quantum_ns;

	if (ns % NS_PER_S)
		return append(to, "tq:%" PRIu64 ".%06" PRIu64 "ms,", ns / NS_PER_MS,
		              ns % NS_PER_MS);
	return append(to, "tq:%" PRIu64 "s,", ns / NS_PER_S);
}

bool format_lock(const struct gl_options *options, struct writer *to)
{
	static const char *const words[] = {"", "on", "off", "auto"};

	return append(to, "lock:%s,", words[options->lock & 3]);
}

bool format_mem(const struct gl_options *options, struct writer *to)
{
	uint64_t unit = UINT64_C(1000000000000);
	uint64_t fraction = (uint64_t)(options->mem_fraction * 1e12 + 0.5);
	uint64_t bytes = options->mem_bytes;

	if (bytes % (1 << 20))
		return append(to, "mem:%" PRIu64 "K,", bytes >> 10);
	if (bytes)
		return append(to, "mem:%" PRIu64 "MiB,", bytes >> 20);
	return append(to, "mem:%" PRIu64 ".%012" PRIu64 ",", fraction / unit, fraction % unit);
}

bool format_oversub(const struct gl_options *options, struct writer *to)
{
	return append(to, "oversub:%s,", options->oversub ? "on" : "off");
}

bool format_memory(const struct gl_options *options, struct writer *to)
{
	static const char *const words[] = {"", "managed", "swap", "auto"};

	return append(to, "memory:%s,", words[options->memory & 3]);
}

static bool format_part(struct writer *to, const char *key, double part)
{
	uint64_t millionths = (uint64_t)(part * 1e6 + 0.5);

	return append(to, "%s:%" PRIu64 ".%06" PRIu64 ",", key, millionths / 1000000,
	              millionths % 1000000);
}

bool format_request(const struct gl_options *options, struct writer *to)
{
	return format_part(to, "request", options->request);
}

bool format_limit(const struct gl_options *options, struct writer *to)
{
	return format_part(to, "limit", options->limit);
}

static bool format_label(struct writer *to, const char *key, const char *label)
{
	return append(to, "%s:%s,", key, *label ? label : "none");
}

bool format_affinity(const struct gl_options *options, struct writer *to)
{
	return format_label(to, "affinity", options->affinity);
}

bool format_anti_affinity(const struct gl_options *options, struct writer *to)
{
	return format_label(to, "anti-affinity", options->anti_affinity);
}

bool format_exclusion(const struct gl_options *options, struct writer *to)
{
	return format_label(to, "exclusion", options->exclusion);
}

bool format_class(const struct gl_options *options, struct writer *to)
{
	static const char *const words[] = {"", "online", "offline", "none"};

	return append(to, "class:%s,", words[options->job_class & 3]);
}
