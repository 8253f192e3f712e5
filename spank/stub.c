/* stub.c: every slurm_spank_* entry, dispatched by context; the option and its checks.
 *
 * sbatch, salloc and srun only run C: the syntax and the site's limits are
 * checked before a job exists. What a failing hook does to a node decides
 * where we may refuse: never in user_init, task_post_fork or job_prolog.
 */
#include "share.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(gpu_share, 1)

static struct arguments arguments;
static char option_text[GL_OPTIONS_TEXT];
static bool option_given;

static int on_option(int value, const char *text, int remote);

/* Registered by hand: Slurm looks at a table of this name in srun only, not in sbatch. */
static struct spank_option options_table[] = {
    {"gpu-share", "KEY:VALUE[,KEY:VALUE...]|help",
     "share a GPU (with --gres=shard:N): tq, lock, mem, oversub, memory; help lists them", 1, 0,
     on_option},
};

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
	if (!strcmp(text, "lock_off=no") || !strcmp(text, "lock_off=yes")) {
		out->lock_off = text[9] == 'y';
		return 0;
	}
	slurm_error(
	    "gpu-share: plugstack.conf: unknown argument '%s'; known are admin_socket=, tq_min=, "
	    "tq_max= and lock_off=yes|no",
	    text);
	return -1;
}

int arguments_parse(int ac, char **av, struct arguments *out)
{
	int result = 0;

	*out = (struct arguments){.admin_socket = DEFAULT_ADMIN_SOCKET, .lock_off = true};
	for (int i = 0; i < ac; i++)
		if (set_argument(av[i], out))
			result = -1;
	return result;
}

/* The option's value, wherever it came from: 0, or -1 after one clear sentence. */
static int take_option(const char *text)
{
	struct gl_options options;
	char error[GL_OPTIONS_ERROR];

	if (gl_options_parse(text, &options, error, sizeof(error))) {
		slurm_error("gpu-share: %s", error);
		return -1;
	}
	snprintf(option_text, sizeof(option_text), "%s", text);
	option_given = true;
	return 0;
}

static int on_option(int value, const char *text, int remote)
{
	(void)value;
	if (!remote && text && !strcmp(text, "help")) {
		fputs(gl_options_help(), stdout);
		exit(0); /* in sbatch, salloc or srun, like their own --help */
	}
	if (!take_option(text ? text : ""))
		return 0;
	/* On the node the daemon refuses it again, where that drains nothing. */
	return remote ? 0 : -1;
}

/* The site's limits as far as plugstack.conf tells them; the daemon has the last word. */
static int check_limits(void)
{
	struct gl_options options;
	char error[GL_OPTIONS_ERROR];

	if (gl_options_parse(option_text, &options, error, sizeof(error)))
		return -1;
	if (options.given & GL_KEY_TQ) {
		uint64_t low = arguments.tq_min_ns, high = arguments.tq_max_ns;

		if ((low && options.quantum_ns < low) || (high && options.quantum_ns > high)) {
			slurm_error("gpu-share: tq of %gs is outside this site's limits; choose "
			            "one between %gs "
			            "and %gs",
			            (double)options.quantum_ns / 1e9, (double)low / 1e9,
			            high ? (double)high / 1e9 : 86400.0);
			return -1;
		}
	}
	if ((options.given & GL_KEY_LOCK) && options.lock == GL_LOCK_OFF && !arguments.lock_off) {
		slurm_error(
		    "gpu-share: lock:off is not allowed on this site; use lock:auto or lock:on");
		return -1;
	}
	return 0;
}

static bool submitting(void)
{
	return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	int result = arguments_parse(ac, av, &arguments);

	if (!submitting() && spank_context() != S_CTX_REMOTE)
		return 0;
	if (spank_option_register(sp, &options_table[0]) != ESPANK_SUCCESS) {
		slurm_error(
		    "gpu-share: cannot register --gpu-share; is another plugin offering it?");
		result = -1;
	}
	/* On a node a fault is only logged: failing here would take the node down. */
	return submitting() ? result : 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	const char *from_env = getenv(ENV_OPTION);
	char text[GL_OPTIONS_TEXT];

	(void)ac;
	(void)av;
	if (submitting()) {
		if (!option_given && from_env && *from_env && take_option(from_env)) {
			slurm_error(
			    "gpu-share: that value is from the environment variable " ENV_OPTION
			    "; change or unset it");
			return -1;
		}
		return option_given ? check_limits() : 0;
	}
	if (spank_context() != S_CTX_REMOTE)
		return 0;
	if (!option_given && spank_getenv(sp, ENV_OPTION, text, sizeof(text)) == ESPANK_SUCCESS &&
	    *text)
		snprintf(option_text, sizeof(option_text), "%s", text);
	remote_register(sp, &arguments, option_text);
	return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	(void)sp;
	(void)ac;
	(void)av;
	return remote_task_init();
}

/* Called without slurm_spank_init; always a success, or the node would drain. */
int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	uint32_t job_id;

	(void)arguments_parse(ac, av, &arguments);
	if (spank_get_item(sp, S_JOB_ID, &job_id) == ESPANK_SUCCESS)
		notify_job_end(arguments.admin_socket, job_id);
	return 0;
}
