/* share.h: the functions and types that the plugin's files use of each other.
 *
 * Slurm calls the plugin from one thread, and there are no locks.
 */
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
#define ENV_LIBRARY "GPU_LEASE_LIBRARY"
/* The environment variables in which Slurm passes the option of a SPANK plugin on. The second one
 * is in the environment of the job's tasks, where srun reads it again. */
#define ENV_OPTION_TRAVELS "_SLURM_SPANK_OPTION_gpu_share_gpu_share"
#define ENV_OPTION_OF_JOB "SLURM_SPANK_" ENV_OPTION_TRAVELS
#define REPLY_BYTES 8192

/* -- arguments.c: the arguments of the plugin's line in plugstack.conf ----------------- */

struct arguments {
	char admin_socket[108];
	uint64_t tq_min_ns, tq_max_ns; /* 0: tq is not checked at submission */
	bool lock_off;                 /* lock:off is allowed */
	bool several_nodes;            /* jobs on several nodes can share */
	bool containers; /* variables for container runtimes are set in jobs that share */
	bool
	    check_gres; /* at submission, compare --gpu-share with the GPUs that the job asks for */
};

/* Returns 0, or -1 after slurm_error() with the name of each wrong argument. */
int arguments_parse(int ac, char **av, struct arguments *out);

/* -- job_request.c: what a job asks for, in sbatch, salloc and srun --------------------- */

struct job_request {
	bool known;          /* false: this Slurm does not tell, and the rest means nothing */
	bool step;           /* srun starts a step of a job that exists */
	bool shard;          /* the job asks for shards */
	bool gpu;            /* it asks for whole GPUs */
	bool exclusive;      /* it asks for whole nodes, and with them for all their GPUs */
	unsigned long nodes; /* the least number of nodes that it asks for */
};
void job_request_read(struct job_request *out);

/* -- submit.c: the option in sbatch, salloc and srun ------------------------------------- */

/* Prints the message and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void submit_refuse(const char *format, ...);
/* The user has given --gpu-share with this text. Ends the program if it is wrong, or "help". */
void submit_take_option(const char *text);
/* Removes the option of the job in which this one is submitted from the environment. */
void submit_forget_inherited_option(void);
/* Called for each component of a job. Ends the program if the job would be refused on the node. */
void submit_check(const struct arguments *arguments);

/* -- remote.c: a step in slurmstepd. Nothing here fails where that would drain the node --- */

struct step_option {
	const char *text; /* "": there is none */
	bool given;       /* it comes from --gpu-share, not from the environment */
};
/* Registers the step with the daemon, if its job may share. */
void remote_register(spank_t sp, const struct arguments *arguments, struct step_option option);
/* Called in each task. Ends the task if the step was refused, and says why. */
void remote_task_init(spank_t sp);

/* -- job_environment.c: the environment of tasks ------------------------------------------ */

/* Adds the library to LD_PRELOAD. Returns -1 if that becomes too long. */
int job_environment_add_library(spank_t sp, const char *library);
/* Removes everything that we add for jobs that share. */
void job_environment_remove_ours(spank_t sp);
/* Removes what we have set for a job under MPS, also for the one in which this one was begun. */
void job_environment_remove_mps(spank_t sp);

/* Is this part of a list ours? */
typedef bool list_test(const char *part, size_t length);
bool is_our_library(const char *part, size_t length);
/* Writes the parts of a list that are not ours to `out`, separated by the first of `separators`.
 * Returns false if none is ours, or if `size` bytes are not enough. */
bool list_without(const char *text, const char *separators, list_test *is_ours, char *out,
                  size_t size);

/* Of a job, or without one (sp is NULL) of this program. Returns false, and "" as the value, if it
 * is not set or longer than that. */
bool environment_get(spank_t sp, const char *name, char *value, size_t size);
void environment_set(spank_t sp, const char *name, const char *value);
void environment_unset(spank_t sp, const char *name);
/* Takes the parts of a variable's list that are ours out of it, and it away if nothing is left. */
void environment_take_out(spank_t sp, const char *name, const char *separators, list_test *is_ours);
/* Takes our library out of LD_PRELOAD. */
void environment_remove_library(spank_t sp);

/* -- container_environment.c: variables for container runtimes that read them ---------------- */

/* Sets them for a job with this library, after its LD_PRELOAD and its socket have been set. */
void container_environment_add(spank_t sp, const char *library);
/* Takes what we have set, for this job or for the one that it was submitted in, out again. sp: NULL
 * for the environment of this program. */
void container_environment_remove(spank_t sp);

/* -- sharing_jobs.c: which jobs share on this node, so that others need not ask the daemon -- */

void sharing_jobs_add(const char *admin_socket, uint32_t job_id);
bool sharing_jobs_has(const char *admin_socket, uint32_t job_id);
/* Returns false if the job was not among them. */
bool sharing_jobs_remove(const char *admin_socket, uint32_t job_id);

/* -- cluster.c ------------------------------------------------------------------------------- */

/* The name of the Slurm cluster; "" if Slurm does not tell. */
const char *cluster_name(void);

/* -- notify.c ---------------------------------------------------------------------------------- */

/* Tells the daemon that a job has ended. Waits a few seconds at most. */
void notify_job_end(const char *socket_path, uint32_t job_id);

/* -- half.c, in the library that is loaded only in slurmstepd --------------------------------- */

/* The name of its function, which calls the Python half, and what that returns after success. Every
 * other value is a failure. */
#define HALF_FUNCTION "gpu_share_register"
#define HALF_MAGIC 0x47505531

typedef int half_function(const struct registration *registration, char *reply, size_t size);

#endif
