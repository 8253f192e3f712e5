/* grammar.c: parses and writes the value of --gpu-share. */
#include "grammar.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define QUANTUM_MIN NS_PER_MS
#define QUANTUM_MAX (UINT64_C(86400) * NS_PER_S)
#define MEM_MIN (UINT64_C(1) << 20)
#define MEM_MAX (UINT64_C(1) << 50)
#define LIMIT_MIN 0.01
#define SHOWN 40 /* bytes of a user's text that an error repeats */

/* Where an error is written to. */
struct fault {
	char *text;
	size_t size;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct fault fault, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (fault.text && fault.size)
		vsnprintf(fault.text, fault.size, format, args);
	va_end(args);
	return -1;
}

/* Writes a user's text so that an error may repeat it: cut, and with printable characters only. */
static const char *shown(const char *text, size_t length, char out[SHOWN + 4])
{
	size_t n = length < SHOWN ? length : SHOWN;

	for (size_t i = 0; i < n; i++)
		out[i] = text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?';
	strcpy(out + n, n < length ? "..." : "");
	return out;
}

/* Reads a decimal number without sign or exponent, digits[.digits], in every locale; strtod() would
 * expect "0,5" in some. Moves the cursor behind it. */
static bool read_decimal(const char **cursor, double *out)
{
	const char *at = *cursor;
	double value = 0, scale = 1;
	int digits = 0;

	for (; *at >= '0' && *at <= '9'; at++, digits++)
		value = value * 10 + (*at - '0');
	if (*at == '.')
		for (at++; *at >= '0' && *at <= '9'; at++, digits++)
			value += (*at - '0') * (scale /= 10);
	if (!digits || digits > 15)
		return false;
	*cursor = at;
	*out = value;
	return true;
}

static int parse_tq(const char *value, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4];
	const char *at = value;
	double number = 0, unit = -1;

	if (read_decimal(&at, &number)) {
		if (!*at || !strcmp(at, "s"))
			unit = 1e9;
		else if (!strcmp(at, "ms"))
			unit = 1e6;
		else if (!strcmp(at, "m"))
			unit = 60e9;
	}
	if (unit < 0)
		return refuse(fault, "tq:%s is not a time; write seconds (30), 30s, 500ms or 2m",
		              shown(value, strlen(value), text));
	number *= unit;
	if (number < (double)QUANTUM_MIN || number > (double)QUANTUM_MAX)
		return refuse(fault, "tq:%s is out of range; a quantum is from 1ms to 1440m",
		              shown(value, strlen(value), text));
	out->quantum_ns = (uint64_t)(number + 0.5);
	return 0;
}

static int parse_lock(const char *value, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4];

	if (!strcmp(value, "on"))
		out->lock = GL_LOCK_ON;
	else if (!strcmp(value, "off"))
		out->lock = GL_LOCK_OFF;
	else if (!strcmp(value, "auto"))
		out->lock = GL_LOCK_AUTO;
	else
		return refuse(fault, "lock:%s is not known; write lock:on, lock:off or lock:auto",
		              shown(value, strlen(value), text));
	return 0;
}

/* The bytes of a unit: K, M, G or T, or the same with iB behind it. Returns 0 for any other text.
 */
static uint64_t size_unit(const char *suffix)
{
	const char *letters = "KMGT";
	const char *letter = *suffix ? strchr(letters, *suffix) : NULL;

	if (!letter || (suffix[1] && strcmp(suffix + 1, "iB")))
		return 0;
	return UINT64_C(1) << (10 * (letter - letters + 1));
}

static int parse_mem(const char *value, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4];
	const char *at = value;
	double number = 0;
	uint64_t unit;

	shown(value, strlen(value), text);
	if (!read_decimal(&at, &number))
		return refuse(
		    fault,
		    "mem:%s is not an amount; write a fraction (0.5, 50%%) or a size (20GiB)",
		    text);
	if (!strcmp(at, "%")) {
		number /= 100;
		at++;
	}
	if (!*at) {
		if (number <= 0 || number > 1)
			return refuse(
			    fault,
			    "mem:%s is no fraction of the device; write one above 0 and up to 1, "
			    "or a size with its unit (20GiB)",
			    text);
		out->mem_fraction = number;
		out->mem_bytes = 0;
		return 0;
	}
	unit = size_unit(at);
	if (!unit)
		return refuse(
		    fault, "mem:%s has an unknown unit; write K, M, G or T (20G or 20GiB)", text);
	number *= (double)unit;
	if (number < (double)MEM_MIN || number > (double)MEM_MAX)
		return refuse(fault, "mem:%s is out of range; a size is from 1MiB to 1024TiB",
		              text);
	out->mem_bytes = (uint64_t)number;
	out->mem_fraction = 0;
	return 0;
}

