/* deep_constants.c: a library whose constants hold the address of a function of the driver, so that
 * the loader relocates a part of it that may not be written to. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

extern void *by_constant(void);

/* Written in C it would be in a part that is only made constant after it is relocated. */
__asm__(".pushsection .rodata\n"
        ".balign 8\n"
        "constant: .quad cuLaunchKernel\n"
        ".popsection\n");
extern void *const constant __attribute__((visibility("hidden")));

void *by_constant(void)
{
	return constant;
}
