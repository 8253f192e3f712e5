/* submit.c: in sbatch, salloc and srun, reads the option and refuses what can be refused before a
 * job exists.
 *
 * A refusal ends the program here. Slurm would end it only if plugstack.conf says `required`, and
 * would print three lines instead of one.
 */
#include "share.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char option_text[GL_OPTIONS_TEXT];
static bool option_given;
static unsigned components; /* how many of a heterogeneous job have been checked */

void submit_refuse(const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	slurm_error("gpu-share: %s", text);
	exit(1);
}

/* A job that is submitted within another one inherits the environment, but not the option. */
void submit_forget_inherited_option(void)
{
	unsetenv(ENV_OPTION_TRAVELS);
	unsetenv(ENV_OPTION_OF_JOB);
}

static void forget_inherited_environment(void)
{
	container_environment_remove(NULL);
	unsetenv("SLURM_SHARDS_ON_NODE");
	unsetenv(ENV_SOCKET);
	environment_remove_library(NULL);
}

void submit_take_option(const char *text)
{
	struct gl_options options;
	char error[GL_OPTIONS_ERROR];

	if (!strcmp(text, "help")) {
		fputs(gl_options_help(), stdout);
		exit(0); /* like Slurm's own --help */
	}
	if (gl_options_parse(text, &options, error, sizeof(error)))
		submit_refuse("%s", error);
	snprintf(option_text, sizeof(option_text), "%s", text);
	option_given = true;
}

/* Checks the site's limits that plugstack.conf has; the daemon checks all of them. where: a text
 * for the message that says where the value comes from; "" for the option. */
static void check_limits(const struct arguments *arguments, const char *text, const char *where)
{
	struct gl_options options;
	char error[GL_OPTIONS_ERROR];
	uint64_t low = arguments->tq_min_ns, high = arguments->tq_max_ns;

	if (gl_options_parse(text, &options, error, sizeof(error)))
		submit_refuse("%s%s", error, where);
	if ((options.given & GL_KEY_TQ) &&
	    ((low && options.quantum_ns < low) || (high && options.quantum_ns > high)))
		submit_refuse("tq of %gs is outside this site's limits; choose one between %gs and "
		              "%gs%s",
		              (double)options.quantum_ns / 1e9, (double)low / 1e9,
		              high ? (double)high / 1e9 : 86400.0, where);
	if ((options.given & GL_KEY_LOCK) && options.lock == GL_LOCK_OFF && !arguments->lock_off)
		submit_refuse("lock:off is not allowed on this site; use lock:auto or lock:on%s",
		              where);
}

enum refusal {
#define REFUSAL(NAME, sentence) NAME,
#include "refusals.def"
#undef REFUSAL
};

static void refuse_request(enum refusal why)
{
	static const char *const sentences[] = {
#define REFUSAL(NAME, sentence) [NAME] = (sentence),
#include "refusals.def"
#undef REFUSAL
	};

	submit_refuse("%s", sentences[why]);
}

static void check_request(const struct arguments *arguments, const struct job_request *job)
{
	if (job->shard && job->nodes > 1 && !arguments->several_nodes)
		refuse_request(SEVERAL_NODES);
	if (job->shard && job->gpu)
		refuse_request(BOTH);
	if (!option_given)
		return;
	if (job->shard && job->exclusive)
		refuse_request(EXCLUSIVE);
	/* The option applies to all components of a heterogeneous job, but not all have to share.
	 */
	if (job->shard || components > 1)
		return;
	refuse_request(job->gpu ? WHOLE : NO_SHARD);
}

/* Called once for each component of a job. */
void submit_check(const struct arguments *arguments)
{
	const char *from_env = getenv(ENV_OPTION);
	struct job_request job;

	components++;
	job_request_read(&job);
	if (option_given)
		check_limits(arguments, option_text, "");
	if (!job.known || job.step)
		return;
	forget_inherited_environment();
	if (!arguments->check_gres)
		return;
	check_request(arguments, &job);
	/* The environment variable is the default for jobs with a shard, and for no others. */
	if (!option_given && job.shard && from_env && *from_env)
		check_limits(arguments, from_env,
		             " (that value is from the environment variable " ENV_OPTION
		             "; change or unset it)");
}
