/* memory_races.c: two threads, and memory that they allocate or that comes back. */
#include "races.h"

static void allocates(struct other *other)
{
	other->result = cuMemAlloc(&other->pointer, 4096);
	pthread_testcancel();
}

/* A thread is cancelled while it waits for gpu-leased, which comes later. */
void cancelled_while_it_waits(void)
{
	struct other other = {0};
	CUdeviceptr pointer;
	void *ended;

	set_up();
	start(&other, allocates);
	until_waiting(&other);
	pthread_cancel(other.thread);
	say("cancelled");
	OK(cuMemAlloc(&pointer, 4096));
	pthread_join(other.thread, &ended);
	if (ended != PTHREAD_CANCELED)
		fail("the thread was not cancelled", 0);
	OK(cuMemsetD8(pointer, 1, 4096));
	OK(cuMemFree(pointer));
}

/* Two threads allocate, each more than a half of what the job may have. */
#define MORE_THAN_HALF (40 * MIB)

static CUresult take_plain(CUdeviceptr *out)
{
	return cuMemAlloc(out, MORE_THAN_HALF);
}

static CUresult take_ordered(CUdeviceptr *out)
{
	return cuMemAllocAsync(out, MORE_THAN_HALF, NULL);
}

static CUresult take_physical(CUdeviceptr *out)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	return cuMemCreate((CUmemGenericAllocationHandle *)out, MORE_THAN_HALF, &prop, 0);
}

static CUresult take_array(CUdeviceptr *out)
{
	CUDA_ARRAY_DESCRIPTOR d = {1024, MORE_THAN_HALF / 4096, CU_AD_FORMAT_FLOAT, 1};

	return cuArrayCreate((CUarray *)out, &d);
}

static CUresult (*take)(CUdeviceptr *out);

static void takes(struct other *other)
{
	other->result = take(&other->pointer);
}

static void at_once(CUresult (*how)(CUdeviceptr *out), const char *held_in)
{
	struct other other = {0};
	CUdeviceptr pointer;
	CUresult result;

	take = how;
	set_up();
	OK(cuMemAlloc(&pointer, 4096)); /* gpu-leased has said what the job may have */
	OK(cuMemFree(pointer));
	emugpu_hold(held_in, 0);
	start(&other, takes);
	held();
	result = take(&pointer);
	emugpu_let();
	pthread_join(other.thread, NULL);
	OK(other.result);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		fail("both have got memory", (int)result);
}

void plain_at_once(void)
{
	at_once(take_plain, "cuMemAllocManaged");
}

void ordered_at_once(void)
{
	at_once(take_ordered, "cuMemAllocManaged");
}

void swapped_at_once(void)
{
	at_once(take_plain, "cuMemAddressReserve");
}

void physical_at_once(void)
{
	at_once(take_physical, "cuMemCreate");
}

void arrays_at_once(void)
{
	at_once(take_array, "cuArrayCreate_v2");
}

/* A context ends while memory is brought back in it. */
static void ends_while_memory_comes(const char *held_in)
{
	CUdeviceptr pointer;
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuMemAlloc(&pointer, MIB));
	OK(cuMemsetD8(pointer, 1, MIB));
	OK(cuCtxSynchronize());
	emugpu_hold(held_in, SOON_MS);
	say("ready"); /* to be told to bring it back */
	held();
	OK(cuCtxDestroy(context));
	say("destroyed");
	wait_for_test();
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuMemAlloc(&pointer, MIB));
	OK(cuMemsetD8(pointer, 1, MIB));
	OK(cuCtxSynchronize());
}

void ends_before_memory_comes(void)
{
	ends_while_memory_comes("cuCtxPushCurrent_v2");
}

void ends_as_memory_comes(void)
{
	ends_while_memory_comes("cuStreamCreate");
}
