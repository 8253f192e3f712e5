/* wrappers.c: a gated function for every row of hooks.def, checked against cuda.h. */
#include "shim.h"

#define WRAPPER(name, stream, parameters, arguments)                                               \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		TRY(gate_enter(stream));                                                           \
		result = real arguments;                                                           \
		gate_leave();                                                                      \
		return result;                                                                     \
	}

/* The declaration in cuda.h and our definition conflict when they differ. */
#define GATED(name, stream, parameters, arguments) WRAPPER(name, stream, parameters, arguments)
#define GATED2(name, suffix, stream, parameters, arguments)                                        \
	WRAPPER(name, stream, parameters, arguments)                                               \
	WRAPPER(name##suffix, PER_THREAD(stream), parameters, arguments)
#define LOOKS(name, parameters, arguments)                                                         \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		TRY(gate_look());                                                                  \
		result = real arguments;                                                           \
		gate_leave();                                                                      \
		return result;                                                                     \
	}
#define OWN(name)
#define OWN2(name, suffix)
#define NVML(name)
#include "hooks.def"
