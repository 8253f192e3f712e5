/* slurm_releases.h: what libslurm calls otherwise in one release than in another. meson.build tries
 * which of the forms this one has. */
#ifndef GPU_LEASE_SLURM_RELEASES_H
#define GPU_LEASE_SLURM_RELEASES_H

#include <slurm/slurm.h>

/* slurm_load_job(): what slurmctld says of one job. Newer releases have more than its number. */
static inline int load_job(job_info_msg_t **jobs, uint32_t job_id, uint16_t flags)
{
#ifdef SLURM_LOADS_JOB_BY_NUMBER
	return slurm_load_job(jobs, job_id, flags);
#else
	slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

	id.job_id = job_id;
	return slurm_load_job(jobs, id, flags);
#endif
}

/* Frees what slurm_load_ctl_conf() gives. */
static inline void free_conf(slurm_conf_t *conf)
{
#ifdef SLURM_HAS_FREE_CTL_CONF
	slurm_free_ctl_conf(conf);
#else
	slurm_free_conf(conf);
#endif
}

#endif
