/* ask_allocation.c: the program gpu-lease-allocation JOB_ID, which prints what slurmctld has
 * allocated to a job.
 *
 * It is a program of its own, because libslurm may wait for any time for a slurmctld that does not
 * answer, and may end the process that it runs in. It prints fields of slurmctld's, and no text
 * that a user has made up, one on each line:
 *
 *   job 7|7_3|12+1    the job as squeue shows it
 *   start SECONDS     when this run of it began, by slurmctld's clock, since 1970
 *   restarts N        how often Slurm has begun the job anew
 *   nodes NAME,NAME   all nodes of the job, in an order that is the same on each of them
 *   node NAME         which of them this one is; nothing: none
 *   component 0|1     1: the job is a component of a heterogeneous job
 *   partition TEXT    in which the job runs, its QOS and its account; nothing: it has none
 *   qos TEXT
 *   account TEXT
 *   gres TEXT         the job's GRES on this node, as `scontrol show job -d` prints it
 *
 * Exit status: 0; 3: there is no such job; 1: standard error says why there is no answer.
 */
#include "slurm_releases.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_SUCH_JOB 3

static const char *text_of(const char *text)
{
	return text ? text : "";
}

/* Is it this node? slurmd tells its slurmstepd the node's name, which need not be the host's. */
static bool is_here(const char *name)
{
	const char *here = getenv("SLURMD_NODENAME");
	char host[256] = "";

	if (here)
		return !strcmp(name, here);
	if (gethostname(host, sizeof(host) - 1))
		return false;
	return !strcmp(name, host) || !strcmp(name, strtok(host, "."));
}

/* Prints the job's nodes. Returns the place of this one among them; -1: it is none of them. */
static int print_nodes(const job_info_t *job)
{
	__typeof__(slurm_hostlist_create("")) nodes = slurm_hostlist_create(job->nodes);
	const char *separator = "";
	char *name, *here = NULL;
	int place = -1;

	printf("nodes ");
	for (int i = 0; nodes && (name = slurm_hostlist_shift(nodes)); i++) {
		printf("%s%s", separator, name);
		separator = ",";
		if (place < 0 && is_here(name)) {
			place = i;
			here = name;
		} else
			free(name);
	}
	printf("\nnode %s\n", text_of(here));
	free(here);
	if (nodes)
		slurm_hostlist_destroy(nodes);
	return place;
}

static int print(const job_info_t *job)
{
	const char *gres = NULL;
	int place;

	if (job->array_task_id != NO_VAL)
		printf("job %u_%u\n", job->array_job_id, job->array_task_id);
	else if (job->het_job_id)
		printf("job %u+%u\n", job->het_job_id, job->het_job_offset);
	else
		printf("job %u\n", job->job_id);
	place = print_nodes(job);
	if (job->num_nodes == 1)
		place = 0; /* whatever this node is called */
	if (place >= 0 && (uint32_t)place < job->gres_detail_cnt)
		gres = job->gres_detail_str[place];
	printf("start %lld\nrestarts %u\ncomponent %d\n", (long long)job->start_time,
	       job->restart_cnt, job->het_job_id != 0);
	printf("partition %s\nqos %s\naccount %s\ngres %s\n", text_of(job->partition),
	       text_of(job->qos), text_of(job->account), text_of(gres));
	return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	job_info_msg_t *jobs = NULL;
	unsigned long id = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	if (!id || id >= NO_VAL) {
		fprintf(stderr, "usage: gpu-lease-allocation JOB_ID\n");
		return 2;
	}
	slurm_init(NULL);
	if (load_job(&jobs, (uint32_t)id, SHOW_DETAIL | SHOW_ALL)) {
		int error = errno;

		fprintf(stderr, "%s\n", slurm_strerror(error));
		return error == ESLURM_INVALID_JOB_ID ? NO_SUCH_JOB : 1;
	}
	/* slurmctld sends all components of a heterogeneous job, and all tasks of an array. */
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == id)
			return print(&jobs->job_array[i]);
	return NO_SUCH_JOB;
}
