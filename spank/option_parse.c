/* option_parse.c: reads the values of --gpu-share. */
#include "option_values.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FRACTIONS 1e12 /* a fraction of the device is stored in such parts (format_amount) */

int refuse(struct fault fault, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (fault.text && fault.size)
		vsnprintf(fault.text, fault.size, format, args);
	va_end(args);
	return -1;
}

const char *shown(const char *text, size_t length, char out[SHOWN + 4])
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

static int read_time(const struct gl_key_row *key, const char *value, uint64_t *out,
                     struct fault fault)
{
	char text[SHOWN + 4];
	const char *at = value;
	double number = 0, unit = -1;

	if (read_decimal(&at, &number)) {
		if (!*at || !strcmp(at, "s"))
			unit = 1e3;
		else if (!strcmp(at, "ms"))
			unit = 1;
		else if (!strcmp(at, "m"))
			unit = 60e3;
	}
	if (unit < 0)
		return refuse(fault, "tq:%s is not a time; write seconds (30), 30s, 500ms or 2m",
		              shown(value, strlen(value), text));
	number *= unit;
	if (number < key->least || number > key->most)
		return refuse(fault, "tq:%s is out of range; a quantum is from %gms to %gm",
		              shown(value, strlen(value), text), key->least, key->most / 60e3);
	*out = (uint64_t)(number * (double)NS_PER_MS + 0.5);
	return 0;
}

/* The number of a word; 0: it is none of the key's. */
static uint32_t number_of(const struct gl_key_row *key, const char *value)
{
	uint32_t number = 1;

	for (const char *at = key->words; at; at = strchr(at, '|'), number++) {
		at += *at == '|';
		if (strcspn(at, "|") == strlen(value) && !strncmp(at, value, strlen(value)))
			return number;
	}
	return 0;
}

static int read_word(const struct gl_key_row *key, const char *value, uint32_t *out,
                     struct fault fault)
{
	char text[SHOWN + 4], list[GL_OPTIONS_ERROR] = "";
	struct writer to = {list, sizeof(list), 0};

	*out = number_of(key, value);
	if (*out) {
		if (key->bit == GL_KEY_OVERSUB)
			*out = *out == 1; /* on */
		return 0;
	}
	for (const char *at = key->words; at; at = strchr(at, '|')) {
		const char *between = at == key->words ? "" : strchr(at + 1, '|') ? ", " : " or ";

		at += *at == '|';
		append(&to, "%s%s:%.*s", between, key->name, (int)strcspn(at, "|"), at);
	}
	return refuse(fault, "%s:%s is not known; write %s", key->name,
	              shown(value, strlen(value), text), list);
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

static int read_amount(const struct gl_key_row *key, const char *value, struct gl_options *out,
                       struct fault fault)
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
		if (!(number >= 0.5 / FRACTIONS && number <= 1))
			return refuse(
			    fault,
			    "mem:%s is no fraction of the device; write one above 0 and up to 1, "
			    "or a size with its unit (20GiB)",
			    text);
		/* As it is stored. */
		out->mem_fraction = (double)(uint64_t)(number * FRACTIONS + 0.5) / FRACTIONS;
		out->mem_bytes = 0;
		return 0;
	}
	unit = size_unit(at);
	if (!unit)
		return refuse(
		    fault, "mem:%s has an unknown unit; write K, M, G or T (20G or 20GiB)", text);
	number *= (double)unit;
	if (number < key->least || number > key->most)
		return refuse(fault, "mem:%s is out of range; a size is from %gMiB to %gTiB", text,
		              key->least / (1 << 20), key->most / (1LL << 40));
	out->mem_bytes = (uint64_t)number >> 10 << 10; /* as it is stored */
	out->mem_fraction = 0;
	return 0;
}

/* Reads a part of the device, of its time or of its multiprocessors. */
static int read_part(const struct gl_key_row *key, const char *value, double *out,
                     struct fault fault)
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
		    fault, "%s:%s is no part of the GPU's %s; write a fraction up to 1 (0.3, 30%%)",
		    key->name, shown(value, strlen(value), text),
		    key->bit == GL_KEY_SM ? "multiprocessors" : "time");
	if (number < key->least)
		return refuse(fault, "%s:%g is too little to compute; write %g or more", key->name,
		              number, key->least);
	*out = number;
	return 0;
}

/* Reads a label. It travels through Slurm's commands and comments, so it has no odd characters. */
static int read_label(const struct gl_key_row *key, const char *value, char out[GL_LABEL_TEXT],
                      struct fault fault)
{
	static const char known[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
	char text[SHOWN + 4];
	size_t length = strlen(value);

	if (length >= GL_LABEL_TEXT || strspn(value, known) < length)
		return refuse(
		    fault,
		    "%s:%s is no label; write letters, digits, '-', '_' and '.', at most %d, "
		    "or none",
		    key->name, shown(value, length, text), GL_LABEL_TEXT - 1);
	strcpy(out, strcmp(value, "none") ? value : "");
	return 0;
}

int parse_value(const struct gl_key_row *key, const char *value, struct gl_options *out,
                void *member, struct fault fault)
{
	switch (key->values) {
	case GL_VALUES_WORDS:
		return read_word(key, value, member, fault);
	case GL_VALUES_TIME:
		return read_time(key, value, member, fault);
	case GL_VALUES_AMOUNT:
		return read_amount(key, value, out, fault);
	case GL_VALUES_PART:
		return read_part(key, value, member, fault);
	default:
		return read_label(key, value, member, fault);
	}
}
