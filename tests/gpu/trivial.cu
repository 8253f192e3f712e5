// trivial.cu: the least that a program does with a GPU: a context, some memory, a memset, the end.
#include "driver.cuh"

int main(void)
{
	CUdeviceptr memory;

	open_device();
	CU(cuMemAlloc(&memory, 4096));
	CU(cuMemsetD8(memory, 1, 4096));
	CU(cuCtxSynchronize());
	printf("done\n");
	return 0;
}
