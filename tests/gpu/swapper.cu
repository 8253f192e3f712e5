// swapper.cu: a job that fills device memory and checks every byte of it in every step.
//
// swapper MIB SECONDS FILE [ready]: takes so much memory by plain allocations of at
// most 1 GiB. A step reads every 64-bit word, compares it with what it must be
// after so many steps, and writes what comes next; it begins when the one before
// has ended. FILE gets the device's time at the start and at the end of each step, three
// 64-bit numbers a step, as overlap.py reads them. Prints a line of JSON.
#include "runtime.cuh"

#include <stdint.h>
#include <vector>

#define PIECE_WORDS (UINT64_C(1) << 27)
#define MOST_STEPS (1u << 20)

struct piece {
	uint64_t *words;
	size_t n;
	uint64_t first; // number of its first word
};

static std::vector<struct piece> pieces;
static unsigned long long *found, *stamps; // words that were wrong; two times a step

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
                        unsigned long long *wrong)
{
	unsigned int mine = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		mine += words[i] != expected(first + i, step);
		words[i] = expected(first + i, step + 1);
	}
	if (mine)
		atomicAdd(wrong, mine);
}

__global__ void stamp(unsigned long long *at)
{
	*at = device_ns();
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
	stamp<<<1, 1>>>(&stamps[2 * (number % MOST_STEPS)]);
	for (const struct piece &piece : pieces)
		advance<<<2048, 256>>>(piece.words, piece.n, piece.first, number, found);
	stamp<<<1, 1>>>(&stamps[2 * (number % MOST_STEPS) + 1]);
	RT(cudaGetLastError());
	RT(cudaDeviceSynchronize());
}

static void write_spans(const char *path, uint64_t steps)
{
	std::vector<unsigned long long> times(2 * steps), spans;
	FILE *file = fopen(path, "wb");

	RT(cudaMemcpy(times.data(), stamps, times.size() * 8, cudaMemcpyDeviceToHost));
	for (uint64_t i = 0; i < steps; i++)
		spans.insert(spans.end(), {times[2 * i], times[2 * i + 1], 0});
	if (!file || fwrite(spans.data(), 8, spans.size(), file) != spans.size() || fclose(file))
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
	RT(cudaMalloc(&stamps, 2 * MOST_STEPS * sizeof(*stamps)));
	RT(cudaMemset(found, 0, sizeof(*found)));
	from = now_s();
	allocate((size_t)atoll(argv[1]) << 20);
	fprintf(stderr, "allocated in %.3f s\n", now_s() - from);
	wait_for_go(argc > 4 ? argv[4] : NULL);
	from = wall_s();
	for (double until = now_s() + seconds; now_s() < until && steps < MOST_STEPS;)
		step(steps++);
	to = wall_s();
	RT(cudaMemcpy(&wrong, found, sizeof(wrong), cudaMemcpyDeviceToHost));
	write_spans(argv[3], steps);
	printf(
	    "{\"name\": \"swapper\", \"interposed\": %s, \"steps\": %llu, \"wrong_words\": %llu, "
	    "\"from\": %.3f, \"to\": %.3f, \"steps_s\": %.2f}\n",
	    interposed(), (unsigned long long)steps, wrong, from, to, (double)steps / (to - from));
	return wrong != 0;
}
