/* ask_allocation.c: gpu-lease-allocation JOB_ID: what slurmctld says that a job has.
 *
 * A program of its own, because libslurm takes as long as it likes over a slurmctld that
 * does not answer, and may end the process it runs in. Its words are slurmctld's own
 * fields; no text that a user chose is among them. On standard output, a line each:
 *     nodes N            how many nodes the job has
 *     component 0|1      1: of a heterogeneous job
 *     gres TEXT          of the job's first node, as `scontrol show job -d` has it
 * Exit status: 0; 3: there is no such job; 1: standard error says why there is no answer.
 */
#include "slurm_releases.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NO_SUCH_JOB 3

static int print(const job_info_t *job)
{
	const char *gres = job->gres_detail_cnt ? job->gres_detail_str[0] : NULL;

	printf("nodes %u\ncomponent %d\ngres %s\n", job->num_nodes, job->het_job_id != 0,
	       gres ? gres : "");
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
	/* Of a heterogeneous job or an array slurmctld sends all parts. */
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == id)
			return print(&jobs->job_array[i]);
	return NO_SUCH_JOB;
}
