/* grammar.c: parses and writes the text of --gpu-share, key by key. */
#include "grammar.h"

#include "option_values.h"

#include <string.h>

#define WORDS(words) GL_VALUES_WORDS, words, 0, 0
#define TIME(least, most) GL_VALUES_TIME, NULL, least, most
#define AMOUNT(least, most) GL_VALUES_AMOUNT, NULL, least, most
#define PART(least) GL_VALUES_PART, NULL, least, 1
#define LABEL GL_VALUES_LABEL, NULL, 0, 0

static const struct row {
	struct gl_key_row key;
	size_t member; /* where its value is in struct gl_options */
} rows[] = {
#define OPTION_KEY(NAME, member, said, bit, values, example, help)                                 \
	{{said, example, GL_KEY_##NAME, values}, offsetof(struct gl_options, member)},
#include "keys.def"
#undef OPTION_KEY
};

#define N_KEYS (sizeof(rows) / sizeof(rows[0]))

const struct gl_key_row *gl_option_key_at(size_t number)
{
	return number < N_KEYS ? &rows[number].key : NULL;
}

/* Writes the names of all keys, as in "tq, lock and mem". Those that do not fit are left out. */
static const char *key_names(char *text, size_t size)
{
	struct writer to = {text, size, 0};

	text[0] = '\0';
	for (size_t i = 0; i < N_KEYS; i++)
		if (!append(&to, "%s%s",
		            !i               ? ""
		            : i + 1 < N_KEYS ? ", "
		                             : " and ",
		            rows[i].key.name))
			break;
	return text;
}

static const struct row *find_key(const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (!strcmp(name, rows[i].key.name))
			return &rows[i];
	return NULL;
}

/* Parses one KEY:VALUE, which is changed. */
static int parse_pair(char *pair, struct gl_options *out, struct fault fault)
{
	char text[SHOWN + 4], names[GL_OPTIONS_ERROR];
	char *colon = strchr(pair, ':');
	const struct row *row;

	if (colon)
		*colon = '\0';
	row = find_key(pair);
	if (row && (!colon || !colon[1]))
		return refuse(fault, "%s has no value; write for example %s", row->key.name,
		              row->key.example);
	if (!colon || colon == pair)
		return refuse(fault, "'%s%s' is not KEY:VALUE; write for example tq:60,lock:auto",
		              shown(pair, strlen(pair), text), colon ? ":" : "");
	if (!row)
		return refuse(fault, "unknown key '%s'; the keys are %s",
		              shown(pair, strlen(pair), text), key_names(names, sizeof(names)));
	if (out->given & row->key.bit)
		return refuse(fault, "%s is given twice; give each key once", pair);
	out->given |= row->key.bit;
	return parse_value(&row->key, colon + 1, out, (char *)out + row->member, fault);
}

/* What a value says, as conflicts.def has it. */
enum {
	REQUESTS = 1,
	LIMITED = 2,
	SMALLER = 4,
	CLASSED = 8,
	UNLOCKED = 16,
	PARTED = 32,
	TIMED = 64
};

static int said_by(const struct gl_options *options)
{
	int said = 0;

	if ((options->given & GL_KEY_REQUEST) && options->request > 0)
		said |= REQUESTS;
	if ((options->given & GL_KEY_LIMIT) && options->limit < 1)
		said |= LIMITED | (options->limit < options->request ? SMALLER : 0);
	if ((options->given & GL_KEY_CLASS) && options->job_class != GL_CLASS_NONE)
		said |= CLASSED;
	if ((options->given & GL_KEY_LOCK) && options->lock == GL_LOCK_OFF)
		said |= UNLOCKED;
	if ((options->given & GL_KEY_SM) && options->sm < 1)
		said |= PARTED;
	if ((options->given & GL_KEY_SPACE) && options->space == GL_SPACE_TIME)
		said |= TIMED;
	return said;
}

static int check_conflicts(const struct gl_options *options, struct fault fault)
{
	static const struct {
		int one, other;
		const char *sentence;
	} conflicts[] = {
#define CONFLICT(ONE, OTHER, sentence) {ONE, OTHER, sentence},
#include "conflicts.def"
#undef CONFLICT
	};
	int said = said_by(options);

	for (size_t i = 0; i < sizeof(conflicts) / sizeof(*conflicts); i++)
		if ((said & conflicts[i].one) && (said & conflicts[i].other))
			return refuse(fault, conflicts[i].sentence, options->request,
			              options->limit);
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
	if (check_conflicts(&options, fault) < 0)
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
		if ((options->given & rows[i].key.bit) &&
		    !format_value(&rows[i].key, options, (const char *)options + rows[i].member,
		                  &to))
			return -1;
	if (to.used)
		text[to.used - 1] = '\0'; /* the last comma */
	return 0;
}

const char *gl_options_help(void)
{
	return "--gpu-share=KEY:VALUE[,KEY:VALUE...]\n"
#define OPTION_KEY(NAME, member, key, bit, values, example, help) help
#include "keys.def"
#undef OPTION_KEY
	       "With --gres=shard:N. The same text in the environment variable GPU_SHARE is the\n"
	       "default of such jobs.\n";
}