static int parse_oversub(const char *value, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4];

	if (!strcmp(value, "on"))
		out->oversub = 1;
	else if (!strcmp(value, "off"))
		out->oversub = 0;
	else
		return refuse(fault, "oversub:%s is not known; write oversub:on or oversub:off",
		              shown(value, strlen(value), text));
	return 0;
}

static int parse_memory(const char *value, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4];

	if (!strcmp(value, "managed"))
		out->memory = GL_MEMORY_MANAGED;
	else if (!strcmp(value, "swap"))
		out->memory = GL_MEMORY_SWAP;
	else if (!strcmp(value, "auto"))
		out->memory = GL_MEMORY_AUTO;
	else
		return refuse(fault,
		              "memory:%s is not known; write memory:managed, memory:swap or "
		              "memory:auto",
		              shown(value, strlen(value), text));
	return 0;
}

/* Reads a part of the device's time. */
static int read_part(const char *key, const char *value, double *out, struct fault fault)
{
	char text[SHOWN + 4];
	const char *at = value;
	double number = 0;
	bool is_number = read_decimal(&at, &number);

	if (is_number && !strcmp(at, "%")) {
		number /= 100;
		at++;
	}
	if (!is_number || *at || number > 1)
		return refuse(
		    fault,
		    "%s:%s is no part of the GPU's time; write a fraction up to 1 (0.3, 30%%)", key,
		    shown(value, strlen(value), text));
	*out = number;
	return 0;
}

static int parse_request(const char *value, struct gl_options *out, struct fault fault)
{
	return read_part("request", value, &out->request, fault);
}

static int parse_limit(const char *value, struct gl_options *out, struct fault fault)
{
	if (read_part("limit", value, &out->limit, fault) < 0)
		return -1;
	if (out->limit < LIMIT_MIN)
		return refuse(fault, "limit:%g is too little to compute; write 0.01 or more",
		              out->limit);
	return 0;
}

/* A text to which pieces are appended. */
struct writer {
	char *text;
	size_t size, used; /* bytes */
};

/* Returns false if the piece does not fit. */
__attribute__((format(printf, 2, 3))) static bool append(struct writer *to, const char *format, ...)
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

static bool format_tq(const struct gl_options *options, struct writer *to)
{
	uint64_t ns = options->quantum_ns;

	if (ns % NS_PER_S)
		return append(to, "tq:%" PRIu64 ".%06" PRIu64 "ms,", ns / NS_PER_MS,
		              ns % NS_PER_MS);
	return append(to, "tq:%" PRIu64 "s,", ns / NS_PER_S);
}

static bool format_lock(const struct gl_options *options, struct writer *to)
{
	static const char *const words[] = {"", "on", "off", "auto"};

	return append(to, "lock:%s,", words[options->lock & 3]);
}

static bool format_mem(const struct gl_options *options, struct writer *to)
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

static bool format_oversub(const struct gl_options *options, struct writer *to)
{
	return append(to, "oversub:%s,", options->oversub ? "on" : "off");
}

static bool format_memory(const struct gl_options *options, struct writer *to)
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

static bool format_request(const struct gl_options *options, struct writer *to)
{
	return format_part(to, "request", options->request);
}

static bool format_limit(const struct gl_options *options, struct writer *to)
{
	return format_part(to, "limit", options->limit);
}

