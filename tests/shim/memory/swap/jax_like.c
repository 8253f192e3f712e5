/* jax_like.c: a program that has its memory as JAX has it.
 *
 * Objects of cuMemCreate, large ones, that could be exported and be open to other devices
 * (gpuDirectRDMACapable), each mapped once at addresses of its own. It writes to them,
 * copies between them, lets some go and makes others; what it does depends on its
 * arguments alone, and so does the number that it prints at the end, of all bytes.
 *
 * jax_like TURNS [driven] [export]: driven: a line before each turn, and it goes on with a
 * line of input. export: half-way it shows an object to others.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define N_OBJECTS 6
#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_result = (call);                                                       \
		if (ok_result) {                                                                   \
			fprintf(stderr, "jax_like: %s: %d\n", #call, (int)ok_result);              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* In proportion to a card as 1 to 4 GiB are to 141. */
static const size_t sizes[] = {8 * MIB, 16 * MIB, 32 * MIB, 10 * MIB, 40 * MIB, 24 * MIB};

static struct object {
	CUdeviceptr base;
	size_t size;
	CUmemGenericAllocationHandle handle;
} objects[N_OBJECTS];

static CUmemAllocationProp prop;
static uint64_t state = 1;

static size_t draw(size_t below)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (size_t)(state >> 33) % below;
}

static void set_up(void)
{
	int rdma = 0, file = 0;
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
	                        0));
	OK(cuDeviceGetAttribute(
	    &file, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
	prop.requestedHandleTypes =
	    file ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t size)
{
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr base;

	OK(cuMemAddressReserve(&base, size, 0, 0, 0));
	OK(cuMemMap(base, size, 0, handle, 0));
	OK(cuMemSetAccess(base, size, &access, 1));
	return base;
}

static void make(struct object *o, size_t size)
{
	CUmemAllocationProp said;
	size_t unit;

	OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	o->size = (size + unit - 1) / unit * unit;
	OK(cuMemCreate(&o->handle, o->size, &prop, 0));
	OK(cuMemGetAllocationPropertiesFromHandle(&said, o->handle));
	if (said.requestedHandleTypes != prop.requestedHandleTypes ||
	    said.allocFlags.gpuDirectRDMACapable != prop.allocFlags.gpuDirectRDMACapable)
		_exit(2);
	o->base = map(o->handle, o->size);
	OK(cuMemsetD32(o->base, (unsigned int)draw(1 << 20), o->size / 4));
}

static void end(struct object *o)
{
	OK(cuCtxSynchronize());
	OK(cuMemUnmap(o->base, o->size));
	OK(cuMemRelease(o->handle));
	OK(cuMemAddressFree(o->base, o->size));
}

static void turn(void)
{
	for (int n = 0; n < 12; n++) {
		struct object *to = &objects[draw(N_OBJECTS)], *from = &objects[draw(N_OBJECTS)];
		size_t most = to->size < from->size ? to->size : from->size;
		size_t size = (draw(most / 64) + 1) * 4;
		size_t at = draw((to->size - size) / 4 + 1) * 4,
		       of = draw((from->size - size) / 4 + 1) * 4;

		OK(cuMemsetD32(to->base + at, (unsigned int)draw(1 << 30), size / 4));
		if (to != from)
			OK(cuMemcpyDtoD(to->base + at, from->base + of, size));
	}
	OK(cuCtxSynchronize());
}

static void replace_one(void)
{
	struct object *o = &objects[draw(N_OBJECTS)];
	size_t size = o->size;

	end(o);
	make(o, size);
}

/* By another mapping, as one who has been sent it would. */
static void show_to_others(struct object *o)
{
	CUmemGenericAllocationHandle again;
	CUdeviceptr twin;
	int file;

	OK(cuMemExportToShareableHandle(&file, o->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                                0));
	OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file,
	                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(file);
	twin = map(again, o->size);
	OK(cuMemsetD32(twin, 77, o->size / 8));
	OK(cuCtxSynchronize());
	OK(cuMemUnmap(twin, o->size));
	OK(cuMemRelease(again));
	OK(cuMemAddressFree(twin, o->size));
}

/* FNV-1a of all words. */
static uint64_t number_of_all(void)
{
	uint64_t number = UINT64_C(14695981039346656037);

	for (int i = 0; i < N_OBJECTS; i++) {
		uint32_t *host = malloc(objects[i].size);

		OK(cuMemcpyDtoH(host, objects[i].base, objects[i].size));
		for (size_t n = 0; n < objects[i].size / 4; n++)
			number = (number ^ host[n]) * UINT64_C(1099511628211);
		free(host);
	}
	return number;
}

static void next_turn(bool driven)
{
	char line[16];

	if (!driven)
		return;
	printf("turn\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		_exit(3);
}

int main(int n, char **arguments)
{
	int turns = n > 1 ? atoi(arguments[1]) : 1;
	bool driven = false, exports = false;

	for (int i = 2; i < n; i++) {
		driven |= !strcmp(arguments[i], "driven");
		exports |= !strcmp(arguments[i], "export");
	}
	set_up();
	for (int i = 0; i < N_OBJECTS; i++)
		make(&objects[i], sizes[i]);
	for (int t = 0; t < turns; t++) {
		next_turn(driven);
		turn();
		if (exports && t == turns / 2)
			show_to_others(&objects[4]);
		else if (t % 3 == 2 && !exports)
			replace_one();
	}
	printf("%016llx\n", (unsigned long long)number_of_all());
	return 0;
}
