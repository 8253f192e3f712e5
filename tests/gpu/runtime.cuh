// runtime.cuh: for programs that use the CUDA runtime.
#pragma once

#include "common.cuh"

#include <cuda_runtime.h>

#define RT(call)                                                                                   \
	do {                                                                                       \
		cudaError_t rt_result = (call);                                                    \
		if (rt_result)                                                                     \
			DIE("%s: %s (%d)", #call, cudaGetErrorName(rt_result), (int)rt_result);    \
	} while (0)

// Nanoseconds of the device's own clock, the same for all processes.
static __device__ inline unsigned long long device_ns(void)
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}
