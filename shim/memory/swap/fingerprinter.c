/* fingerprinter.c: fingerprints of device memory, computed by the device itself. */
#include "memory/swap/fingerprinter.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "work/captures.h"

#include <stdlib.h>

#define BLOCK_WARPS 4 /* warps in a block of the kernel in fingerprint.ptx */
#define KERNEL "gpu_lease_fingerprint"
/* Tiles of the known fingerprint: a whole stretch and a part of one. */
#define KNOWN_TILES (FINGERPRINT_STRETCH + 3)
#define KNOWN_BYTES ((size_t)KNOWN_TILES * FINGERPRINT_TILE)
/* Free bytes that the device must have for the module and the known bytes. */
#define NEEDED_BYTES (UINT64_C(8) << 20)

#define LINE_END "\n"
static const char ptx[] =
#include "fingerprint_ptx.inc"
    ;

static struct fingerprint_secret secret; /* of this process; valid once `drawn` is true */
static bool drawn;

static CUresult load(struct fingerprinter *p)
{
	CUresult result = REAL(cuModuleLoadData)(&p->module, ptx);

	if (!result)
		result = REAL(cuModuleGetFunction)(&p->function, p->module, KERNEL);
	if (!result)
		result = REAL(cuStreamCreate)(&p->stream, CU_STREAM_NON_BLOCKING);
	if (!result)
		result = REAL(cuEventCreate)(&p->event, CU_EVENT_DISABLE_TIMING);
	if (!result)
		result = REAL(cuMemHostAlloc)((void **)&p->values,
		                              FINGERPRINTER_VALUES * sizeof(p->values[0]),
		                              CU_MEMHOSTALLOC_DEVICEMAP);
	if (!result)
		result = REAL(cuMemHostGetDevicePointer_v2)(&p->device_values, p->values, 0);
	return result;
}

/* -- the known fingerprint ---------------------------------------------------------------- */

/* Fills memory with words that differ from each other (Knuth's linear congruential generator). */
static void make_known(uint32_t *words)
{
	uint64_t state = 1;

	for (size_t i = 0; i < KNOWN_BYTES / sizeof(words[0]); i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		words[i] = (uint32_t)(state >> 32);
	}
}

static struct fingerprint computed_by_host(const char *bytes)
{
	struct fingerprint values[2];

	values[0] = fingerprint_stretch(&secret.keys, bytes, FINGERPRINT_STRETCH);
	values[1] =
	    fingerprint_stretch(&secret.keys, bytes + FINGERPRINT_STRETCH * FINGERPRINT_TILE,
	                        KNOWN_TILES - FINGERPRINT_STRETCH);
	return fingerprint_join(&secret, values, 2);
}

/* Copies the known bytes to the address on the device, and computes their fingerprint there. */
static CUresult computed_by_device(struct fingerprinter *p, CUdeviceptr at, const void *bytes,
                                   struct fingerprint *out)
{
	CUresult result = DRIVER(cuMemcpyHtoDAsync_v2)(at, bytes, KNOWN_BYTES, p->stream);
	size_t first;

	fingerprinter_begin_batch(p);
	if (!result)
		result = fingerprinter_submit(p, at, KNOWN_BYTES, &first);
	if (!result)
		result = REAL(cuStreamSynchronize)(p->stream);
	if (!result)
		*out = fingerprinter_read(p, first, KNOWN_BYTES);
	return result;
}

static bool device_is_right(struct fingerprinter *p, CUdeviceptr at, void *bytes)
{
	struct fingerprint want, found = {0, 0};

	make_known(bytes);
	want = computed_by_host(bytes);
	return !computed_by_device(p, at, bytes, &found) && fingerprints_equal(want, found);
}

/* Compares one fingerprint of the device with that of the host. The state stays NEW if the host has
 * no memory. */
static enum fingerprinter_state try_out(struct fingerprinter *p, CUdeviceptr at)
{
	void *bytes = malloc(KNOWN_BYTES);
	bool good;

	if (!bytes)
		return FINGERPRINTER_NEW;
	good = device_is_right(p, at, bytes);
	free(bytes);
	if (!good)
		debug("clean memory is copied as well: this device computes wrong fingerprints");
	return good ? FINGERPRINTER_READY : FINGERPRINTER_WRONG;
}

