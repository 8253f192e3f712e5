/* registration.h: what the plugin tells its Python half of a step.
 *
 * build_half.py reads what stands between the marks, so Python sees the same struct. The
 * daemon is told the members that STEP_FIELDS of leased/api/step_fields.py names.
 */
#ifndef GPU_LEASE_REGISTRATION_H
#define GPU_LEASE_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct registration {
	const char *admin_socket;
	const char *allocation_program; /* asks slurmctld what the job has */
	uint32_t job_id, uid;
	uint64_t memory_mib; /* of the job on this node; 0: not limited */
	const char *cluster; /* "": not known */
	const char *options; /* "": none */
	bool given;          /* by --gpu-share, not by the environment */
	bool known;          /* a step of the job has registered on this node before */
};

/* In the Python half: HALF_MAGIC, and the reply as text; anything else is a failure. */
int gpu_share_ask(const struct registration *registration, char *reply, size_t size);
/* cffi:end */

#endif
