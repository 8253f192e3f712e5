/* stops_work.h: work that a test stops in mid-kernel, for the scenarios of odd_stops.c. */
#ifndef STOPS_WORK_H
#define STOPS_WORK_H

#include "../hooks/races.h"

#define WORK_BYTES (64 * MIB)

/* Memory with known words, a kernel that the test outlasts, and one behind it that adds to them. */
struct work {
	CUmodule module;
	CUdeviceptr memory;
	CUstream stream;
	unsigned int added;
};
void work_prepare(struct work *work);       /* in the current context */
void work_begin(struct work *work, int ms); /* it runs now */
void work_check(struct work *work);         /* once it has finished; fails if a word is wrong */
void work_load(CUmodule *module);           /* the kernels */
void work_spin(const struct work *work, CUstream stream, int ms);
void work_add(struct work *work, CUstream stream);

/* Puts a function between libcuda and what its entry for ioctl calls now. It hides what the library
 * makes of this class: its calls look like those of a library that nobody knows. 0: nothing. */
void wrap_ioctl(unsigned int hidden_class);
int wrapped_calls(void); /* that have come by */

#endif
