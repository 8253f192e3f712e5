/* share.h: what the files of the plugin know of each other. */
#ifndef GPU_LEASE_SHARE_H
#define GPU_LEASE_SHARE_H

#include "grammar.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>

#define DEFAULT_ADMIN_SOCKET "/run/gpu-leased/admin.sock"
#define ENV_OPTION "GPU_SHARE"
#define REPLY_BYTES 8192

/* Arguments of the plugin's line in plugstack.conf. */
struct arguments {
	char admin_socket[108];
	uint64_t tq_min_ns, tq_max_ns; /* 0: not checked at submission */
	bool lock_off;
};

/* stub.c: 0, or -1 after a slurm_error that names the argument. */
int arguments_parse(int ac, char **av, struct arguments *out);

/* remote.c: in slurmstepd. Nothing here fails a hook that would drain the node. */
void remote_register(spank_t sp, const struct arguments *arguments, const char *option);
int remote_task_init(void);

/* notify.c: tell the daemon that a job has ended; who is not there is not waited for. */
void notify_job_end(const char *socket_path, uint32_t job_id);

/* half.c, in the library that is loaded only in slurmstepd: ask the Python half. */
#define HALF_FUNCTION "gpu_share_register"
#define HALF_MAGIC 0x47505531 /* success; anything else, also 0, is a failure */

struct registration {
	const char *admin_socket;
	uint32_t job_id, uid, gid, nodes, shards;
	uint64_t memory_mib; /* of the job on this node; 0: not limited */
	const char *step, *gpus, *options;
};

typedef int half_function(const struct registration *registration, char *reply, size_t size);

#endif
