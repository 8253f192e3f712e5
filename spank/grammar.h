/* grammar.h: the one grammar of --gpu-share, of GPU_SHARE and of the defaults in gpu-leased.toml.
 *
 *   KEY:VALUE[,KEY:VALUE...]
 *
 * keys.def lists the keys and their values.
 *
 * The functions allocate nothing and depend on the C library only, so that sbatch can refuse bad
 * syntax. Python calls the same functions through cffi, which reads the declarations between the
 * two cffi marks: there may be only plain C declarations and constants.
 */
#ifndef GPU_LEASE_GRAMMAR_H
#define GPU_LEASE_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define GL_OPTIONS_TEXT 512  /* bytes of the longest text, with its NUL */
#define GL_OPTIONS_ERROR 256 /* bytes for an error, which is one sentence */
#define GL_LABEL_TEXT 64     /* bytes of the longest label, with its NUL */

enum gl_option_key { /* bits of gl_options.given */
#define OPTION_KEY(NAME, member, key, bit, values, example, help) GL_KEY_##NAME = (bit),
#include "keys.def"
#undef OPTION_KEY
};

enum gl_lock { GL_LOCK_ON = 1, GL_LOCK_OFF = 2, GL_LOCK_AUTO = 3 };

enum gl_memory_kind { GL_MEMORY_MANAGED = 1, GL_MEMORY_SWAP = 2, GL_MEMORY_AUTO = 3 };

enum gl_space { GL_SPACE_TIME = 1, GL_SPACE_MPS = 2 };

enum gl_class { GL_CLASS_ONLINE = 1, GL_CLASS_OFFLINE = 2, GL_CLASS_NONE = 3 };

struct gl_options {
	uint32_t given;      /* the keys in the text: bits of enum gl_option_key */
	uint32_t lock;       /* enum gl_lock */
	uint64_t quantum_ns; /* tq */
	double mem_fraction; /* mem as a fraction of the device, above 0 and up to 1; else 0 */
	uint64_t mem_bytes;  /* mem as a size in bytes; else 0 */
	uint32_t oversub;    /* 0 or 1 */
	uint32_t memory;     /* enum gl_memory_kind */
	double request;      /* the part of the device's time that it has at least, from 0 to 1 */
	double limit;        /* and at most, above 0 and up to 1 */
	char affinity[GL_LABEL_TEXT]; /* labels: which jobs may be on its GPU; "": none */
	char anti_affinity[GL_LABEL_TEXT];
	char exclusion[GL_LABEL_TEXT];
	uint32_t job_class; /* enum gl_class */
	uint32_t space;     /* enum gl_space */
	double sm; /* the part of the multiprocessors that it has at most, above 0 and up to 1 */
	char chain[GL_LABEL_TEXT]; /* the name of its chain; "": none but the job itself */
};

/* Parses a text, in which each key may stand once. Returns 0, or -1 after storing a sentence with
 * the fault and the remedy in `error`; then *out is unchanged. */
int gl_options_parse(const char *text, struct gl_options *out, char *error, size_t error_size);

/* Writes the keys that are given, in the canonical order. Returns 0, or -1 if `text` is too small.
 */
int gl_options_format(const struct gl_options *options, char *text, size_t text_size);

enum gl_values {
	GL_VALUES_WORDS =
	    1,              /* one of `words`, which has | between them; they are numbered from 1 */
	GL_VALUES_TIME = 2, /* from `least` to `most` ms */
	GL_VALUES_AMOUNT = 3, /* from `least` to `most` bytes, or a fraction */
	GL_VALUES_PART = 4,   /* a part of the device, from `least` to 1 */
	GL_VALUES_LABEL = 5   /* at most GL_LABEL_TEXT - 1 characters */
};

/* A row of keys.def. */
struct gl_key_row {
	const char *name;
	const char *example;
	uint32_t bit;    /* enum gl_option_key */
	uint32_t values; /* enum gl_values */
	const char *words;
	double least, most;
};

/* The key with this number in the canonical order, from 0 on; NULL after the last. */
const struct gl_key_row *gl_option_key_at(size_t number);

/* What --gpu-share=help prints. */
const char *gl_options_help(void);
/* cffi:end */

#endif
