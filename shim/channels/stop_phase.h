/* stop_phase.h: how far a stop of a process's work in mid-kernel is. */
#ifndef GPU_LEASE_STOP_PHASE_H
#define GPU_LEASE_STOP_PHASE_H

/* cffi:begin */
enum stop_phase {
	STOP_NONE,  /* nothing is stopped */
	STOP_ASKED, /* the guard has not done it yet */
	STOP_IS,    /* nothing runs */
	STOP_FAILED /* it could not be done, or was not renewed: everything runs */
};
/* cffi:end */

#endif