static const struct key {
	const char *name, *example;
	uint32_t bit;
	int (*parse)(const char *value, struct gl_options *out, struct fault fault);
	bool (*format)(const struct gl_options *options, struct writer *to);
} keys[] = {
#define OPTION_KEY(NAME, name, bit, example, help)                                                 \
	{#name, example, GL_KEY_##NAME, parse_##name, format_##name},
#include "keys.def"
#undef OPTION_KEY
};

#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

const char *gl_option_key_name(size_t number)
{
	return number < N_KEYS ? keys[number].name : NULL;
}

/* Writes the names of all keys, as in "tq, lock and mem". Those that do not fit are left out. */
static const char *key_names(char *text, size_t size)
{
	struct writer to = {text, size, 0};

	text[0] = '\0';
	for (size_t i = 0; i < N_KEYS; i++)
		if (!append(&to, "%s%s", i + 1 == N_KEYS ? " and " : i ? ", " : "", keys[i].name))
			break;
	return text;
}

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (!strcmp(name, keys[i].name))
			return &keys[i];
	return NULL;
}

/* Parses one KEY:VALUE, which is changed. */
static int parse_pair(char *pair, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4], names[GL_OPTIONS_ERROR];
	char *colon = strchr(pair, ':');
	const struct key *key;

	if (colon)
		*colon = '\0';
	key = find_key(pair);
	if (key && (!colon || !colon[1]))
		return refuse(fault, "%s has no value; write for example %s", key->name,
		              key->example);
	if (!colon || colon == pair)
		return refuse(fault, "'%s%s' is not KEY:VALUE; write for example tq:60,lock:auto",
		              shown(pair, strlen(pair), text), colon ? ":" : "");
	if (!key)
		return refuse(fault, "unknown key '%s'; the keys are %s",
		              shown(pair, strlen(pair), text), key_names(names, sizeof(names)));
	if (out->given & key->bit)
		return refuse(fault, "%s is given twice; give each key once", pair);
	out->given |= key->bit;
	return key->parse(colon + 1, out, fault);
}

/* What two keys say together. */
static int check_share(const struct gl_options *options, struct fault fault)
{
	bool requests = (options->given & GL_KEY_REQUEST) && options->request > 0;
	bool limited = (options->given & GL_KEY_LIMIT) && options->limit < 1;

	if (requests && limited && options->request > options->limit)
		return refuse(fault,
		              "request:%g is above limit:%g; a job cannot have more than its limit",
		              options->request, options->limit);
	if ((requests || limited) && (options->given & GL_KEY_LOCK) && options->lock == GL_LOCK_OFF)
		return refuse(fault, "%s with lock:off, which takes no turns; leave lock:off out",
		              requests ? "request" : "limit");
	return 0;
}

int gl_options_parse(const char *text, struct gl_options *out, char *error, size_t error_size)
{
	struct fault fault = {error, error_size};
	struct gl_options options = {0};
	char copy[GL_OPTIONS_TEXT];
	char *next = copy;

	if (!text || !*text)
		return refuse(fault, "the value is empty; write for example tq:60,lock:auto");
	if (strnlen(text, sizeof(copy)) == sizeof(copy))
		return refuse(fault, "the value is longer than %d bytes; give each key once",
		              GL_OPTIONS_TEXT - 1);
	strcpy(copy, text);
	while (next) {
		char *pair = next;

		next = strchr(pair, ',');
		if (next)
			*next++ = '\0';
		if (parse_pair(pair, &options, fault) < 0)
			return -1;
	}
	if (check_share(&options, fault) < 0)
		return -1;
	*out = options;
	return 0;
}

int gl_options_format(const struct gl_options *options, char *text, size_t size)
{
	struct writer to = {text, size, 0};

	if (!size)
		return -1;
	text[0] = '\0';
	for (size_t i = 0; i < N_KEYS; i++)
		if ((options->given & keys[i].bit) && !keys[i].format(options, &to))
			return -1;
	if (to.used)
		text[to.used - 1] = '\0'; /* the last comma */
	return 0;
}

const char *gl_options_help(void)
{
	return "--gpu-share=KEY:VALUE[,KEY:VALUE...]\n"
#define OPTION_KEY(NAME, name, bit, example, help) help
#include "keys.def"
#undef OPTION_KEY
	       "With --gres=shard:N. The same text in the environment variable GPU_SHARE is the\n"
	       "default of such jobs.\n";
}
