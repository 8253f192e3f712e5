/* slurmdb.c: read and write the SystemComment of one run of a job in Slurm's accounting.
 *
 * libslurm is linked for the one Slurm release it is built for. List types are
 * not named, because they changed in 24.05 (List, then list_t *).
 */
#include "slurmdb.h"

#include "slurm_releases.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *connection;
static char cluster[256];

static int refuse(char *error, size_t size, const char *what)
{
	snprintf(error, size, "%s: %s", what, slurm_strerror(errno));
	return -1;
}

int gl_slurmdb_open(char *error, size_t size)
{
	uint16_t flags = 0;
	slurm_conf_t *conf = NULL;

	slurm_init(NULL);
	if (slurm_load_ctl_conf(0, &conf))
		return refuse(error, size, "slurmctld does not answer");
	snprintf(cluster, sizeof(cluster), "%s", conf->cluster_name);
	free_conf(conf);
	connection = slurmdb_connection_get(&flags);
	if (!connection)
		return refuse(error, size, "slurmdbd does not answer");
	return 0;
}

void gl_slurmdb_close(void)
{
	if (connection)
		slurmdb_connection_close(&connection);
}

#define EVERY_RUN                                                                                  \
	(JOBCOND_FLAG_DUP | JOBCOND_FLAG_NO_STEP | JOBCOND_FLAG_NO_TRUNC |                         \
	 JOBCOND_FLAG_NO_WHOLE_HETJOB)

/* What a condition points to. */
struct chosen {
	slurmdb_job_cond_t cond;
	slurm_selected_step_t step;
	char state[16];
};

/* A condition for a job of this cluster, with all its runs. */
static void choose(struct chosen *chosen, uint32_t job_id)
{
	memset(chosen, 0, sizeof(*chosen));
	chosen->step.array_task_id = NO_VAL;
	chosen->step.het_job_offset = NO_VAL;
	chosen->step.step_id.job_id = job_id;
	chosen->step.step_id.step_id = NO_VAL;
	chosen->step.step_id.step_het_comp = NO_VAL;
	chosen->cond.db_flags = SLURMDB_JOB_FLAG_NOTSET;
	chosen->cond.flags = EVERY_RUN;
	chosen->cond.step_list = slurm_list_create(NULL);
	slurm_list_append(chosen->cond.step_list, &chosen->step);
	chosen->cond.cluster_list = slurm_list_create(NULL);
	slurm_list_append(chosen->cond.cluster_list, cluster);
}

/* A condition for one ended row. A job's number alone also means the other tasks of its
 * array, or the other parts of a heterogeneous job; and then there are its other runs. */
static void choose_row(struct chosen *chosen, const struct gl_job_row *row)
{
	choose(chosen, row->job_id);
	if (row->array_job_id && row->array_task_id != NO_VAL) {
		chosen->step.step_id.job_id = row->array_job_id;
		chosen->step.array_task_id = row->array_task_id;
	} else if (row->het_job_id && row->het_job_offset != NO_VAL) {
		chosen->step.step_id.job_id = row->het_job_id;
		chosen->step.het_job_offset = row->het_job_offset;
	}
	/* With a state: those that ended in it, between two times. */
	snprintf(chosen->state, sizeof(chosen->state), "%u", row->state);
	chosen->cond.state_list = slurm_list_create(NULL);
	slurm_list_append(chosen->cond.state_list, chosen->state);
	chosen->cond.flags |= JOBCOND_FLAG_NO_DEFAULT_USAGE;
	chosen->cond.usage_start = row->end;
	chosen->cond.usage_end = row->end;
}

static void forget(struct chosen *chosen)
{
	slurm_list_destroy(chosen->cond.step_list);
	slurm_list_destroy(chosen->cond.cluster_list);
	if (chosen->cond.state_list)
		slurm_list_destroy(chosen->cond.state_list);
}

static void copy_row(struct gl_job_row *row, const slurmdb_job_rec_t *job)
{
	row->job_id = job->jobid;
	row->array_job_id = job->array_job_id;
	row->array_task_id = job->array_task_id;
	row->het_job_id = job->het_job_id;
	row->het_job_offset = job->het_job_offset;
	row->state = job->state;
	row->submit = job->submit;
	row->start = job->start;
	row->end = job->end;
}

int gl_slurmdb_rows(uint32_t job_id, int64_t from, int64_t until, struct gl_job_row *rows, int most,
                    char *error, size_t error_size)
{
	struct chosen chosen;
	slurmdb_job_rec_t *job;
	int found = 0;

	choose(&chosen, job_id);
	chosen.cond.usage_start = from;
	chosen.cond.usage_end = until;
	__typeof__(slurmdb_jobs_get(connection, &chosen.cond)) jobs =
	    slurmdb_jobs_get(connection, &chosen.cond);
	forget(&chosen);
	if (!jobs)
		return refuse(error, error_size, "slurmdbd gave no list of jobs");
	while ((job = slurm_list_pop(jobs))) {
		if (job->jobid == job_id && found < most)
			copy_row(&rows[found++], job);
		slurmdb_destroy_job_rec(job);
	}
	slurm_list_destroy(jobs);
	return found;
}

int gl_slurmdb_get_comment(const struct gl_job_row *row, char *out, size_t size, char *error,
                           size_t error_size)
{
	struct chosen chosen;
	slurmdb_job_rec_t *job;
	int found = 0, ours = 0;

	choose_row(&chosen, row);
	__typeof__(slurmdb_jobs_get(connection, &chosen.cond)) jobs =
	    slurmdb_jobs_get(connection, &chosen.cond);
	forget(&chosen);
	if (!jobs)
		return refuse(error, error_size, "slurmdbd gave no list of jobs");
	out[0] = '\0';
	while ((job = slurm_list_pop(jobs))) {
		found++;
		ours += job->jobid == row->job_id && job->submit == row->submit;
		snprintf(out, size, "%s", job->system_comment ? job->system_comment : "");
		slurmdb_destroy_job_rec(job);
	}
	slurm_list_destroy(jobs);
	if (found == 1 && ours == 1)
		return 0;
	/* What is changed is what was found: never another's row. */
	snprintf(error, error_size, "slurmdbd has %d rows like that of job %u", found, row->job_id);
	return -1;
}

int gl_slurmdb_set_comment(const struct gl_job_row *row, const char *text, char *error,
                           size_t error_size)
{
	struct chosen chosen;
	slurmdb_job_rec_t job = {0};
	int changed;

	choose_row(&chosen, row);
	job.system_comment = (char *)text;
	job.derived_ec = NO_VAL;
	job.state = NO_VAL;
	__typeof__(slurmdb_job_modify(connection, &chosen.cond, &job)) done =
	    slurmdb_job_modify(connection, &chosen.cond, &job);
	forget(&chosen);
	if (!done)
		return refuse(error, error_size, "slurmdbd refused the change");
	changed = slurm_list_count(done);
	slurm_list_destroy(done);
	if (changed != 1) {
		slurmdb_connection_commit(connection, false);
		snprintf(error, error_size, "slurmdbd would change %d rows", changed);
		return -1;
	}
	/* Nothing is stored without the commit. */
	if (slurmdb_connection_commit(connection, true))
		return refuse(error, error_size, "slurmdbd did not commit");
	return 0;
}
