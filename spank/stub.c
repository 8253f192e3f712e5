/* stub.c: every slurm_spank_* function of the plugin, for each context that Slurm calls it in.
 *
 * sbatch, salloc and srun run nothing but C. On a node we never refuse a job where a failing
 * function would drain the node: in user_init, task_post_fork and job_prolog. And no refusal is
 * returned to Slurm, which would heed it only if plugstack.conf says `required`.
 */
#include "share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(gpu_share, 1)

static struct arguments arguments;
static char option_text[GL_OPTIONS_TEXT + 1]; /* if it is cut it is too long for the grammar */
static bool option_given;

static int on_option(int value, const char *text, int remote);

/* The names of all keys: " tq lock mem" and so on. */
#define OPTION_KEY(NAME, member, key, bit, values, example, help) " " key
static const char usage[] = "share a GPU (with --gres=shard:N); keys:"
#include "keys.def"
                            "; help explains them";
#undef OPTION_KEY

/* slurm_spank_init() registers it, since Slurm itself reads such a table in srun, not in sbatch. */
static struct spank_option options_table[] = {
    {"gpu-share", "KEY:VALUE[,KEY:VALUE...]|help", (char *)usage, 1, 0, on_option},
};

static int on_option(int value, const char *text, int remote)
{
	(void)value;
	if (!remote) {
		submit_take_option(text ? text : "");
		return 0;
	}
	/* On the node the daemon checks the text again, and refuses it where that drains nothing.
	 */
	snprintf(option_text, sizeof(option_text), "%s", text ? text : "");
	option_given = true;
	return 0;
}

static bool submitting(void)
{
	return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	int faults = arguments_parse(ac, av, &arguments);

	if (!submitting() && spank_context() != S_CTX_REMOTE)
		return 0;
	if (submitting() && faults)
		exit(1); /* arguments_parse() has said why; on a node that is only logged */
	if (spank_context() == S_CTX_ALLOCATOR)
		submit_forget_inherited_option();
	if (spank_option_register(sp, &options_table[0]) != ESPANK_SUCCESS)
		slurm_error(
		    "gpu-share: Slurm does not register --gpu-share; does another plugin in "
		    "plugstack.conf have an option of that name?");
	return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	if (submitting())
		submit_check(&arguments);
	if (spank_context() != S_CTX_REMOTE)
		return 0;
	if (!option_given &&
	    spank_getenv(sp, ENV_OPTION, option_text, sizeof(option_text)) == ESPANK_ENV_NOEXIST)
		option_text[0] = '\0';
	remote_register(sp, &arguments, (struct step_option){option_text, option_given});
	return 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	remote_task_init(sp);
	return 0;
}

/* Called without slurm_spank_init(). It always succeeds, since a failure would drain the node. */
int slurm_spank_job_epilog(spank_t sp, int ac, char **av)
{
	uint32_t job_id;

	(void)arguments_parse(ac, av, &arguments);
	if (spank_get_item(sp, S_JOB_ID, &job_id) == ESPANK_SUCCESS &&
	    sharing_jobs_remove(arguments.admin_socket, job_id))
		notify_job_end(arguments.admin_socket, job_id);
	return 0;
}
