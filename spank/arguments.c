/* arguments.c: the arguments of the plugin's line in plugstack.conf. */
#include "share.h"

#include <stdio.h>
#include <string.h>

static int set_time(const char *name, const char *value, uint64_t *out)
{
	struct gl_options options;
	char text[GL_OPTIONS_TEXT], error[GL_OPTIONS_ERROR];

	if (snprintf(text, sizeof(text), "tq:%s", value) >= (int)sizeof(text) ||
	    gl_options_parse(text, &options, error, sizeof(error))) {
		slurm_error(
		    "gpu-share: plugstack.conf: %s=%s is not a time; write for example %s=5s", name,
		    value, name);
		return -1;
	}
	*out = options.quantum_ns;
	return 0;
}

/* Reads NAME=yes or NAME=no. Returns false if the text is neither. */
static bool set_switch(const char *text, const char *name, bool *out)
{
	size_t length = strlen(name);
	bool yes;

	if (strncmp(text, name, length) || text[length] != '=')
		return false;
	yes = !strcmp(text + length + 1, "yes");
	if (!yes && strcmp(text + length + 1, "no"))
		return false;
	*out = yes;
	return true;
}

static int set_argument(const char *text, struct arguments *out)
{
	if (!strncmp(text, "admin_socket=", 13)) {
		if (strlen(text + 13) >= sizeof(out->admin_socket)) {
			slurm_error("gpu-share: plugstack.conf: %s is too long for a socket", text);
			return -1;
		}
		strcpy(out->admin_socket, text + 13);
		return 0;
	}
	if (!strncmp(text, "tq_min=", 7))
		return set_time("tq_min", text + 7, &out->tq_min_ns);
	if (!strncmp(text, "tq_max=", 7))
		return set_time("tq_max", text + 7, &out->tq_max_ns);
	if (set_switch(text, "lock_off", &out->lock_off) ||
	    set_switch(text, "check_gres", &out->check_gres) ||
	    set_switch(text, "several_nodes", &out->several_nodes) ||
	    set_switch(text, "containers", &out->containers))
		return 0;
	slurm_error(
	    "gpu-share: plugstack.conf: unknown argument '%s'; known are admin_socket=, tq_min=, "
	    "tq_max=, lock_off=yes|no, check_gres=yes|no, several_nodes=yes|no and "
	    "containers=yes|no",
	    text);
	return -1;
}

/* All arguments are read even after a wrong one, so that each wrong one is named. */
int arguments_parse(int ac, char **av, struct arguments *out)
{
	int result = 0;

	*out = (struct arguments){.admin_socket = DEFAULT_ADMIN_SOCKET,
	                          .lock_off = true,
	                          .check_gres = true,
	                          .containers = true};
	for (int i = 0; i < ac; i++)
		if (set_argument(av[i], out))
			result = -1;
	return result;
}
