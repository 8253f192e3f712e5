// launch.cu: what it costs to submit work, by the driver's functions.
//
// launch KERNELS.ptx SECONDS [ready]: batches of one kind of call by turns; the
// time of a call is the median over batches of submission alone. The GPU is
// waited for between batches, outside of what is timed. Prints a line of JSON.
#include "driver.cuh"

#include <algorithm>
#include <vector>

#define BATCH 512 // a launch blocks once 1024 wait on a stream
#define BYTES 4096

static CUfunction empty;
static CUstream stream;
static CUdeviceptr memory;
static CUgraphExec graph;

static void submit_launch(void)
{
	CU(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void submit_launch_ex(void)
{
	CUlaunchConfig config = {};

	config.gridDimX = config.gridDimY = config.gridDimZ = 1;
	config.blockDimX = config.blockDimY = config.blockDimZ = 1;
	config.hStream = stream;
	CU(cuLaunchKernelEx(&config, empty, NULL, NULL));
}

static void submit_memset(void)
{
	CU(cuMemsetD8Async(memory, 1, BYTES, stream));
}

static void submit_graph(void)
{
	CU(cuGraphLaunch(graph, stream));
}

static struct kind {
	const char *name;
	void (*submit)(void);
	std::vector<double> ns; // of a call, by batch
} kinds[] = {
    {"launch_ns", submit_launch, {}},
    {"launch_ex_ns", submit_launch_ex, {}},
    {"memset_ns", submit_memset, {}},
    {"graph_ns", submit_graph, {}},
};

static const int n_kinds = sizeof(kinds) / sizeof(kinds[0]);

static void prepare(const char *ptx)
{
	open_device();
	CU(cuModuleGetFunction(&empty, load_ptx(ptx), "empty"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&memory, BYTES));
}

// A graph of one kernel. False: something in this process breaks captures.
static bool capture_graph(void)
{
	CUresult launched, ended;
	CUgraph captured = NULL;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launched = cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
	ended = cuStreamEndCapture(stream, &captured);
	if (launched || ended || !captured)
		return false;
	CU(cuGraphInstantiateWithFlags(&graph, captured, 0));
	CU(cuGraphDestroy(captured));
	return true;
}

static void run_batch(struct kind *kind)
{
	double start = now_s();

	for (int i = 0; i < BATCH; i++)
		kind->submit();
	kind->ns.push_back((now_s() - start) / BATCH * 1e9);
	CU(cuStreamSynchronize(stream));
}

// The value below which so much of the batches are; sorts them.
static double quantile(std::vector<double> &values, double part)
{
	std::sort(values.begin(), values.end());
	return values[(size_t)(part * (double)(values.size() - 1))];
}

// Batches of the first n kinds by turns, for so many seconds; how long it took.
static double run_for(double seconds, int n)
{
	double start = now_s(), passed;

	do {
		for (int i = 0; i < n; i++)
			run_batch(&kinds[i]);
		passed = now_s() - start;
	} while (passed < seconds);
	return passed;
}

int main(int argc, char **argv)
{
	double passed;
	int n;

	if (argc < 3)
		DIE("usage: launch KERNELS.ptx SECONDS [ready]");
	prepare(argv[1]);
	run_for(0.2, n_kinds - 1);
	n = capture_graph() ? n_kinds : n_kinds - 1; // the last one
	run_for(0.1, n);
	for (auto &kind : kinds)
		kind.ns.clear();
	wait_for_go(argc > 3 ? argv[3] : NULL);
	passed = run_for(atof(argv[2]), n);
	printf("{\"name\": \"launch\", \"interposed\": %s, ", interposed());
	for (int i = 0; i < n; i++)
		printf("\"%s\": %.1f, ", kinds[i].name, quantile(kinds[i].ns, 0.5));
	printf("\"launch_p10_ns\": %.1f, ", quantile(kinds[0].ns, 0.1));
	printf("\"batches\": %zu, ", kinds[0].ns.size());
	printf("\"steps_s\": %.1f}\n", (double)(kinds[0].ns.size() * n * BATCH) / passed);
	return 0;
}
