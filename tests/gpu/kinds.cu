// kinds.cu: what a call costs, by the kind of memory that it works on. One process, by turns.
//
// kinds SEGMENTS: for every operation and kind of memory the median over so many
// segments, of the host's time to submit one and of the device's time for one (ns).
// Kinds: plain (cudaMalloc), managed as it comes, managed and prefetched, managed and
// advised to stay on the device, mapped (cuMemCreate and cuMemMap). Prints JSON.
#include "runtime.cuh"

#include <cuda.h>

#include <algorithm>
#include <vector>

#define BYTES (1ull << 30)
#define SMALL (1ull << 20)
#define PINNED (1ull << 20)

enum kind { PLAIN, MANAGED, PREFETCHED, ADVISED, MAPPED, KINDS };
static const char *const kind_names[KINDS] = {"plain", "managed", "prefetched", "advised",
                                              "mapped"};

static char *memory[KINDS], *pinned, *pageable;
static cudaStream_t stream;
static cudaGraphExec_t graphs[KINDS];

__global__ void touch(unsigned int *words)
{
	words[threadIdx.x] += 1;
}

__global__ void add_all(uint4 *words, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		words[i].x += 1;
}

// Every thread reads at places that no other reads: the address translation is what it costs.
__global__ void gather(const unsigned int *words, size_t n, unsigned int *out)
{
	unsigned long long at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
	unsigned int sum = 0;

	for (int i = 0; i < 64; i++) {
		at = at * 6364136223846793005ull + 1442695040888963407ull;
		sum += words[(at >> 20) % n];
	}
	if (sum == 0x12345678)
		*out = sum;
}

