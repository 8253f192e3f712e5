/* grammar.h: the one grammar of --gpu-share, GPU_SHARE and the config's defaults.
 *
 *   KEY:VALUE[,KEY:VALUE...]
 *   tq:<seconds|Ns|Nms|Nm>   lock:on|off|auto   mem:<fraction|N%|size>
 *   oversub:on|off           memory:managed|swap|auto
 *
 * Pure C without allocation, so that the stub can refuse bad syntax in sbatch;
 * Python reaches the same functions through cffi. What stands between the two
 * cffi marks must be plain C declarations.
 */
#ifndef GPU_LEASE_GRAMMAR_H
#define GPU_LEASE_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define GL_OPTIONS_TEXT 256  /* longest option text, with its NUL */
#define GL_OPTIONS_ERROR 256 /* room for one sentence */

enum gl_option_key { /* bits of gl_options.given */
#define OPTION_KEY(NAME, name, bit, example, help) GL_KEY_##NAME = (bit),
#include "keys.def"
#undef OPTION_KEY
};

enum gl_lock { GL_LOCK_ON = 1, GL_LOCK_OFF = 2, GL_LOCK_AUTO = 3 };

enum gl_memory_kind { GL_MEMORY_MANAGED = 1, GL_MEMORY_SWAP = 2, GL_MEMORY_AUTO = 3 };

struct gl_options {
	uint32_t given;      /* which keys were written */
	uint32_t lock;       /* enum gl_lock */
	uint64_t quantum_ns; /* tq */
	double mem_fraction; /* mem as a fraction of the device, (0, 1]; else 0 */
	uint64_t mem_bytes;  /* mem as a size; else 0 */
	uint32_t oversub;    /* 0 or 1 */
	uint32_t memory;     /* enum gl_memory_kind */
};

/* Parse text. 0: *out holds it. -1: *out is untouched and error holds one
 * sentence that names the fault and the remedy. Each key at most once. */
int gl_options_parse(const char *text, struct gl_options *out, char *error, size_t error_size);

/* The keys that are given, in one canonical order. 0, or -1 if text is too small. */
int gl_options_format(const struct gl_options *options, char *text, size_t text_size);

/* The name of a key, in the canonical order; NULL beyond the last. */
const char *gl_option_key_name(size_t number);

/* What --gpu-share=help prints. */
const char *gl_options_help(void);
/* cffi:end */

#endif
