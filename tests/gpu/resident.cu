// resident.cu: a job that holds device memory and does what it is told, a line at a time.
//
// resident KERNELS.ptx MIB SMALL_MIB [PIECE_MIB]: takes MIB by plain allocations of at most
// PIECE_MIB (1 GiB), each filled with words of its own, and SMALL_MIB that it writes in every
// request. It prints a line of JSON at its start and one for each line that it reads, until its
// input ends:
//   fill            take the memory and fill it
//   request         read all of it, then write the small area; what both held is compared
//   check           read all of it and compare
//   wake            one empty kernel
//   write           change every word
//   change ROUNDS   so many times, with one kernel for each allocation
//   capture         begin a capture in which all words are changed once; it stays open
//   launch          end it, and launch its graph
//   work S PART_S   change every word again and again; steps of each part of so many seconds
// asked, answered: seconds of the monotonic clock. wrong: pieces whose checksum is not what the
// host computes of the words that must be there.
#include "driver.cuh"

#include <atomic>
#include <stdint.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define BLOCKS 1056
#define THREADS 256
#define FACTOR 2654435761u // of kernels.ptx: fill
#define WEIGHTS 65521u     // of kernels.ptx: checksum
#define ADDED 3u
#define MOST_PIECES 1024

struct piece {
	CUdeviceptr at;
	uint64_t words;
	uint32_t seed;
	uint64_t sum; // what its checksum must be
};

static std::vector<struct piece> pieces; // the last one is the small area
static CUfunction fill, add, checksum, empty;
static CUdeviceptr sums;
static bool sums_known;
static uint64_t piece_words = UINT64_C(1) << 28;
static CUstream stream; // NULL, or the one that captures

// -- what must be there ------------------------------------------------------------------

static uint64_t sum_of(const struct piece &piece)
{
	uint64_t sum = 0, weight = 0;

	for (uint64_t i = 0; i < piece.words; i++) {
		sum += (uint64_t)(piece.seed + (uint32_t)i * FACTOR) * (weight + 1);
		weight = weight + 1 == WEIGHTS ? 0 : weight + 1;
	}
	return sum;
}

static void know_sums(void)
{
	std::vector<std::thread> threads;
	std::atomic<size_t> next{0};

	for (unsigned int t = 0; t < std::thread::hardware_concurrency(); t++)
		threads.emplace_back([&] {
			for (size_t i; (i = next++) < pieces.size();)
				pieces[i].sum = sum_of(pieces[i]);
		});
	for (std::thread &thread : threads)
		thread.join();
	sums_known = true;
}

// -- what the device does ------------------------------------------------------------------

