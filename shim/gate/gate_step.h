/* gate_step.h: which call may pass the shut gate. */
#ifndef GPU_LEASE_GATE_STEP_H
#define GPU_LEASE_GATE_STEP_H

/* cffi:begin */
enum gate_step {
	GATE_STEP_NONE,
	GATE_STEP_IDLE, /* one for a context that is not busy; while a capture exists: any one */
	GATE_STEP_ANY   /* one for any context */
};
/* cffi:end */

#endif
