// clean_changes.cuh: small changes of device memory, and what must be there behind them.
#pragma once

#include "driver.cuh"

#include <stdint.h>
#include <vector>

#define FACTOR 2654435761u // of kernels.ptx: fill

struct piece {
	CUdeviceptr at;
	std::vector<uint32_t> words; // what must be there
};

static std::vector<struct piece> pieces;
static uint64_t n_words; // of a piece
static CUfunction fill, add;
static CUstream stream; // beside the legacy default stream
static CUgraphExec graph;
static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (state >> 33) % below;
}

static CUdeviceptr address(const struct piece &piece, uint64_t word)
{
	return piece.at + 4 * word;
}

static void submit_add(CUdeviceptr at, uint64_t n, uint32_t value, CUstream on)
{
	uint32_t rounds = 1;
	void *parameters[] = {&at, &n, &value, &rounds};

	CU(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, on, parameters, NULL));
}

static void put(struct piece &piece, uint64_t word, uint32_t value)
{
	piece.words[word] = value;
	CU(cuMemcpyHtoD(address(piece, word), &value, 4));
}

// -- changes: each returns whether the piece is another one behind it -----------------------

// One word of the last 16 bytes.
static bool change_last(struct piece &piece)
{
	uint64_t word = n_words - 1 - draw(4);

	piece.words[word] += 1;
	CU(cuMemsetD32(address(piece, word), piece.words[word], 1));
	return true;
}

static bool change_bit(struct piece &piece)
{
	uint64_t word = draw(n_words);

	put(piece, word, piece.words[word] ^ 1u << draw(32));
	return true;
}

// Two words change places: far apart, or beside each other.
static bool swap_words(struct piece &piece)
{
	uint64_t one = draw(n_words - 1), other = draw(2) ? one + 1 : draw(n_words);
	uint32_t kept = piece.words[one];

	put(piece, one, piece.words[other]);
	put(piece, other, kept);
	return piece.words[one] != piece.words[other];
}

// What one word gains another one loses.
static bool shift_sum(struct piece &piece)
{
	uint64_t one = draw(n_words - 8);

	submit_add(address(piece, one), 1, 1, NULL);
	submit_add(address(piece, one + 4), 1, 0xffffffffu, NULL);
	piece.words[one] += 1;
	piece.words[one + 4] -= 1;
	return true;
}

static bool change_and_back(struct piece &piece)
{
	uint64_t word = draw(n_words);
	uint32_t kept = piece.words[word];

	put(piece, word, ~kept);
	CU(cuCtxSynchronize());
	put(piece, word, kept);
	return false;
}

static bool by_kernel(struct piece &piece)
{
	uint64_t word = draw(n_words - 7);

	submit_add(address(piece, word), 7, 5, NULL);
	for (uint64_t i = 0; i < 7; i++)
		piece.words[word + i] += 5;
	return true;
}

static bool by_memset(struct piece &piece)
{
	uint64_t word = draw(n_words - 4);
	uint32_t value = (uint32_t)draw(256) * 0x01010101u;
	bool changed = false;

	CU(cuMemsetD8(address(piece, word), (unsigned char)value, 16));
	for (uint64_t i = 0; i < 4; i++) {
		changed = changed || piece.words[word + i] != value;
		piece.words[word + i] = value;
	}
	return changed;
}

// From another place of the same piece.
static bool by_copy(struct piece &piece)
{
	uint64_t to = draw(n_words / 2), from = n_words / 2 + draw(n_words / 2 - 16);
	bool changed = false;

	CU(cuMemcpyDtoD(address(piece, to), address(piece, from), 64));
	for (uint64_t i = 0; i < 16; i++) {
		changed = changed || piece.words[to + i] != piece.words[from + i];
		piece.words[to + i] = piece.words[from + i];
	}
	return changed;
}

static bool by_other_stream(struct piece &piece)
{
	uint64_t word = draw(n_words);

	submit_add(address(piece, word), 1, 9, stream);
	CU(cuStreamSynchronize(stream));
	piece.words[word] += 9;
	return true;
}

// The graph knows its piece: the last one.
static void submit_graph_work(void)
{
	submit_add(address(pieces.back(), n_words - 1), 1, 3, stream);
}

static bool by_graph(struct piece &)
{
	CU(cuGraphLaunch(graph, stream));
	CU(cuStreamSynchronize(stream));
	pieces.back().words[n_words - 1] += 3;
	return true;
}

static const struct {
	const char *name;
	bool (*make)(struct piece &);
} changes[] = {
    {"last", change_last},       {"bit", change_bit},   {"swap", swap_words},  {"sum", shift_sum},
    {"back", change_and_back},   {"kernel", by_kernel}, {"memset", by_memset}, {"copy", by_copy},
    {"stream", by_other_stream}, {"graph", by_graph},
};

#define CHANGES (sizeof(changes) / sizeof(changes[0]))
