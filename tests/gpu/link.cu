// link.cu: what the link, the driver and its own ways of moving memory can do.
//
// link GIB MANAGED_GIB: moves GIB of plain and pinned memory, and MANAGED_GIB (keep it
// to a few) of managed memory. Prints a line of JSON: GiB/s by name, and ms of each
// operation on pieces of 64 MiB.
#include "runtime.cuh"

#include <cuda.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define GIB (size_t(1) << 30)
#define PIECE (size_t(64) << 20)
#define HUGE_PAGE (size_t(2) << 20)

static void cu(CUresult result, const char *what)
{
	if (result)
		DIE("%s: error %d", what, (int)result);
}

static void *entry(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *function = NULL;

	RT(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
	if (found != cudaDriverEntryPointSuccess)
		DIE("the driver has no %s", name);
	return function;
}

#define CU(name, ...) cu(((decltype(&name))entry(#name))(__VA_ARGS__), #name)

// -- pinned memory: huge pages, touched by several threads, registered ---------------

static char *pinned(size_t size)
{
	char *at = (char *)mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
	                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	std::vector<std::thread> threads;

	if (at == MAP_FAILED)
		DIE("no host memory");
	at += (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
	madvise(at, size, MADV_HUGEPAGE);
	for (size_t t = 0; t < 8; t++)
		threads.emplace_back([=] {
			for (size_t i = t * 4096; i < size; i += 8 * 4096)
				at[i] = 1;
		});
	for (std::thread &thread : threads)
		thread.join();
	for (size_t i = 0; i < size; i += PIECE)
		RT(cudaHostRegister(at + i, PIECE, cudaHostRegisterPortable));
	return at;
}

// GiB/s of all directions that are used, in pieces.
static double copy(char *device, char *host, size_t size, bool in, bool out)
{
	cudaStream_t streams[2];
	double start, took;

	RT(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
	RT(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
	start = now_s();
	for (size_t i = 0; i < size; i += PIECE) {
		if (in)
			RT(cudaMemcpyAsync(device + i, host + i, PIECE, cudaMemcpyHostToDevice,
			                   streams[0]));
		if (out)
			RT(cudaMemcpyAsync(host + size + i, device + size + i, PIECE,
			                   cudaMemcpyDeviceToHost, streams[1]));
	}
	RT(cudaDeviceSynchronize());
	took = now_s() - start;
	return (double)(in + out) * (double)size / GIB / took;
}

static void measure_link(size_t size)
{
	double best[3] = {0};
	char *device, *host = pinned(2 * size);

	RT(cudaMalloc(&device, 2 * size));
	for (int round = 0; round < 3; round++) {
		double now[3] = {copy(device, host, size, true, false),
		                 copy(device, host, size, false, true),
		                 copy(device, host, size, true, true)};

		for (int i = 0; i < 3; i++)
			best[i] = now[i] > best[i] ? now[i] : best[i];
	}
	printf("\"in_gib_s\": %.2f, \"out_gib_s\": %.2f, \"duplex_gib_s\": %.2f", best[0], best[1],
	       best[2]);
	RT(cudaFree(device));
}

// -- physical memory in pieces --------------------------------------------------------

static void measure_pieces(size_t size)
{
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};
	std::vector<CUmemGenericAllocationHandle> handles(size / PIECE);
	double t[6];
	CUdeviceptr base;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CU(cuMemAddressReserve, &base, size, 0, 0, 0);
	t[0] = now_s();
	for (CUmemGenericAllocationHandle &handle : handles)
		CU(cuMemCreate, &handle, PIECE, &prop, 0);
	t[1] = now_s();
	for (size_t i = 0; i < handles.size(); i++)
		CU(cuMemMap, base + i * PIECE, PIECE, 0, handles[i], 0);
	t[2] = now_s();
	for (size_t i = 0; i < handles.size(); i++)
		CU(cuMemSetAccess, base + i * PIECE, PIECE, &access, 1);
	t[3] = now_s();
	for (size_t i = 0; i < handles.size(); i++)
		CU(cuMemUnmap, base + i * PIECE, PIECE);
	t[4] = now_s();
	for (CUmemGenericAllocationHandle handle : handles)
		CU(cuMemRelease, handle);
	t[5] = now_s();
	CU(cuMemAddressFree, base, size);
	for (int i = 0; i < 5; i++)
		printf(", \"%s_ms\": %.3f",
		       (const char *[]){"create", "map", "access", "unmap", "release"}[i],
		       (t[i + 1] - t[i]) * 1e3 / (double)handles.size());
}

// -- the driver's own ways --------------------------------------------------------------

__global__ void touch(char *at, size_t n)
{
	for (size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 16; i < n;
	     i += (size_t)gridDim.x * blockDim.x * 16)
		at[i] += 1;
}

static void measure_managed(size_t size)
{
	cudaMemLocation device = {cudaMemLocationTypeDevice, 0},
	                host = {cudaMemLocationTypeHost, 0};
	double t[5];
	char *at;

	RT(cudaMallocManaged(&at, size));
	touch<<<1024, 256>>>(at, size);
	RT(cudaDeviceSynchronize());
	t[0] = now_s();
	RT(cudaMemPrefetchAsync(at, size, host, 0, NULL));
	RT(cudaDeviceSynchronize());
	t[1] = now_s();
	RT(cudaMemPrefetchAsync(at, size, device, 0, NULL));
	RT(cudaDeviceSynchronize());
	t[2] = now_s();
	RT(cudaMemPrefetchAsync(at, size, host, 0, NULL));
	RT(cudaDeviceSynchronize());
	t[3] = now_s();
	touch<<<1024, 256>>>(at, size);
	RT(cudaDeviceSynchronize());
	t[4] = now_s();
	printf(", \"managed_out_gib_s\": %.2f, \"managed_in_gib_s\": %.2f, "
	       "\"managed_fault_gib_s\": %.2f",
	       (double)size / GIB / (t[1] - t[0]), (double)size / GIB / (t[2] - t[1]),
	       (double)size / GIB / (t[4] - t[3]));
	RT(cudaFree(at));
}

// A process with so much memory that does nothing but be checkpointed.
static pid_t holder(size_t size)
{
	int ready[2];
	pid_t pid;
	char byte, *at;

	if (pipe(ready) || (pid = fork()) < 0)
		DIE("no process");
	if (pid) {
		if (read(ready[0], &byte, 1) != 1)
			DIE("no process to checkpoint");
		return pid;
	}
	RT(cudaMalloc(&at, size));
	touch<<<1024, 256>>>(at, size);
	RT(cudaDeviceSynchronize());
	if (write(ready[1], "", 1) != 1)
		DIE("nobody listens");
	for (;;)
		pause();
}

static void measure_checkpoint(pid_t pid, size_t size)
{
	CUcheckpointLockArgs lock = {};
	CUcheckpointCheckpointArgs out = {};
	CUcheckpointRestoreArgs in = {};
	CUcheckpointUnlockArgs unlock = {};
	double t[3];

	CU(cuCheckpointProcessLock, (int)pid, &lock);
	t[0] = now_s();
	CU(cuCheckpointProcessCheckpoint, (int)pid, &out);
	t[1] = now_s();
	CU(cuCheckpointProcessRestore, (int)pid, &in);
	t[2] = now_s();
	CU(cuCheckpointProcessUnlock, (int)pid, &unlock);
	printf(", \"checkpoint_out_gib_s\": %.2f, \"checkpoint_in_gib_s\": %.2f",
	       (double)size / GIB / (t[1] - t[0]), (double)size / GIB / (t[2] - t[1]));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	size_t size = (size_t)(argc > 1 ? atoll(argv[1]) : 8) * GIB;
	size_t managed = (size_t)(argc > 2 ? atoll(argv[2]) : 2) * GIB;
	pid_t pid = holder(size); // before this process has a context

	RT(cudaFree(NULL));
	printf("{");
	measure_link(size);
	measure_pieces(size);
	measure_managed(managed);
	measure_checkpoint(pid, size);
	printf("}\n");
	return 0;
}
