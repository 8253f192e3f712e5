/* printer.c: fingerprints of device memory, computed by the device itself. */
#include "memory/swap/printer.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "work/captures.h"

#include <stdlib.h>

#define BLOCK_WARPS 4 /* as fingerprint.ptx has it */
#define KERNEL "gpu_lease_fingerprint"
#define KNOWN_TILES (FINGERPRINT_STRETCH + 3) /* two stretches, and not a whole number */
#define KNOWN_BYTES ((size_t)KNOWN_TILES * FINGERPRINT_TILE)
#define ROOM (UINT64_C(8) << 20) /* that the device has left for the module and known bytes */

#define LINE_END "\n"
static const char ptx[] =
#include "fingerprint_ptx.inc"
    ;

static struct fingerprint_secret secret; /* of this process */
static bool drawn;

static CUresult load(struct printer *p)
{
	CUresult result = REAL(cuModuleLoadData)(&p->module, ptx);

	if (!result)
		result = REAL(cuModuleGetFunction)(&p->function, p->module, KERNEL);
	if (!result)
		result = REAL(cuStreamCreate)(&p->stream, CU_STREAM_NON_BLOCKING);
	if (!result)
		result = REAL(cuEventCreate)(&p->event, CU_EVENT_DISABLE_TIMING);
	if (!result)
		result =
		    REAL(cuMemHostAlloc)((void **)&p->values, PRINTER_VALUES * sizeof(p->values[0]),
		                         CU_MEMHOSTALLOC_DEVICEMAP);
	if (!result)
		result = REAL(cuMemHostGetDevicePointer_v2)(&p->device_values, p->values, 0);
	return result;
}

/* -- the known answer ------------------------------------------------------------------- */

/* Words of which no two in reach of each other are the same. */
static void make_known(uint32_t *words)
{
	uint64_t state = 1;

	for (size_t i = 0; i < KNOWN_BYTES / sizeof(words[0]); i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		words[i] = (uint32_t)(state >> 32);
	}
}

static struct fingerprint on_host(const char *bytes)
{
	struct fingerprint values[2];

	values[0] = fingerprint_stretch(&secret.keys, bytes, FINGERPRINT_STRETCH);
	values[1] =
	    fingerprint_stretch(&secret.keys, bytes + FINGERPRINT_STRETCH * FINGERPRINT_TILE,
	                        KNOWN_TILES - FINGERPRINT_STRETCH);
	return fingerprint_join(&secret, values, 2);
}

/* Of known bytes at an address on the device. */
static CUresult on_device(struct printer *p, CUdeviceptr at, const void *bytes,
                          struct fingerprint *out)
{
	CUresult result = DRIVER(cuMemcpyHtoDAsync_v2)(at, bytes, KNOWN_BYTES, p->stream);
	size_t first;

	printer_begin_batch(p);
	if (!result)
		result = printer_print(p, at, KNOWN_BYTES, &first);
	if (!result)
		result = REAL(cuStreamSynchronize)(p->stream);
	if (!result)
		*out = printer_read(p, first, KNOWN_BYTES);
	return result;
}

static bool knows(struct printer *p, CUdeviceptr at, void *bytes)
{
	struct fingerprint want, found = {0, 0};

	make_known(bytes);
	want = on_host(bytes);
	return !on_device(p, at, bytes, &found) && fingerprints_equal(want, found);
}

/* It has been seen to compute one fingerprint, of which the host says what it has to be. */
static enum printer_state tried(struct printer *p, CUdeviceptr at)
{
	void *bytes = malloc(KNOWN_BYTES);
	bool good;

	if (!bytes)
		return PRINTER_NEW;
	good = knows(p, at, bytes);
	free(bytes);
	if (!good)
		debug("fingerprints of this device are wrong: clean memory is copied as well");
	return good ? PRINTER_READY : PRINTER_WRONG;
}

static enum printer_state made(struct printer *p)
{
	enum printer_state state = PRINTER_WRONG;
	enum gl_clean fault = drawn ? GL_CLEAN_DRIVER : GL_CLEAN_NO_RANDOM;
	CUdeviceptr at;
	CUresult result;

	if (DRIVER(cuMemAlloc_v2)(&at, KNOWN_BYTES))
		return PRINTER_NEW;
	result = drawn ? load(p) : CUDA_ERROR_NOT_INITIALIZED;
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		state = PRINTER_NEW;
	else if (result)
		debug("error %d: no fingerprints, so clean memory is copied as well", (int)result);
	else
		state = tried(p, at), fault = GL_CLEAN_WRONG;
	DRIVER(cuMemFree_v2)(at);
	if (state != PRINTER_READY)
		printer_end(p);
	p->fault = fault;
	return state;
}

static bool driver_can(void)
{
	return REAL(cuModuleLoadData) && REAL(cuModuleGetFunction) && REAL(cuModuleUnload) &&
	       REAL(cuMemHostAlloc) && REAL(cuMemHostGetDevicePointer_v2) && REAL(cuMemFreeHost) &&
	       DRIVER(cuLaunchKernel) && DRIVER(cuMemAlloc_v2) && DRIVER(cuMemFree_v2);
}

bool printer_prepare(struct printer *p)
{
	size_t room, total;

	if (p->state != PRINTER_NEW)
		return p->state == PRINTER_READY;
	if (captures_exist() || REAL(cuMemGetInfo_v2)(&room, &total) || room < ROOM)
		return false;
	if (!drawn)
		drawn = fingerprint_draw(&secret);
	p->fault = GL_CLEAN_DRIVER;
	p->state = driver_can() ? made(p) : PRINTER_WRONG;
	return p->state == PRINTER_READY;
}

/* -- what it computes --------------------------------------------------------------------- */

static size_t values_of(size_t size)
{
	return fingerprint_stretches(size / FINGERPRINT_TILE);
}

void printer_begin_batch(struct printer *p)
{
	p->n = 0;
}

CUresult printer_print(struct printer *p, CUdeviceptr base, size_t size, size_t *first)
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

CUresult printer_end_batch(struct printer *p)
{
	return REAL(cuEventRecord)(p->event, p->stream);
}

CUresult printer_query(const struct printer *p)
{
	return REAL(cuEventQuery)(p->event);
}

struct fingerprint printer_read(const struct printer *p, size_t first, size_t size)
{
	return fingerprint_join(&secret, p->values + first, values_of(size));
}

void printer_end(struct printer *p)
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
	*p = (struct printer){0};
}

/* The child draws its own. */
static void in_child(void)
{
	drawn = false;
}
FORK_WATCH(in_child);
