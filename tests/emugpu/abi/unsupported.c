/* unsupported.c: the emulated libcuda: the functions of unsupported.def. Without cuda.h, which
 * declares them with their parameters. */
#define NOT_SUPPORTED 801
#define EXPORT __attribute__((visibility("default")))
#define F(name, symbol, since)                                                                     \
	EXPORT int symbol(void)                                                                    \
	{                                                                                          \
		return NOT_SUPPORTED;                                                              \
	}
#define S(name, symbol, per_thread, since) F(name, symbol, since) F(name, per_thread, since)
#include "abi/unsupported.def"
