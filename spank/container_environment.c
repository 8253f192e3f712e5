/* container_environment.c: variables by which containers of a job that shares get the interposer
 * and the daemon's socket.
 *
 * GPU_LEASE_LIBRARY is for the hooks in packaging/containers. Apptainer and Singularity read their
 * own variables: *_BIND lists what of the host a container has, and *ENV_NAME sets NAME in it,
 * whatever else of the environment stays out (--cleanenv). A variable of Apptainer's counts more
 * than Singularity's of the same name, and Apptainer complains if the two differ. So where the user
 * has set one of the two, both get that one's value with ours behind it.
 */
#include "share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 32768
#define RUNTIMES 2

static const char *const bind_names[RUNTIMES] = {"APPTAINER_BIND", "SINGULARITY_BIND"};
static const char *const preload_names[RUNTIMES] = {"APPTAINERENV_LD_PRELOAD",
                                                    "SINGULARITYENV_LD_PRELOAD"};
static const char *const socket_names[RUNTIMES] = {"APPTAINERENV_" ENV_SOCKET,
                                                   "SINGULARITYENV_" ENV_SOCKET};

/* A value of each variable of a pair, and space for the next one. */
static char values[RUNTIMES][LONGEST], rest[LONGEST], changed[LONGEST];
static char directory[128]; /* of the socket that the environment names; "" if it names none */

/* -- what is ours in it ---------------------------------------------------------------------- */

/* Reads where the socket is, or was for the job before this one. */
static void read_directory(spank_t sp)
{
	char *slash;

	if (!environment_get(sp, ENV_SOCKET, directory, sizeof(directory)))
		environment_get(sp, socket_names[0], directory, sizeof(directory));
	slash = strrchr(directory, '/');
	if (slash)
		*slash = '\0';
}

/* A part of *_BIND begins with a path of the host, which ends at a colon. */
static bool is_our_bind(const char *part, size_t length)
{
	const char *colon = memchr(part, ':', length);
	size_t path = colon ? (size_t)(colon - part) : length;

	return is_our_library(part, path) ||
	       (*directory && path == strlen(directory) && !strncmp(part, directory, path));
}

/* Is a variable longer than what we can add to? */
static bool is_too_long(spank_t sp, const char *name)
{
	return spank_getenv(sp, name, changed, (int)sizeof(changed)) == ESPANK_NOSPACE;
}

/* Sets both variables of a pair to what they were, without what is ours, and `ours` behind it. If
 * neither is set they begin with `start`. What would become too long stays as it is. */
static void append(spank_t sp, const char *const names[RUNTIMES], const char *separators,
                   list_test *is_ours, const char *start, const char *ours)
{
	bool there[RUNTIMES];

	for (int i = 0; i < RUNTIMES; i++) {
		if (is_too_long(sp, names[i]))
			return;
		there[i] = environment_get(sp, names[i], values[i], LONGEST);
	}
	for (int i = 0; i < RUNTIMES; i++) {
		const char *from = there[i] ? values[i] : there[!i] ? values[!i] : start;

		list_without(from, separators, is_ours, rest, sizeof(rest));
		if (snprintf(changed, sizeof(changed), "%s%.*s%s", rest, *rest ? 1 : 0, separators,
		             ours) < (int)sizeof(changed))
			environment_set(sp, names[i], changed);
	}
}

void container_environment_add(spank_t sp, const char *library)
{
	char preload[LONGEST], binds[LONGEST / 4], socket[128];

	environment_set(sp, ENV_LIBRARY, library);
	read_directory(sp);
	/* Paths with such characters cannot be written in a list of binds. */
	if (!*directory || strpbrk(library, ",:\\ ") || strpbrk(directory, ",:\\ ") ||
	    snprintf(binds, sizeof(binds), "%s:%s:ro,%s:%s:ro", library, library, directory,
	             directory) >= (int)sizeof(binds) ||
	    !environment_get(sp, ENV_SOCKET, socket, sizeof(socket)))
		return;
	environment_get(sp, "LD_PRELOAD", preload, sizeof(preload));
	append(sp, bind_names, ",", is_our_bind, "", binds);
	append(sp, preload_names, ": ", is_our_library, preload, library);
	for (int i = 0; i < RUNTIMES; i++)
		environment_set(sp, socket_names[i], socket);
}

void container_environment_remove(spank_t sp)
{
	read_directory(sp);
	for (int i = 0; i < RUNTIMES; i++) {
		environment_take_out(sp, bind_names[i], ",", is_our_bind);
		environment_take_out(sp, preload_names[i], ": ", is_our_library);
		environment_unset(sp, socket_names[i]);
	}
	environment_unset(sp, ENV_LIBRARY);
}
