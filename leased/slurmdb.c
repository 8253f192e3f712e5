/* slurmdb.c: read and write a job's AdminComment in Slurm's accounting database.
 *
 * libslurm is linked for the one Slurm release it is built for. List types are
 * not named, because they changed in 24.05 (List, then list_t *).
 */
#include "slurmdb.h"

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
	snprintf(error, size, "%s: %s", what, slurm_strerror(slurm_get_errno()));
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
	slurm_free_ctl_conf(conf);
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

/* A condition that matches one job of this cluster; its parts are the caller's. */
static void one_job(slurmdb_job_cond_t *cond, slurm_selected_step_t *step, uint32_t job_id)
{
	memset(cond, 0, sizeof(*cond));
	memset(step, 0, sizeof(*step));
	step->array_task_id = NO_VAL;
	step->het_job_offset = NO_VAL;
	step->step_id.job_id = job_id;
	step->step_id.step_id = NO_VAL;
	step->step_id.step_het_comp = NO_VAL;
	cond->db_flags = SLURMDB_JOB_FLAG_NOTSET;
	cond->flags = JOBCOND_FLAG_NO_STEP | JOBCOND_FLAG_NO_TRUNC;
	cond->step_list = slurm_list_create(NULL);
	slurm_list_append(cond->step_list, step);
	cond->cluster_list = slurm_list_create(NULL);
	slurm_list_append(cond->cluster_list, cluster);
}

static void free_cond(slurmdb_job_cond_t *cond)
{
	slurm_list_destroy(cond->step_list);
	slurm_list_destroy(cond->cluster_list);
}

int gl_slurmdb_get_comment(uint32_t job_id, char *out, size_t size, char *error, size_t error_size)
{
	slurmdb_job_cond_t cond;
	slurm_selected_step_t step;
	slurmdb_job_rec_t *job;
	int found = 0;

	one_job(&cond, &step, job_id);
	__typeof__(slurmdb_jobs_get(connection, &cond)) jobs = slurmdb_jobs_get(connection, &cond);
	free_cond(&cond);
	if (!jobs)
		return refuse(error, error_size, "slurmdbd gave no list of jobs");
	out[0] = '\0';
	while ((job = slurm_list_pop(jobs))) {
		found = 1;
		snprintf(out, size, "%s", job->admin_comment ? job->admin_comment : "");
		slurmdb_destroy_job_rec(job);
	}
	slurm_list_destroy(jobs);
	return found;
}

int gl_slurmdb_set_comment(uint32_t job_id, const char *text, char *error, size_t error_size)
{
	slurmdb_job_cond_t cond;
	slurm_selected_step_t step;
	slurmdb_job_rec_t job = {0};
	int changed;

	one_job(&cond, &step, job_id);
	job.admin_comment = (char *)text;
	job.derived_ec = NO_VAL;
	job.state = NO_VAL;
	__typeof__(slurmdb_job_modify(connection, &cond, &job)) done =
	    slurmdb_job_modify(connection, &cond, &job);
	free_cond(&cond);
	if (!done)
		return refuse(error, error_size, "slurmdbd refused the change");
	changed = slurm_list_count(done) > 0;
	slurm_list_destroy(done);
	/* Nothing is stored without the commit. */
	if (changed && slurmdb_connection_commit(connection, true))
		return refuse(error, error_size, "slurmdbd did not commit");
	return changed;
}
