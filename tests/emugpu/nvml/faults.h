/* faults.h: what the emulated NVML does wrong, as a test has written it down. */
#ifndef EMUGPU_NVML_FAULTS_H
#define EMUGPU_NVML_FAULTS_H

enum nvml_fault {
	NVML_FAULT_NONE,
	NVML_FAULT_HANG,
	NVML_FAULT_CRASH,
	NVML_FAULT_ERROR,
	NVML_FAULT_LOST,
	NVML_FAULT_GARBAGE,
	NVML_FAULT_MIG,
	NVML_FAULT_EXCLUSIVE,
	NVML_FAULT_SLOW, /* its clock is low */
	NVML_FAULT_ECC,  /* its memory has had an error */
	NVML_FAULT_ROWS  /* bad rows of its memory could not be replaced */
};

#define NVML_FAULT_ALL (-1) /* in place of a device: NVML as a whole */

/* What is wrong now with a device, or with NVML as a whole. Does not return while that is a hang,
 * and never from a crash. */
enum nvml_fault nvml_fault_now(int device);

#endif
