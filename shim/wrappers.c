/* wrappers.c: a gated function for every row of hooks.def, checked against cuda.h. */
#include "shim.h"

#define WRAPPER(name, id, stream, parameters, arguments)                                           \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult(*real) parameters = (CUresult(*) parameters)real_hook(HOOK_##id);         \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = gate_enter(stream);                                                       \
		if (result)                                                                        \
			return result;                                                             \
		result = real arguments;                                                           \
		gate_leave();                                                                      \
		return result;                                                                     \
	}

/* The declaration in cuda.h and our definition conflict when they differ. */
#define GATED(name, stream, parameters, arguments)                                                 \
	WRAPPER(name, name, stream, parameters, arguments)
#define GATED2(name, suffix, stream, parameters, arguments)                                        \
	WRAPPER(name, name, stream, parameters, arguments)                                         \
	WRAPPER(name##suffix, name##suffix, (stream) ? (stream) : CU_STREAM_PER_THREAD,            \
	        parameters, arguments)
#define OWN(name)
#define OWN2(name, suffix)
#include "hooks.def"
