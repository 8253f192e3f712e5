// waiter.cu: a job that always wants the GPU and hardly uses it.
//
// waiter [PAUSE_MS]: asks for the GPU (a small memset), waits for it, pauses,
// and again, until its standard input ends. Whoever computes beside it always
// has somebody waiting. Prints a line of JSON.
#include "driver.cuh"

#include <poll.h>
#include <unistd.h>

static bool input_ended(void)
{
	struct pollfd input = {0, POLLIN, 0};
	char byte;

	return poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

int main(int argc, char **argv)
{
	double pause = (argc > 1 ? atof(argv[1]) : 10) / 1e3;
	double waited = 0, longest = 0;
	unsigned long turns = 0;
	CUdeviceptr memory;

	open_device();
	CU(cuMemAlloc(&memory, 4096));
	puts("started");
	fflush(stdout);
	while (!input_ended()) {
		double start = now_s(), took;

		CU(cuMemsetD8(memory, 1, 4096));
		CU(cuCtxSynchronize());
		took = now_s() - start;
		waited += took;
		longest = took > longest ? took : longest;
		turns++;
		sleep_s(pause);
	}
	printf("{\"name\": \"waiter\", \"interposed\": %s, \"turns\": %lu, \"waited_s\": %.3f, "
	       "\"longest_s\": %.3f}\n",
	       interposed(), turns, waited, longest);
	return 0;
}
