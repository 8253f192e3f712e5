// clean.cu: a job that changes a little of its memory at a time, and knows every word of it.
//
// clean KERNELS.ptx MIB PIECE_MIB BALLAST_MIB: MIB of memory in pieces of their own, each of which
// is also in host memory; the ballast is taken last, filled once and not looked at. For each
// line that it reads it prints a line of JSON:
//   change N   the N-th round of changes; changed: pieces that are not what they were
//   check      compare every word; wrong: how many differ
// A round makes two of the changes below, and in the last rounds of ten none.
#include "clean_changes.cuh"

#define BOUNCE (size_t(16) << 20)
#define QUIET 2 // rounds of ten without a change

static uint32_t *bounce;

// -- what it is told -------------------------------------------------------------------------

static void do_change(unsigned long round)
{
	size_t quiet = round % 10 >= 10 - QUIET, changed = 0;

	printf("{\"made\": [");
	for (size_t i = 0; i < 2 && !quiet; i++) {
		size_t kind = (round * 3 + i * 5) % CHANGES;
		// Pieces of their own, so that the number of changed ones is known.
		size_t at = (2 * round + i) % (pieces.size() - 1);

		changed += changes[kind].make(pieces[at]);
		printf("%s\"%s\"", i ? ", " : "", changes[kind].name);
	}
	CU(cuCtxSynchronize());
	printf("], \"changed\": %zu}\n", changed);
}

static uint64_t wrong_words(const uint32_t *found, const uint32_t *want, size_t n)
{
	uint64_t wrong = 0;

	if (!memcmp(found, want, 4 * n))
		return 0;
	for (size_t i = 0; i < n; i++)
		wrong += found[i] != want[i];
	return wrong;
}

static void do_check(void)
{
	uint64_t wrong = 0;

	for (const struct piece &piece : pieces) {
		for (uint64_t at = 0; at < n_words; at += BOUNCE / 4) {
			size_t n = n_words - at < BOUNCE / 4 ? n_words - at : BOUNCE / 4;

			CU(cuMemcpyDtoH(bounce, address(piece, at), 4 * n));
			wrong += wrong_words(bounce, &piece.words[at], n);
		}
	}
	printf("{\"wrong\": %llu, \"words\": %llu}\n", (unsigned long long)wrong,
	       (unsigned long long)(pieces.size() * n_words));
}

static CUdeviceptr take(uint64_t words, uint32_t seed)
{
	CUdeviceptr at;
	void *parameters[] = {&at, &words, &seed};

	CU(cuMemAlloc(&at, 4 * words));
	CU(cuLaunchKernel(fill, 1024, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
	return at;
}

static void prepare(const char *ptx, uint64_t words, uint64_t ballast_words)
{
	CUmodule module;
	CUgraph captured;

	open_device();
	module = load_ptx(ptx);
	CU(cuModuleGetFunction(&fill, module, "fill"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&bounce, BOUNCE, 0));
	for (uint64_t left = words; left >= n_words; left -= n_words) {
		uint32_t seed = 99 + 1000003u * (uint32_t)pieces.size();

		pieces.push_back({take(n_words, seed), std::vector<uint32_t>(n_words)});
		for (uint64_t i = 0; i < n_words; i++)
			pieces.back().words[i] = seed + (uint32_t)i * FACTOR;
	}
	if (pieces.size() < 4)
		DIE("too few pieces");
	take(ballast_words, 1);
	CU(cuCtxSynchronize());
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	submit_graph_work();
	CU(cuStreamEndCapture(stream, &captured));
	CU(cuGraphInstantiateWithFlags(&graph, captured, 0));
	CU(cuGraphDestroy(captured));
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 5)
		DIE("usage: clean KERNELS.ptx MIB PIECE_MIB BALLAST_MIB");
	n_words = strtoull(argv[3], NULL, 10) << 18;
	prepare(argv[1], strtoull(argv[2], NULL, 10) << 18, strtoull(argv[4], NULL, 10) << 18);
	printf("{\"pieces\": %zu, \"interposed\": %s}\n", pieces.size(), interposed());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "change ", 7))
			do_change(strtoul(line + 7, NULL, 10));
		else if (!strcmp(line, "check\n"))
			do_check();
		else
			DIE("unknown: %s", line);
		fflush(stdout);
	}
	return 0;
}
