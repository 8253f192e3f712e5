/* grammar.c: parses and writes the text of --gpu-share, key by key. */
#include "grammar.h"

#include "option_values.h"

#include <string.h>

static const struct key {
	const char *name, *example;
	uint32_t bit;
	int (*parse)(const char *value, struct gl_options *out, struct fault fault);
	bool (*format)(const struct gl_options *options, struct writer *to);
} keys[] = {
#define OPTION_KEY(NAME, name, key, bit, example, help)                                            \
	{key, example, GL_KEY_##NAME, parse_##name, format_##name},
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
	bool classed = (options->given & GL_KEY_CLASS) && options->job_class != GL_CLASS_NONE;

	if (classed && (requests || limited))
		return refuse(fault,
		              "a job with a class has no share of the GPU's time; leave %s out, or "
		              "class",
		              requests ? "request" : "limit");
	if (classed && (options->given & GL_KEY_LOCK) && options->lock == GL_LOCK_OFF)
		return refuse(fault,
		              "a job with a class heeds the lock where memory does not fit; leave "
		              "lock:off out, or class");
	if (requests && limited && options->request > options->limit)
		return refuse(fault,
		              "request:%g is above limit:%g; a job cannot have more than its limit",
		              options->request, options->limit);
	if ((requests || limited) && (options->given & GL_KEY_LOCK) && options->lock == GL_LOCK_OFF)
		return refuse(fault, "%s needs turns, and lock:off takes none; leave lock:off out",
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
#define OPTION_KEY(NAME, name, key, bit, example, help) help
#include "keys.def"
#undef OPTION_KEY
	       "With --gres=shard:N. The same text in the environment variable GPU_SHARE is the\n"
	       "default of such jobs.\n";
}
