/* wrappers.c: the functions that rows of hooks.def generate, checked against cuda.h. */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/segments.h"
#include "memory/vmm/vmm_keep.h"
#include "work/captures.h"

#define SLOW __attribute__((cold, noinline))
#define SEEN(name)                                                                                 \
	((__typeof__(&name))atomic_load_explicit(&hooks[HOOK_##name].real, memory_order_acquire))

/* Can the result mean that the driver has refused a copy because memory of another device, which we
 * have mapped, is not accessible from this one (segments.h)? Kernels and graphs fail later, on the
 * device, so for them this check is left out at compile time. */
#define MAY_LACK_PEER(name, result)                                                                \
	(!__builtin_strncmp(#name, "cuMem", 5) && !likely((result) != CUDA_ERROR_INVALID_VALUE))

/* Whether the function launches a graph: known at compile time, so that others are not slower. */
#define LAUNCHES_GRAPH(name) (!__builtin_strncmp(#name, "cuGraphLaunch", 13))

/* -- copies that wait for what is before them ------------------------------------------- */

static bool memory_type(CUdeviceptr pointer, unsigned int *type)
{
	return !DRIVER(cuPointerGetAttribute)(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
}

static bool is_device(CUdeviceptr pointer)
{
	unsigned int type;

	return memory_type(pointer, &type) && type != CU_MEMORYTYPE_HOST;
}

/* Host memory that the driver does not know, which it copies to in steps of its own. */
static bool is_pageable(const void *host)
{
	unsigned int type;

	return !memory_type((CUdeviceptr)host, &type);
}

#define to_host(copy) ((copy) && (copy)->dstMemoryType == CU_MEMORYTYPE_HOST)
#define to_pageable(copy) (to_host(copy) && is_pageable((copy)->dstHost))

/* Errors are left to the copy. While a capture exists the thread may not wait for a stream. */
static void wait_first(CUstream stream, bool when)
{
	if (when && !captures_exist())
		REAL(cuStreamSynchronize)(stream);
}

/* The slow path is a function of its own, so that the fast path saves no registers for it. One
 * indirect call serves both paths, and the empty assembly hides from gcc which function is called:
 * with two calls gcc would copy every argument on the stack through a register of its own. */
#define WRAPPER(name, stream, parameters, arguments)                                               \
	WRAPPER_AFTER(name, stream, , parameters, arguments)
#define WRAPPER_AFTER(name, stream, first, parameters, arguments)                                  \
	static SLOW CUresult slow_##name parameters                                                \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = gate_enter(stream);                                                       \
		if (result)                                                                        \
			return result;                                                             \
		if (LAUNCHES_GRAPH(name))                                                          \
			slot_count_graph();                                                        \
		result = real arguments;                                                           \
		gate_leave();                                                                      \
		return result;                                                                     \
	}                                                                                          \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) way = SEEN(name);                                                \
		struct thread_slot *slot;                                                          \
		CUresult result;                                                                   \
		first;                                                                             \
		slot = way ? gate_pass() : NULL;                                                   \
		if (!likely(slot != NULL))                                                         \
			way = slow_##name;                                                         \
		else if (LAUNCHES_GRAPH(name))                                                     \
			slot_count_graph();                                                        \
		__asm__("" : "+r"(way), "+r"(slot));                                               \
		result = way arguments;                                                            \
		if (likely(slot != NULL))                                                          \
			gate_return(slot);                                                         \
		if (MAY_LACK_PEER(name, result) && swap_allow_peers())                             \
			result = slow_##name arguments;                                            \
		return result;                                                                     \
	}

/* If a row's parameters differ from the declaration in cuda.h, the definition does not compile. */
#define GATED(name, stream, parameters, arguments) WRAPPER(name, stream, parameters, arguments)
#define GATED2(name, suffix, stream, parameters, arguments)                                        \
	WRAPPER(name, stream, parameters, arguments)                                               \
	WRAPPER(name##suffix, PER_THREAD(stream), parameters, arguments)
#define BLOCKS(name, stream, when, parameters, arguments)                                          \
	WRAPPER_AFTER(name, stream, wait_first(stream, when), parameters, arguments)
#define BLOCKS2(name, suffix, stream, when, parameters, arguments)                                 \
	BLOCKS(name, stream, when, parameters, arguments)                                          \
	BLOCKS(name##suffix, PER_THREAD(stream), when, parameters, arguments)
/* Calls the driver's function after `enter` has let it in, and once more if `again`. */
#define ENTERED(name, enter, again, parameters, arguments)                                         \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = enter;                                                                    \
		if (result)                                                                        \
			return result;                                                             \
		result = real arguments;                                                           \
		if (again)                                                                         \
			result = real arguments;                                                   \
		gate_leave();                                                                      \
		return result;                                                                     \
	}
#define LOOKS(name, parameters, arguments)                                                         \
	ENTERED(name, gate_enter_for_memory(),                                                     \
	        !likely(result != CUDA_ERROR_INVALID_VALUE) && swap_allow_peers(), parameters,     \
	        arguments)
#define HELD(name, parameters, arguments)                                                          \
	ENTERED(name, gate_enter_unless_stopped(), false, parameters, arguments)
#define KEEPS(name, keep, parameters, arguments)                                                   \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = keep;                                                                     \
		return result ? result : real arguments;                                           \
	}
#define OWN(name)
#define OWN2(name, suffix)
#define NVML(name)
#include "driver/hooks.def"
