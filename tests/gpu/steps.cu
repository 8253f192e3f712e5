// steps.cu: a program that works in steps, as a server or a training does, and how long they take.
//
// steps KERNELS.ptx KERNEL NS KERNELS MIB_IN MIB_OUT EVERY_MS QUEUED: a step copies MIB_IN from
// pinned host memory to the device, launches KERNELS kernels of about NS each, and copies MIB_OUT
// back. KERNEL: spin, or add:MIB, which passes over so much memory, or add:MIB:PASSES, so often
// whatever NS says. With EVERY_MS a step is due so often on average, at random from half to one and
// a half of that, whether the last one has ended or not, and the program waits for each: a server.
// Without, QUEUED steps are submitted ahead: a training. It prints `ready` with how many passes a
// kernel is. For each line of its input, SETTLE SECONDS, it works for both and prints a line of
// JSON of the SECONDS: the steps that ended in them, from the first to the last, and how long each
// took, if any did.
#include "driver.cuh"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#define MOST_QUEUED 64
#define TRIED 64 // passes, by which the length of one is found
#define MIB (UINT64_C(1) << 20)

static CUfunction spin, add;
static CUdeviceptr buffer, copied;
static CUstream stream;
static void *host;
static unsigned long long words, in_bytes, out_bytes, amount;
static unsigned long kernels;

static void launch(unsigned long long much)
{
	unsigned int value = 1, rounds = (unsigned int)much;
	void *of_spin[] = {&much}, *of_add[] = {&buffer, &words, &value, &rounds};

	if (words)
		CU(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, stream, of_add, NULL));
	else
		CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, of_spin, NULL));
}

static void step(void)
{
	if (in_bytes)
		CU(cuMemcpyHtoDAsync(copied, host, in_bytes, stream));
	for (unsigned long i = 0; i < kernels; i++)
		launch(amount);
	if (out_bytes)
		CU(cuMemcpyDtoHAsync(host, copied, out_bytes, stream));
}

static double ms_of(unsigned long long much)
{
	double start;

	CU(cuStreamSynchronize(stream));
	start = now_s();
	launch(much);
	CU(cuStreamSynchronize(stream));
	return (now_s() - start) * 1e3;
}

// The passes that take so long, or the ns themselves.
static unsigned long long amount_of(double ns)
{
	double pass_ms;

	if (!words)
		return (unsigned long long)ns;
	pass_ms = INFINITY;
	for (int i = 0; i < TRIED / 8; i++)
		pass_ms = std::min(pass_ms, ms_of(TRIED) / TRIED);
	return std::max(1ull, (unsigned long long)(ns / 1e6 / pass_ms + 0.5));
}

static void prepare(const char *ptx)
{
	unsigned long long most = std::max(in_bytes, out_bytes);
	CUmodule module;

	open_device();
	module = load_ptx(ptx);
	CU(cuModuleGetFunction(&spin, module, "spin"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (words) {
		CU(cuMemAlloc(&buffer, words * 4));
		CU(cuMemsetD8(buffer, 0, words * 4));
	}
	if (most) {
		CU(cuMemAlloc(&copied, most));
		CU(cuMemsetD8(copied, 0, most));
		CU(cuMemHostAlloc(&host, most, 0));
		memset(host, 1, most);
	}
	CU(cuCtxSynchronize()); // the stream does not wait for it
}

static void report(std::vector<double> &took, double from, double last)
{
	double sum = 0;

	if (took.empty()) {
		printf("{\"interposed\": %s, \"steps\": 0, \"seconds\": %.6f}\n", interposed(),
		       last - from);
		fflush(stdout);
		return;
	}
	for (double one : took)
		sum += one;
	std::sort(took.begin(), took.end());
	printf("{\"interposed\": %s, \"steps\": %zu, \"seconds\": %.6f, \"mean_ms\": %.4f, "
	       "\"p50_ms\": %.4f, \"p99_ms\": %.4f}\n",
	       interposed(), took.size(), last - from, sum / (double)took.size(),
	       took[took.size() / 2], took[took.size() * 99 / 100]);
	fflush(stdout);
}

// Steps on their dates, each of which is waited for.
static void serve(double settle, double seconds, double every_s)
{
	std::mt19937 random(7);
	std::uniform_real_distribution<double> part(0.5, 1.5);
	std::vector<double> took;
	double due = now_s(), from = due + settle, until = from + seconds, ended;

	while ((due += every_s * part(random)) < until) {
		while (now_s() < due)
			sleep_s(std::max(0.0, due - now_s() - 1e-4));
		step();
		CU(cuStreamSynchronize(stream));
		ended = now_s();
		if (ended >= until)
			break; // what is late is not made up for
		if (due >= from)
			took.push_back((ended - due) * 1e3);
	}
	report(took, from, until);
}

// One step after the other; how long each took: from the end of the one before.
static void work(double settle, double seconds, unsigned long queued)
{
	static CUevent done[MOST_QUEUED];
	std::vector<double> took;
	unsigned long submitted = 0, finished = 0;
	double last = now_s(), from = last + settle, until = from + seconds, first = 0, ended = 0;

	for (unsigned long i = 0; i < queued && !done[i]; i++)
		CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	while (last < until) {
		while (submitted - finished < queued) {
			step();
			CU(cuEventRecord(done[submitted++ % queued], stream));
		}
		CU(cuEventSynchronize(done[finished++ % queued]));
		ended = now_s();
		if (first > 0)
			took.push_back((ended - last) * 1e3);
		if (first <= 0 && ended >= from)
			first = ended;
		last = ended;
	}
	CU(cuStreamSynchronize(stream));
	report(took, took.empty() ? from : first, last);
}

int main(int argc, char **argv)
{
	double settle, seconds, every_ms;
	unsigned long queued;
	char line[64] = "", *passes = line;

	if (argc < 9)
		DIE("usage: steps KERNELS.ptx spin|add:MIB NS KERNELS MIB_IN MIB_OUT EVERY_MS "
		    "QUEUED");
	if (strchr(argv[2], ':'))
		words = strtoull(strchr(argv[2], ':') + 1, &passes, 10) << 18;
	kernels = strtoul(argv[4], NULL, 10);
	in_bytes = strtoull(argv[5], NULL, 10) * MIB;
	out_bytes = strtoull(argv[6], NULL, 10) * MIB;
	every_ms = atof(argv[7]);
	queued = strtoul(argv[8], NULL, 10);
	if (queued < 1 || queued > MOST_QUEUED)
		DIE("QUEUED is from 1 to %d", MOST_QUEUED);
	prepare(argv[1]);
	amount = *passes == ':' ? strtoull(passes + 1, NULL, 10) : amount_of(atof(argv[3]));
	printf("{\"passes\": %llu}\nready\n", words ? amount : 0);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%lf %lf", &settle, &seconds) != 2)
			DIE("unknown: %s", line);
		if (every_ms > 0)
			serve(settle, seconds, every_ms / 1e3);
		else
			work(settle, seconds, queued);
	}
	return 0;
}
