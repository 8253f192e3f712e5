/* job_environment.c: what we add to the environment of a job's tasks, LD_PRELOAD above all.
 *
 * The steps of a job inherit its environment, and so do jobs that are submitted within it. So our
 * library is added only if it is not there, and removed from jobs that do not share.
 */
#include "share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_PRELOAD 32768
#define LIBRARY "libgpulease.so"
/* What leased/mps/mps.py sets under MPS: ENV_MPS has the value of the other one. */
#define ENV_MPS "GPU_LEASE_MPS"
#define ENV_MPS_PIPES "CUDA_MPS_PIPE_DIRECTORY"
#define LONGEST_PIPES 4096

static char preload[LONGEST_PRELOAD], changed[LONGEST_PRELOAD];

static bool is_part(const char *part, size_t length, const char *library)
{
	return length == strlen(library) && !strncmp(part, library, length);
}

/* The directory does not matter: a job may come from a machine that has the library elsewhere. */
bool is_our_library(const char *part, size_t length)
{
	const char *slash = memrchr(part, '/', length);
	const char *name = slash ? slash + 1 : part;

	return is_part(name, length - (size_t)(name - part), LIBRARY);
}

bool list_without(const char *text, const char *separators, list_test *is_ours, char *out,
                  size_t size)
{
	bool found = false;
	size_t used = 0;

	if (size)
		out[0] = '\0';
	while (*text) {
		size_t length = strcspn(text, separators);

		if (is_ours(text, length)) {
			found = true;
		} else if (length) {
			if (used + length + 2 > size)
				return false;
			used += (size_t)snprintf(out + used, size - used, "%.*s%.*s", used ? 1 : 0,
			                         separators, (int)length, text);
		}
		text += length + (text[length] != '\0');
	}
	return found;
}

/* -- the environment of a job, or without one this program's own (sp is NULL) -------------- */

bool environment_get(spank_t sp, const char *name, char *value, size_t size)
{
	const char *own = sp ? NULL : getenv(name);

	if (sp ? spank_getenv(sp, name, value, (int)size) == ESPANK_SUCCESS
	       : own && snprintf(value, size, "%s", own) < (int)size)
		return true;
	value[0] = '\0';
	return false;
}

void environment_set(spank_t sp, const char *name, const char *value)
{
	if (sp)
		spank_setenv(sp, name, value, 1);
	else
		setenv(name, value, 1);
}

void environment_unset(spank_t sp, const char *name)
{
	if (sp)
		spank_unsetenv(sp, name);
	else
		unsetenv(name);
}

void environment_take_out(spank_t sp, const char *name, const char *separators, list_test *is_ours)
{
	if (!environment_get(sp, name, preload, sizeof(preload)) ||
	    !list_without(preload, separators, is_ours, changed, sizeof(changed)))
		return;
	if (*changed)
		environment_set(sp, name, changed);
	else
		environment_unset(sp, name);
}

void environment_remove_library(spank_t sp)
{
	environment_take_out(sp, "LD_PRELOAD", ": ", is_our_library);
}

static bool has_library(const char *text, const char *library)
{
	while (*text) {
		size_t length = strcspn(text, ": ");

		if (is_part(text, length, library))
			return true;
		text += length + (text[length] != '\0');
	}
	return false;
}

/* Our library comes behind those of the user. */
int job_environment_add_library(spank_t sp, const char *library)
{
	spank_err_t got = spank_getenv(sp, "LD_PRELOAD", preload, sizeof(preload));

	if (got == ESPANK_NOSPACE)
		return -1;
	if (got != ESPANK_SUCCESS)
		preload[0] = '\0';
	if (has_library(preload, library))
		return 0;
	if (snprintf(changed, sizeof(changed), "%s%s%s", preload, *preload ? ":" : "", library) >=
	    (int)sizeof(changed))
		return -1;
	spank_setenv(sp, "LD_PRELOAD", changed, 1);
	return 0;
}

/* A pipe directory that is not ours stays: the user has set it. */
void job_environment_remove_mps(spank_t sp)
{
	static char ours[LONGEST_PIPES], now[LONGEST_PIPES];

	if (spank_getenv(sp, ENV_MPS, ours, sizeof(ours)) != ESPANK_SUCCESS)
		return;
	spank_unsetenv(sp, ENV_MPS);
	if (spank_getenv(sp, ENV_MPS_PIPES, now, sizeof(now)) != ESPANK_SUCCESS ||
	    strcmp(now, ours) != 0)
		return;
	spank_unsetenv(sp, ENV_MPS_PIPES);
	spank_unsetenv(sp, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
}

void job_environment_remove_ours(spank_t sp)
{
	job_environment_remove_mps(sp);
	spank_unsetenv(sp, ENV_SOCKET);
	spank_unsetenv(sp, ENV_OPTION_OF_JOB); /* srun would take it for its own option */
	environment_remove_library(sp);
}