static enum fingerprinter_state load_and_try(struct fingerprinter *p)
{
	enum fingerprinter_state state = FINGERPRINTER_WRONG;
	enum gl_clean fault = drawn ? GL_CLEAN_DRIVER : GL_CLEAN_NO_RANDOM;
	CUdeviceptr at;
	CUresult result;

	if (DRIVER(cuMemAlloc_v2)(&at, KNOWN_BYTES))
		return FINGERPRINTER_NEW;
	result = drawn ? load(p) : CUDA_ERROR_NOT_INITIALIZED;
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		state = FINGERPRINTER_NEW;
	else if (result)
		debug("clean memory is copied as well: the driver does not load the kernel for "
		      "fingerprints (CUDA error %d)",
		      (int)result);
	else
		state = try_out(p, at), fault = GL_CLEAN_WRONG;
	DRIVER(cuMemFree_v2)(at);
	if (state != FINGERPRINTER_READY)
		fingerprinter_end(p);
	p->fault = fault;
	return state;
}

static bool driver_can(void)
{
	return REAL(cuModuleLoadData) && REAL(cuModuleGetFunction) && REAL(cuModuleUnload) &&
	       REAL(cuMemHostAlloc) && REAL(cuMemHostGetDevicePointer_v2) && REAL(cuMemFreeHost) &&
	       DRIVER(cuLaunchKernel) && DRIVER(cuMemAlloc_v2) && DRIVER(cuMemFree_v2);
}

bool fingerprinter_prepare(struct fingerprinter *p)
{
	size_t free_bytes, total;

	if (p->state != FINGERPRINTER_NEW)
		return p->state == FINGERPRINTER_READY;
	if (captures_exist() || REAL(cuMemGetInfo_v2)(&free_bytes, &total) ||
	    free_bytes < NEEDED_BYTES)
		return false;
	if (!drawn)
		drawn = fingerprint_draw(&secret);
	p->fault = GL_CLEAN_DRIVER;
	p->state = driver_can() ? load_and_try(p) : FINGERPRINTER_WRONG;
	return p->state == FINGERPRINTER_READY;
}

/* -- batches ------------------------------------------------------------------------------ */

static size_t values_of(size_t size)
{
	return fingerprint_stretches(size / FINGERPRINT_TILE);
}

void fingerprinter_begin_batch(struct fingerprinter *p)
{
	p->n = 0;
}

CUresult fingerprinter_submit(struct fingerprinter *p, CUdeviceptr base, size_t size, size_t *first)
{
	uint64_t tiles = size / FINGERPRINT_TILE;
	CUdeviceptr values = p->device_values + p->n * sizeof(p->values[0]);
	void *parameters[] = {&base, &tiles, &values, &secret.keys};
	unsigned int blocks = (unsigned int)((values_of(size) + BLOCK_WARPS - 1) / BLOCK_WARPS);

	*first = p->n;
	p->n += values_of(size);
	return DRIVER(cuLaunchKernel)(p->function, blocks, 1, 1, BLOCK_WARPS * FINGERPRINT_LANES, 1,
	                              1, 0, p->stream, parameters, NULL);
}

CUresult fingerprinter_end_batch(struct fingerprinter *p)
{
	return REAL(cuEventRecord)(p->event, p->stream);
}

CUresult fingerprinter_query(const struct fingerprinter *p)
{
	return REAL(cuEventQuery)(p->event);
}

struct fingerprint fingerprinter_read(const struct fingerprinter *p, size_t first, size_t size)
{
	return fingerprint_join(&secret, p->values + first, values_of(size));
}

void fingerprinter_end(struct fingerprinter *p)
{
	if (p->stream) {
		REAL(cuStreamSynchronize)(p->stream);
		REAL(cuStreamDestroy_v2)(p->stream);
	}
	if (p->event)
		REAL(cuEventDestroy_v2)(p->event);
	if (p->values)
		REAL(cuMemFreeHost)(p->values);
	if (p->module)
		REAL(cuModuleUnload)(p->module);
	*p = (struct fingerprinter){0};
}

static void in_child(void)
{
	drawn = false; /* the child draws keys of its own */
}
FORK_WATCH(in_child);