static void *entry(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *function = NULL;

	RT(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
	if (!function)
		DIE("the driver has no %s", name);
	return function;
}

#define DRIVER(name) ((decltype(&name))entry(#name))

static char *map_memory(void)
{
	CUmemAllocationProp properties = {};
	CUmemAccessDesc access = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location = properties.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (DRIVER(cuMemAddressReserve)(&at, BYTES, 0, 0, 0) ||
	    DRIVER(cuMemCreate)(&handle, BYTES, &properties, 0) ||
	    DRIVER(cuMemMap)(at, BYTES, 0, handle, 0) ||
	    DRIVER(cuMemSetAccess)(at, BYTES, &access, 1))
		DIE("cannot map memory");
	return (char *)at;
}

static void make_memory(void)
{
	cudaMemLocation here = {cudaMemLocationTypeDevice, 0};

	RT(cudaMalloc(&memory[PLAIN], BYTES));
	for (int kind = MANAGED; kind <= ADVISED; kind++)
		RT(cudaMallocManaged(&memory[kind], BYTES));
	memory[MAPPED] = map_memory();
	RT(cudaMemPrefetchAsync(memory[PREFETCHED], BYTES, here, 0, stream));
	RT(cudaMemAdvise(memory[ADVISED], BYTES, cudaMemAdviseSetPreferredLocation, here));
	RT(cudaMemAdvise(memory[ADVISED], BYTES, cudaMemAdviseSetAccessedBy, here));
	for (char *one : memory)
		RT(cudaMemsetAsync(one, 1, BYTES, stream));
	RT(cudaMallocHost(&pinned, PINNED));
	pageable = (char *)malloc(PINNED);
	memset(pinned, 1, PINNED);
	memset(pageable, 1, PINNED);
	RT(cudaStreamSynchronize(stream));
}

struct operation {
	const char *name;
	int times; // in one segment
	void (*run)(int kind);
};

static void small_kernel(int kind)
{
	add_all<<<64, 256, 0, stream>>>((uint4 *)memory[kind], SMALL / 16);
}

static void make_graphs(void)
{
	for (int kind = 0; kind < KINDS; kind++) {
		cudaGraph_t graph;

		RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		for (int i = 0; i < 32; i++)
			small_kernel(kind);
		RT(cudaStreamEndCapture(stream, &graph));
		RT(cudaGraphInstantiateWithFlags(&graphs[kind], graph, 0));
	}
}

static const struct operation operations[] = {
    {"touch", 500, [](int k) { touch<<<1, 32, 0, stream>>>((unsigned int *)memory[k]); }},
    {"kernel of 1 MiB", 500, small_kernel},
    {"graph of 32 kernels", 50, [](int k) { RT(cudaGraphLaunch(graphs[k], stream)); }},
    {"sweep of 1 GiB", 4,
     [](int k) { add_all<<<2112, 512, 0, stream>>>((uint4 *)memory[k], BYTES / 16); }},
    {"scattered reads", 10,
     [](int k) {
	     gather<<<2112, 512, 0, stream>>>((unsigned int *)memory[k], BYTES / 4,
	                                      (unsigned int *)memory[k]);
     }},
    {"memset of 4 KiB", 500, [](int k) { RT(cudaMemsetAsync(memory[k], 1, 4096, stream)); }},
    {"memset of 1 GiB", 4, [](int k) { RT(cudaMemsetAsync(memory[k], 1, BYTES, stream)); }},
    {"pinned 64 KiB to the device", 300,
     [](int k) { RT(cudaMemcpyAsync(memory[k], pinned, 65536, cudaMemcpyDefault, stream)); }},
    {"pageable 64 KiB to the device", 100,
     [](int k) { RT(cudaMemcpyAsync(memory[k], pageable, 65536, cudaMemcpyDefault, stream)); }},
    {"4 bytes to pinned memory, awaited", 100,
     [](int k) {
	     RT(cudaMemcpyAsync(pinned, memory[k], 4, cudaMemcpyDefault, stream));
	     RT(cudaStreamSynchronize(stream));
     }},
    {"4 bytes to pageable memory, awaited", 100,
     [](int k) {
	     RT(cudaMemcpyAsync(pageable, memory[k], 4, cudaMemcpyDefault, stream));
	     RT(cudaStreamSynchronize(stream));
     }},
    {"1 MiB within the device", 300,
     [](int k) {
	     RT(cudaMemcpyAsync(memory[k], memory[k] + SMALL, SMALL, cudaMemcpyDefault, stream));
     }},
};

struct cost {
	std::vector<double> host_ns, device_ns;
};

static void run_segment(const struct operation *operation, int kind, struct cost *cost)
{
	static cudaEvent_t from, to;
	double began, submitted;
	float ms;

	if (!from) {
		RT(cudaEventCreate(&from));
		RT(cudaEventCreate(&to));
	}
	operation->run(kind); // what the last kind left in caches is not this one's
	RT(cudaStreamSynchronize(stream));
	RT(cudaEventRecord(from, stream));
	began = now_s();
	for (int i = 0; i < operation->times; i++)
		operation->run(kind);
	submitted = now_s();
	RT(cudaEventRecord(to, stream));
	RT(cudaStreamSynchronize(stream));
	RT(cudaGetLastError());
	RT(cudaEventElapsedTime(&ms, from, to));
	cost->host_ns.push_back((submitted - began) * 1e9 / operation->times);
	cost->device_ns.push_back((double)ms * 1e6 / operation->times);
}

static double median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

int main(int argc, char **argv)
{
	int segments = argc > 1 ? atoi(argv[1]) : 0;
	const char *between = "";

	if (segments < 1)
		DIE("usage: kinds SEGMENTS");
	RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	make_memory();
	make_graphs();
	printf("{\"interposed\": %s, \"operations\": {", interposed());
	for (const struct operation &operation : operations) {
		struct cost costs[KINDS];

		for (int n = 0; n < segments; n++)
			for (int kind = 0; kind < KINDS; kind++)
				run_segment(&operation, kind, &costs[kind]);
		printf("%s\"%s\": {", between, operation.name);
		for (int kind = 0; kind < KINDS; kind++)
			printf("%s\"%s\": [%.0f, %.0f]", kind ? ", " : "", kind_names[kind],
			       median(costs[kind].host_ns), median(costs[kind].device_ns));
		printf("}");
		between = ", ";
	}
	printf("}}\n");
	return 0;
}
