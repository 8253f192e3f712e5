// call_cost.cu: what the interposer adds to a call of the driver, measured in one process.
//
// call_cost KERNELS.ptx: prints where the driver's functions lie in its library, as NAME=OFFSET.
// call_cost KERNELS.ptx NAME=OFFSET...: under the interposer, makes each call by turns through the
// interposer's function and through the driver's own, in batches, and prints a line of JSON: ns
// that the interposer adds to each, and those of the driver's own call.
#include "driver.cuh"

#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <vector>

#define WORDS 4096
#define PINNED 64
#define BLOCK (4 << 20)
#define ROUNDS 60
#define FAST 400 // calls in a batch
#define SLOW 8

enum { DRIVER, INTERPOSER };

static CUfunction add;
static CUstream stream;
static CUgraphExec graph;
static CUdeviceptr words;
static void *pinned;

// The functions, by either way.
#define FUNCTIONS(F)                                                                               \
	F(cuLaunchKernel)                                                                          \
	F(cuGraphLaunch)                                                                           \
	F(cuMemsetD32Async)                                                                        \
	F(cuMemcpyDtoHAsync_v2)                                                                    \
	F(cuPointerGetAttribute)                                                                   \
	F(cuGetProcAddress_v2)                                                                     \
	F(cuMemGetInfo_v2)                                                                         \
	F(cuMemAlloc_v2)                                                                           \
	F(cuMemFree_v2)                                                                            \
	F(cuMemAllocAsync)                                                                         \
	F(cuMemFreeAsync)

static struct functions {
#define F(name) decltype(&name) to_##name;
	FUNCTIONS(F)
#undef F
} ways[2];

// -- the calls ----------------------------------------------------------------------

static void launch(const struct functions *way)
{
	unsigned long long n = 32; // short, so that the queue does not fill
	unsigned int value = 3, rounds = 1;
	void *params[] = {&words, &n, &value, &rounds};

	CU(way->to_cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void launch_graph(const struct functions *way)
{
	CU(way->to_cuGraphLaunch(graph, stream));
}

static void set(const struct functions *way)
{
	CU(way->to_cuMemsetD32Async(words, 1, WORDS, stream));
}

static void copy(const struct functions *way)
{
	CU(way->to_cuMemcpyDtoHAsync_v2(pinned, words, PINNED, stream));
}

static void ask(const struct functions *way)
{
	unsigned int type;

	CU(way->to_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, words));
}

static void ask_address(const struct functions *way)
{
	CUdriverProcAddressQueryResult found;
	void *function;

	CU(way->to_cuGetProcAddress_v2("cuLaunchKernel", &function, 12000, 0, &found));
}

static void ask_memory(const struct functions *way)
{
	size_t free_bytes, total;

	CU(way->to_cuMemGetInfo_v2(&free_bytes, &total));
}

static void allocate(const struct functions *way)
{
	CUdeviceptr block;

	CU(way->to_cuMemAlloc_v2(&block, BLOCK));
	CU(way->to_cuMemFree_v2(block));
}

static void allocate_ordered(const struct functions *way)
{
	CUdeviceptr block;

	CU(way->to_cuMemAllocAsync(&block, BLOCK, stream));
	CU(way->to_cuMemFreeAsync(block, stream));
}

static const struct {
	const char *name; // as tests/gpu/speed/calls.py calls it
	void (*call)(const struct functions *way);
	int batch;
} kinds[] = {
    {"launch", launch, FAST},
    {"graph", launch_graph, FAST / 4},
    {"memset", set, FAST},
    {"copy", copy, FAST},
    {"pointer", ask, FAST},
    {"address", ask_address, FAST},
    {"memory", ask_memory, FAST / 10},
    {"allocate", allocate, SLOW},
    {"allocate_ordered", allocate_ordered, FAST / 10},
};

// -- measuring ----------------------------------------------------------------------

static double batch_ns(void (*call)(const struct functions *), const struct functions *way, int n)
{
	double began = now_s();

	for (int i = 0; i < n; i++)
		call(way);
	began = now_s() - began;
	CU(cuStreamSynchronize(stream));
	return began / n * 1e9;
}

static double median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

// Of each round the difference: what slows the machine for longer than a round is taken out.
static void measure(int n)
{
	std::vector<double> own, added;

	for (int r = 0; r < ROUNDS; r++) {
		double ns[2];

		for (int k = 0; k < 2; k++) {
			int way = (r + k) % 2;

			ns[way] = batch_ns(kinds[n].call, &ways[way], kinds[n].batch);
		}
		own.push_back(ns[DRIVER]);
		added.push_back(ns[INTERPOSER] - ns[DRIVER]);
	}
	printf("%s\"%s\": {\"added_ns\": %.2f, \"driver_ns\": %.1f}", n ? ", " : "{", kinds[n].name,
	       median(added), median(own));
}

// -- setting up ---------------------------------------------------------------------

static int find_base(struct dl_phdr_info *info, size_t, void *out)
{
	if (!strstr(info->dlpi_name, "/libcuda.so"))
		return 0;
	*(char **)out = (char *)info->dlpi_addr;
	return 1;
}

static char *driver_base(void)
{
	char *base = NULL;

	if (!dl_iterate_phdr(find_base, &base))
		DIE("the driver is loaded from no file");
	return base;
}

static void print_offsets(void)
{
	char *base = driver_base();

#define F(name) printf("%s=%zu\n", #name, (size_t)((char *)dlsym(RTLD_DEFAULT, #name) - base));
	FUNCTIONS(F)
#undef F
}

static size_t offset_of(const char *name, char **given)
{
	size_t length = strlen(name);

	for (; *given; given++)
		if (!strncmp(*given, name, length) && (*given)[length] == '=')
			return strtoull(*given + length + 1, NULL, 10);
	DIE("%s is not given", name);
}

static void find_ways(char **given)
{
	char *base = driver_base();

#define F(name)                                                                                    \
	ways[DRIVER].to_##name = (decltype(&name))(base + offset_of(#name, given));                \
	ways[INTERPOSER].to_##name = (decltype(&name))dlsym(RTLD_DEFAULT, #name);                  \
	if (ways[DRIVER].to_##name == ways[INTERPOSER].to_##name)                                  \
		DIE("nothing stands before the driver's %s", #name);
	FUNCTIONS(F)
#undef F
}

static void capture_graph(void)
{
	CUgraph captured;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < 4; i++)
		launch(&ways[INTERPOSER]);
	CU(cuStreamEndCapture(stream, &captured));
	CU(cuGraphInstantiateWithFlags(&graph, captured, 0));
}

int main(int argc, char **argv)
{
	if (argc < 2)
		DIE("usage: call_cost KERNELS.ptx [NAME=OFFSET...]");
	open_device();
	if (argc == 2) {
		print_offsets();
		return 0;
	}
	find_ways(argv + 2);
	CU(cuModuleGetFunction(&add, load_ptx(argv[1]), "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&words, WORDS * 4));
	CU(cuMemAllocHost(&pinned, PINNED));
	capture_graph();
	for (size_t n = 0; n < sizeof(kinds) / sizeof(kinds[0]); n++) {
		for (int way = 0; way < 2; way++)
			batch_ns(kinds[n].call, &ways[way], kinds[n].batch);
		measure((int)n);
	}
	printf("}\n");
	return 0;
}
