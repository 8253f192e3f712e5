/* registration.h: what the plugin tells its Python half about a step.
 *
 * build_half.py reads the declarations between the marks, so Python has the same struct. The Python
 * half tells the daemon the members that STEP_FIELDS in leased/api/step_fields.py names.
 */
#ifndef GPU_LEASE_REGISTRATION_H
#define GPU_LEASE_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct registration {
	const char *admin_socket;
	const char *allocation_program; /* the path of gpu-lease-allocation (ask_allocation.c) */
	uint32_t job_id, uid;
	uint64_t memory_mib; /* MiB of host memory on this node; 0: not limited */
	const char *cluster; /* "": it is not known */
	const char *options; /* the text of the option; "": there is none */
	bool given;          /* it comes from --gpu-share, not from the environment */
	bool known;          /* a step of the job has registered on this node before */
};

/* In the Python half. Returns HALF_MAGIC after writing the reply; every other value is a failure.
 */
int gpu_share_ask(const struct registration *registration, char *reply, size_t size);
/* cffi:end */

/* Writes a line into slurmd's log. */
void gpu_share_say(const char *text);

#endif