static void launch(CUfunction function, void **parameters)
{
	CU(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

static void submit_fill(struct piece &piece)
{
	void *parameters[] = {&piece.at, &piece.words, &piece.seed};

	launch(fill, parameters);
}

static void submit_add(struct piece &piece, uint32_t rounds)
{
	uint32_t value = ADDED;
	void *parameters[] = {&piece.at, &piece.words, &value, &rounds};

	launch(add, parameters);
	piece.seed += ADDED * rounds;
}

static void submit_sums(void)
{
	CU(cuMemsetD8Async(sums, 0, pieces.size() * 8, NULL));
	for (size_t i = 0; i < pieces.size(); i++) {
		CUdeviceptr out = sums + 8 * i;
		void *parameters[] = {&pieces[i].at, &pieces[i].words, &out};

		launch(checksum, parameters);
	}
}

static int wrong_sums(const std::vector<uint64_t> &found)
{
	int wrong = 0;

	for (size_t i = 0; i < pieces.size(); i++)
		wrong += found[i] != pieces[i].sum;
	return wrong;
}

static void submit_changes(uint32_t rounds)
{
	for (size_t i = 0; i + 1 < pieces.size(); i++)
		submit_add(pieces[i], rounds);
	sums_known = false;
}

static void change_all(uint32_t rounds)
{
	submit_changes(rounds);
	CU(cuCtxSynchronize());
}

// -- what it is told -------------------------------------------------------------------------

static void take_memory(uint64_t words)
{
	while (words) {
		struct piece piece = {0, words < piece_words ? words : piece_words, 0, 0};

		CU(cuMemAlloc(&piece.at, piece.words * 4));
		piece.seed = 17 + 1000003u * (uint32_t)pieces.size();
		submit_fill(piece);
		pieces.push_back(piece);
		words -= piece.words;
	}
}

static void do_fill(uint64_t words, uint64_t small_words)
{
	double asked = now_s(), answered;

	take_memory(words);
	take_memory(small_words);
	CU(cuCtxSynchronize());
	answered = now_s();
	know_sums();
	printf("{\"asked\": %.6f, \"answered\": %.6f, \"bytes\": %llu}\n", asked, answered,
	       (unsigned long long)(words + small_words) * 4);
}

static void do_read(bool writes)
{
	std::vector<uint64_t> found(pieces.size());
	struct piece &small = pieces.back();
	double asked, answered;
	int wrong;

	if (!sums_known)
		know_sums();
	asked = now_s();
	submit_sums();
	if (writes) {
		small.seed++;
		submit_fill(small);
	}
	CU(cuMemcpyDtoH(found.data(), sums, found.size() * 8));
	answered = now_s();
	wrong = wrong_sums(found);
	if (writes)
		small.sum = sum_of(small);
	printf("{\"asked\": %.6f, \"answered\": %.6f, \"wrong\": %d, \"pieces\": %zu}\n", asked,
	       answered, wrong, pieces.size());
}

static void do_wake(void)
{
	double asked = now_s();

	launch(empty, NULL);
	CU(cuCtxSynchronize());
	printf("{\"asked\": %.6f, \"answered\": %.6f}\n", asked, now_s());
}

static void do_write(void)
{
	double asked = now_s(), answered;

	change_all(1);
	answered = now_s();
	know_sums();
	printf("{\"asked\": %.6f, \"answered\": %.6f}\n", asked, answered);
}

static void do_change(uint32_t rounds)
{
	double asked = now_s();

	change_all(rounds);
	printf("{\"asked\": %.6f, \"answered\": %.6f}\n", asked, now_s());
}

static void do_capture(void)
{
	double asked = now_s();

	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	submit_changes(1);
	printf("{\"asked\": %.6f, \"answered\": %.6f}\n", asked, now_s());
}

static void do_launch(void)
{
	double asked = now_s();
	CUgraphExec executable;
	CUgraph graph;

	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
	CU(cuGraphLaunch(executable, stream));
	CU(cuStreamSynchronize(stream));
	printf("{\"asked\": %.6f, \"answered\": %.6f}\n", asked, now_s());
	CU(cuGraphExecDestroy(executable));
	CU(cuGraphDestroy(graph));
	CU(cuStreamDestroy(stream));
	stream = NULL;
}

// The first step is by itself: memory may have to come back for it.
static void do_work(double seconds, double part_s)
{
	double asked = now_s(), first, end, part;
	unsigned long steps = 0;

	change_all(1);
	first = part = now_s();
	printf("{\"asked\": %.6f, \"answered\": %.6f, \"steps_s\": [", asked, first);
	for (bool more = false; (end = now_s()) < first + seconds || !more;) {
		if (end >= part + part_s) {
			printf("%s%.4f", more ? ", " : "", (double)steps / (end - part));
			more = true;
			steps = 0;
			part = end;
		}
		change_all(1);
		steps++;
	}
	printf("], \"ended\": %.6f}\n", end);
}

static void obey(const char *line, uint64_t words, uint64_t small_words)
{
	double seconds, part_s;
	unsigned int rounds;

	if (!strcmp(line, "fill\n"))
		do_fill(words, small_words);
	else if (!strcmp(line, "request\n") || !strcmp(line, "check\n"))
		do_read(*line == 'r');
	else if (!strcmp(line, "wake\n"))
		do_wake();
	else if (!strcmp(line, "capture\n"))
		do_capture();
	else if (!strcmp(line, "launch\n"))
		do_launch();
	else if (!strcmp(line, "write\n"))
		do_write();
	else if (sscanf(line, "change %u", &rounds) == 1)
		do_change(rounds);
	else if (sscanf(line, "work %lf %lf", &seconds, &part_s) == 2)
		do_work(seconds, part_s);
	else
		DIE("unknown: %s", line);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	CUmodule module;
	char line[256];

	if (argc < 4 || argc > 5 || atoi(argv[2]) <= 0 || atoi(argv[3]) <= 0)
		DIE("usage: resident KERNELS.ptx MIB SMALL_MIB [PIECE_MIB]");
	if (argc == 5)
		piece_words = strtoull(argv[4], NULL, 10) << 18;
	open_device();
	module = load_ptx(argv[1]);
	CU(cuModuleGetFunction(&fill, module, "fill"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuModuleGetFunction(&checksum, module, "checksum"));
	CU(cuModuleGetFunction(&empty, module, "empty"));
	CU(cuMemAlloc(&sums, MOST_PIECES * 8));
	printf("{\"pid\": %d, \"interposed\": %s}\n", (int)getpid(), interposed());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line, strtoull(argv[2], NULL, 10) << 18, strtoull(argv[3], NULL, 10) << 18);
	return 0;
}
