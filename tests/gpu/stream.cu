// stream.cu: a job that fills the GPU: one sweep after the other over its memory.
//
// stream MIB SECONDS QUEUED [ready]: reads and writes all of its memory in every sweep, with so
// many sweeps queued; with 1 it waits for each before it submits the next. Prints a line of JSON
// with the sweeps of every second of the clock.
#include "runtime.cuh"

#include <map>
#include <vector>

__global__ void sweep(uint4 *words, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		words[i].x += 1;
}

int main(int argc, char **argv)
{
	std::map<long, unsigned long> by_second;
	std::vector<cudaEvent_t> done;
	cudaStream_t stream;
	const char *between = "";
	unsigned long n = 0;
	double from, until;
	size_t bytes;
	uint4 *words;

	if (argc < 4 || atoi(argv[3]) < 1)
		DIE("usage: stream MIB SECONDS QUEUED [ready]");
	bytes = (size_t)atol(argv[1]) << 20;
	done.resize(atoi(argv[3]));
	RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	RT(cudaMalloc(&words, bytes));
	RT(cudaMemsetAsync(words, 0, bytes, stream));
	for (cudaEvent_t &event : done) {
		RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
		RT(cudaEventRecord(event, stream));
	}
	RT(cudaStreamSynchronize(stream));
	wait_for_go(argc > 4 ? argv[4] : NULL);
	from = wall_s();
	until = from + atof(argv[2]);
	for (double now = from; now < until; now = wall_s()) {
		RT(cudaEventSynchronize(done[n % done.size()]));
		by_second[(long)wall_s()]++;
		sweep<<<2112, 512, 0, stream>>>(words, bytes / sizeof(*words));
		RT(cudaGetLastError());
		RT(cudaEventRecord(done[n++ % done.size()], stream));
	}
	RT(cudaStreamSynchronize(stream));
	printf("{\"interposed\": %s, \"from\": %.3f, \"to\": %.3f, \"sweeps\": %lu, "
	       "\"by_second\": {",
	       interposed(), from, wall_s(), n);
	for (auto &second : by_second) {
		printf("%s\"%ld\": %lu", between, second.first, second.second);
		between = ", ";
	}
	printf("}}\n");
	return 0;
}
