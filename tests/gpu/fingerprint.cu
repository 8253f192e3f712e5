// fingerprint.cu: how fast the device computes the interposer's fingerprints.
//
// fingerprint FINGERPRINT.ptx MIB PIECE_MIB: launches the kernel over pieces of MIB of memory, one
// behind the other as the interposer does, alone and beside copies to and from the host. Prints a
// line of JSON: GiB/s by the device's own events, the best of several rounds.
#include "driver.cuh"

#include <stdint.h>

#define TILE 4096
#define STRETCH 64
#define BLOCK_WARPS 4
#define KEY_BYTES 248
#define ROUNDS 5
#define COPY (size_t(64) << 20)
#define GIB ((double)(UINT64_C(1) << 30))

static CUfunction function;
static CUstream stream, copies;
static CUdeviceptr memory, results, copied;
static char *host;
static unsigned char keys[KEY_BYTES];

static void draw_keys(void)
{
	uint32_t state = 1;

	for (size_t i = 0; i < KEY_BYTES; i++) {
		state = state * 1664525u + 1013904223u;
		keys[i] = (unsigned char)(state >> 24);
	}
	// Values modulo 2^61 - 1: the highest bits are not set.
	for (size_t i = 152; i < KEY_BYTES; i += 8)
		keys[i + 7] &= 0x0f;
}

static void print_piece(CUdeviceptr base, uint64_t size)
{
	uint64_t tiles = size / TILE, stretches = (tiles + STRETCH - 1) / STRETCH;
	void *parameters[] = {&base, &tiles, &results, keys};

	CU(cuLaunchKernel(function, (unsigned int)((stretches + BLOCK_WARPS - 1) / BLOCK_WARPS), 1,
	                  1, 32 * BLOCK_WARPS, 1, 1, 0, stream, parameters, NULL));
}

// Seconds for all of it.
static double one_round(uint64_t size, uint64_t piece, bool beside)
{
	CUevent from, to;
	float ms;

	CU(cuEventCreate(&from, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&to, CU_EVENT_DEFAULT));
	if (beside)
		for (int i = 0; i < 8; i++)
			CU(cuMemcpyDtoHAsync(host, copied, COPY, copies));
	CU(cuEventRecord(from, stream));
	for (uint64_t at = 0; at < size; at += piece)
		print_piece(memory + at, size - at < piece ? size - at : piece);
	CU(cuEventRecord(to, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuStreamSynchronize(copies));
	CU(cuEventElapsedTime(&ms, from, to));
	CU(cuEventDestroy(from));
	CU(cuEventDestroy(to));
	return ms / 1e3;
}

static double best_gib_s(uint64_t size, uint64_t piece, bool beside)
{
	double best = 0;

	one_round(size, piece, beside);
	for (int i = 0; i < ROUNDS; i++) {
		double now = (double)size / GIB / one_round(size, piece, beside);

		best = now > best ? now : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	uint64_t size, piece;

	if (argc != 4 || atoi(argv[2]) <= 0 || atoi(argv[3]) <= 0)
		DIE("usage: fingerprint FINGERPRINT.ptx MIB PIECE_MIB");
	size = strtoull(argv[2], NULL, 10) << 20;
	piece = strtoull(argv[3], NULL, 10) << 20;
	draw_keys();
	open_device();
	CU(cuModuleGetFunction(&function, load_ptx(argv[1]), "gpu_lease_fingerprint"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&memory, size));
	CU(cuMemAlloc(&copied, COPY));
	CU(cuMemHostAlloc((void **)&host, COPY + piece, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer(&results, host + COPY, 0));
	CU(cuMemsetD32(memory, 0x9E3779B9u, size / 4));
	CU(cuCtxSynchronize());
	printf("{\"name\": \"fingerprint\", \"gib_s\": %.1f, \"beside_copies_gib_s\": %.1f, "
	       "\"piece_mib\": %s}\n",
	       best_gib_s(size, piece, false), best_gib_s(size, piece, true), argv[3]);
	return 0;
}
