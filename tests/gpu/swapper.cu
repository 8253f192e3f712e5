// swapper.cu: a job that fills device memory and checks every byte of it in every step.
//
// swapper MIB SECONDS FILE [ready]: takes so much memory by plain allocations of at
// most 1 GiB. A step reads every 64-bit word, compares it with what it must be
// after so many steps, and writes what comes next; it begins when the one before
// has ended. FILE gets the device's time at the start and at the end of each kernel, three
// 64-bit numbers a kernel, as overlap.py reads them. Prints a line of JSON.
#include "runtime.cuh"

#include <stdint.h>
#include <vector>

#define PIECE_WORDS (UINT64_C(1) << 27)
#define MOST_KERNELS (1u << 20)

struct piece {
	uint64_t *words;
	size_t n;
	uint64_t first; // number of its first word
};

struct span {
	unsigned long long start, end, zero;
};

static std::vector<struct piece> pieces;
static unsigned long long *found; // words that were wrong
static struct span *spans;
static size_t n_kernels;

static __device__ uint64_t expected(uint64_t word, uint64_t step)
{
	return (word + 1) * UINT64_C(0x9E3779B97F4A7C15) + step * UINT64_C(0xD1B54A32D192ED03);
}

__global__ void fill(uint64_t *words, size_t n, uint64_t first)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		words[i] = expected(first + i, 0);
}

__global__ void advance(uint64_t *words, size_t n, uint64_t first, uint64_t step,
                        unsigned long long *wrong, struct span *span)
{
	unsigned int mine = 0;

	if (!threadIdx.x)
		atomicMin(&span->start, device_ns());
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		mine += words[i] != expected(first + i, step);
		words[i] = expected(first + i, step + 1);
	}
	if (mine)
		atomicAdd(wrong, mine);
	__syncthreads();
	if (!threadIdx.x)
		atomicMax(&span->end, device_ns());
}

static void allocate(size_t bytes)
{
	for (uint64_t left = bytes / 8, first = 0; left;) {
		struct piece piece = {NULL, left < PIECE_WORDS ? left : PIECE_WORDS, first};

		RT(cudaMalloc(&piece.words, piece.n * 8));
		fill<<<2048, 256>>>(piece.words, piece.n, first);
		RT(cudaGetLastError());
		pieces.push_back(piece);
		first += piece.n;
		left -= piece.n;
	}
	RT(cudaDeviceSynchronize());
}

static void step(uint64_t number)
{
	for (const struct piece &piece : pieces)
		advance<<<2048, 256>>>(piece.words, piece.n, piece.first, number, found,
		                       &spans[n_kernels++]);
	RT(cudaGetLastError());
	RT(cudaDeviceSynchronize());
}

static void write_spans(const char *path)
{
	std::vector<struct span> all(n_kernels);
	FILE *file = fopen(path, "wb");

	RT(cudaMemcpy(all.data(), spans, n_kernels * sizeof(all[0]), cudaMemcpyDeviceToHost));
	for (struct span &span : all)
		span.zero = 0;
	if (!file || fwrite(all.data(), sizeof(all[0]), n_kernels, file) != n_kernels ||
	    fclose(file))
		DIE("cannot write %s", path);
}

int main(int argc, char **argv)
{
	unsigned long long wrong = 0;
	double from, to, seconds;
	uint64_t steps = 0;

	if (argc < 4)
		DIE("usage: swapper MIB SECONDS FILE [ready]");
	seconds = atof(argv[2]);
	RT(cudaMalloc(&found, sizeof(*found)));
	RT(cudaMalloc(&spans, MOST_KERNELS * sizeof(*spans)));
	RT(cudaMemset(found, 0, sizeof(*found)));
	RT(cudaMemset2D(&spans[0].start, sizeof(*spans), 0xff, 8, MOST_KERNELS));
	RT(cudaMemset2D(&spans[0].end, sizeof(*spans), 0, 8, MOST_KERNELS));
	from = now_s();
	allocate((size_t)atoll(argv[1]) << 20);
	fprintf(stderr, "allocated in %.3f s\n", now_s() - from);
	wait_for_go(argc > 4 ? argv[4] : NULL);
	from = wall_s();
	for (double until = now_s() + seconds;
	     now_s() < until && n_kernels + pieces.size() <= MOST_KERNELS;)
		step(steps++);
	to = wall_s();
	RT(cudaMemcpy(&wrong, found, sizeof(wrong), cudaMemcpyDeviceToHost));
	write_spans(argv[3]);
	printf(
	    "{\"name\": \"swapper\", \"interposed\": %s, \"steps\": %llu, \"wrong_words\": %llu, "
	    "\"from\": %.3f, \"to\": %.3f, \"steps_s\": %.2f}\n",
	    interposed(), (unsigned long long)steps, wrong, from, to, (double)steps / (to - from));
	return wrong != 0;
}
