/* cluster.c: the name of the Slurm cluster that this process belongs to. Slurmds of two clusters
 * may run on one node, with jobs of the same number. */
#include "share.h"

#include <string.h>

/* Slurm's configuration, which slurmstepd gets from slurmd. */
extern slurm_conf_t slurm_conf __attribute__((weak));

const char *cluster_name(void)
{
	const char *name = &slurm_conf ? slurm_conf.cluster_name : NULL;

	return name && !strchr(name, '/') && !strchr(name, '\n') ? name : "";
}
