/* share.h: what the files of the plugin know of each other. */
#ifndef GPU_LEASE_SHARE_H
#define GPU_LEASE_SHARE_H

#include "grammar.h"
#include "registration.h"
#include "runtime_dir.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>

#define DEFAULT_ADMIN_SOCKET GPU_LEASE_RUNTIME_DIR "/admin.sock"
#define ENV_OPTION "GPU_SHARE"
#define ENV_SOCKET "GPU_LEASE_SOCKET"
/* How Slurm carries the option of a SPANK plugin; the second one is in the environment of the
 * job's tasks, from which srun takes it again. */
#define ENV_OPTION_TRAVELS "_SLURM_SPANK_OPTION_gpu_share_gpu_share"
#define ENV_OPTION_OF_JOB "SLURM_SPANK_" ENV_OPTION_TRAVELS
#define REPLY_BYTES 8192

/* Arguments of the plugin's line in plugstack.conf. */
struct arguments {
	char admin_socket[108];
	uint64_t tq_min_ns, tq_max_ns; /* 0: not checked at submission */
	bool lock_off;
	bool check_gres; /* compare --gpu-share with what the job asks of GPUs, at submission */
};

/* arguments.c: 0, or -1 after a slurm_error that names the argument. */
int arguments_parse(int ac, char **av, struct arguments *out);

/* job_request.c: what a job asks for, as sbatch, salloc or srun has read it. */
struct job_request {
	bool known;     /* the rest holds; without it nothing can be said before the job exists */
	bool step;      /* srun starts a step of a job that exists */
	bool shard;     /* shards are asked for */
	bool gpu;       /* whole GPUs are asked for */
	bool exclusive; /* whole nodes, and with them all their GPUs */
	unsigned long nodes; /* at least */
};
void job_request_read(struct job_request *out);

/* submit.c: in sbatch, salloc and srun. */
__attribute__((noreturn, format(printf, 1, 2))) void submit_refuse(const char *format, ...);
void submit_take_option(const char *text);
void submit_forget_inherited_option(void);
void submit_check(const struct arguments *arguments);

/* remote.c: in slurmstepd. Nothing here fails a hook that would drain the node. */
struct step_option {
	const char *text; /* "" where nothing was asked for */
	bool given;       /* by --gpu-share, not by the environment */
};
void remote_register(spank_t sp, const struct arguments *arguments, struct step_option option);
void remote_task_init(spank_t sp);

/* job_environment.c: what the tasks of a sharing job have, and those of others have not. */
int job_environment_add_library(spank_t sp, const char *library);
void job_environment_remove_ours(spank_t sp);
bool without_our_library(const char *preload, char *out, size_t size);

/* sharing_jobs.c: which jobs share on this node, so that others need not ask the daemon. */
void sharing_jobs_add(const char *admin_socket, uint32_t job_id);
bool sharing_jobs_has(const char *admin_socket, uint32_t job_id);
bool sharing_jobs_remove(const char *admin_socket, uint32_t job_id);

/* cluster.c: the Slurm cluster's name, "" where Slurm does not say. */
const char *cluster_name(void);

/* notify.c: tell the daemon that a job has ended; who is not there is not waited for. */
void notify_job_end(const char *socket_path, uint32_t job_id);

/* half.c, in the library that is loaded only in slurmstepd: ask the Python half. */
#define HALF_FUNCTION "gpu_share_register"
#define HALF_MAGIC 0x47505531 /* success; anything else, also 0, is a failure */

typedef int half_function(const struct registration *registration, char *reply, size_t size);

#endif
