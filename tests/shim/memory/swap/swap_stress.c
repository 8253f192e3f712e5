/* swap_stress.c: threads that do what programs do with memory, all at once.
 *
 * Linked with the emulated driver, run under the interposer while a test grants,
 * revokes and evicts. Ends when its input does. Prints its pid, and at the end how
 * often each thread got round; fails at the first error, or wrong byte.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_HELD 12
#define SMALL 4096
#define PAUSE_US 200
#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_result = (call);                                                       \
		if (ok_result)                                                                     \
			fail(#call, (int)ok_result);                                               \
	} while (0)

static atomic_bool stop;
static CUcontext primary;

_Noreturn static void fail(const char *what, int number)
{
	fprintf(stderr, "swap_stress: %s: %d\n", what, number);
	_exit(1);
}

static CUdeviceptr allocate(size_t size)
{
	CUdeviceptr pointer;

	OK(cuMemAlloc(&pointer, size));
	return pointer;
}

/* -- one turn of each kind of thread -------------------------------------------- */

struct held {
	CUdeviceptr pointer;
	size_t size;
	unsigned char value;
};

static void fill(struct held *h, unsigned int *seed)
{
	unsigned int kind = (unsigned int)rand_r(seed);

	h->size = kind % 3 ? 1000 + kind % 200000 : (size_t)1 << (20 + kind % 3);
	h->value = (unsigned char)rand_r(seed);
	OK(kind % 2 ? cuMemAlloc(&h->pointer, h->size)
	            : cuMemAllocAsync(&h->pointer, h->size, NULL));
	OK(cuMemsetD8(h->pointer, h->value, h->size));
}

static void check_and_free(struct held *h, unsigned int *seed)
{
	unsigned char last;

	OK(cuMemcpyDtoH(&last, h->pointer + h->size - 1, 1));
	if (last != h->value)
		fail("a byte was lost", last);
	OK(rand_r(seed) % 2 ? cuMemFree(h->pointer) : cuMemFreeAsync(h->pointer, NULL));
	h->pointer = 0;
}

static void allocates(unsigned int *seed)
{
	static __thread struct held held[N_HELD];
	struct held *h = &held[rand_r(seed) % N_HELD];

	if (h->pointer)
		check_and_free(h, seed);
	else
		fill(h, seed);
}

/* Physical memory in one of several places, which changes; the handle is mostly let go first. */
#define PAGE ((size_t)2 << 20)
#define N_PLACES 6

struct page {
	CUmemGenericAllocationHandle handle; /* 0: none is held */
	bool there;
	unsigned char value;
};

static void put(CUdeviceptr at, CUmemGenericAllocationHandle handle, CUmemLocation location)
{
	CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemMap(at, PAGE, 0, handle, 0));
	OK(cuMemSetAccess(at, PAGE, &access, 1));
}

static void make_page(struct page *page, CUdeviceptr at, unsigned int *seed)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

	OK(cuMemCreate(&page->handle, PAGE, &prop, 0));
	put(at, page->handle, prop.location);
	page->there = true;
	page->value = (unsigned char)rand_r(seed);
	OK(cuMemsetD8(at, page->value, PAGE));
	if (rand_r(seed) % 2) {
		OK(cuMemRelease(page->handle));
		page->handle = 0;
	}
}

static void move_page(struct page *from, CUdeviceptr at, struct page *to, CUdeviceptr where)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

	if (!from->handle)
		OK(cuMemRetainAllocationHandle(&from->handle, (void *)(uintptr_t)(at + PAGE / 2)));
	OK(cuMemUnmap(at, PAGE));
	*to = *from;
	*from = (struct page){0};
	put(where, to->handle, location);
}

static void maps(unsigned int *seed)
{
	static __thread struct page pages[N_PLACES];
	static __thread CUdeviceptr base;
	unsigned int i = (unsigned int)rand_r(seed) % N_PLACES;
	unsigned int j = (unsigned int)rand_r(seed) % N_PLACES;
	unsigned char last;

	if (!base)
		OK(cuMemAddressReserve(&base, N_PLACES * PAGE, 0, 0, 0));
	if (!pages[i].there) {
		make_page(&pages[i], base + i * PAGE, seed);
		return;
	}
	OK(cuMemcpyDtoH(&last, base + (i + 1) * PAGE - 1, 1));
	if (last != pages[i].value)
		fail("a mapped byte was lost", last);
	if (!pages[j].there) {
		move_page(&pages[i], base + i * PAGE, &pages[j], base + j * PAGE);
		return;
	}
	OK(cuMemUnmap(base + i * PAGE, PAGE));
	if (pages[i].handle)
		OK(cuMemRelease(pages[i].handle));
	pages[i] = (struct page){0};
}

static void asks(unsigned int *seed)
{
	static CUdeviceptr mine;
	CUdeviceptr base;
	size_t size, total;

	mine = mine ? mine : allocate(SMALL);
	OK(cuMemGetInfo(&size, &total));
	OK(cuMemGetAddressRange(&base, &size, mine + (unsigned int)rand_r(seed) % SMALL));
	if (base != mine || size != SMALL)
		fail("another range", (int)size);
}

static void ends_contexts(unsigned int *seed)
{
	CUcontext context;
	CUdeviceptr large, small;

	OK(cuCtxCreate(&context, NULL, 0, 0));
	large = allocate(3 << 20);
	small = allocate(SMALL);
	OK(cuMemsetD8Async(large, 1, 3 << 20, NULL));
	OK(cuMemsetD8Async(small, 1, SMALL, NULL));
	usleep((useconds_t)rand_r(seed) % PAUSE_US);
	OK(cuCtxDestroy(context));
}

static void captures(unsigned int *seed)
{
	static __thread CUdeviceptr mine;
	static __thread CUstream stream;
	CUgraphExec executable;
	CUgraph graph;

	if (!stream)
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	mine = mine ? mine : allocate(SMALL);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemsetD8Async(mine, 7, SMALL, stream));
	usleep((useconds_t)rand_r(seed) % PAUSE_US);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&executable, graph, 0));
	OK(cuGraphLaunch(executable, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(executable));
	OK(cuGraphDestroy(graph));
}

static void *short_life(void *argument)
{
	OK(cuCtxSetCurrent(primary));
	OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)argument, 3, SMALL, NULL));
	return NULL;
}

static void starts_threads(unsigned int *seed)
{
	static CUdeviceptr mine;
	pthread_t thread;

	(void)seed;
	mine = mine ? mine : allocate(SMALL);
	if (pthread_create(&thread, NULL, short_life, (void *)(uintptr_t)mine))
		fail("pthread_create", 0);
	pthread_join(thread, NULL);
}

/* ------------------------------------------------------------------------------- */

static struct worker {
	void (*turn)(unsigned int *seed);
	unsigned long turns;
	pthread_t thread;
} workers[] = {{.turn = allocates}, {.turn = allocates},      {.turn = allocates},
               {.turn = asks},      {.turn = ends_contexts},  {.turn = captures},
               {.turn = captures},  {.turn = starts_threads}, {.turn = maps},
               {.turn = maps}};
#define N_WORKERS (sizeof(workers) / sizeof(workers[0]))

static void *work(void *argument)
{
	struct worker *worker = argument;
	unsigned int seed = (unsigned int)(worker - workers);

	OK(cuCtxSetCurrent(primary));
	while (!atomic_load(&stop)) {
		worker->turn(&seed);
		worker->turns++;
		usleep(PAUSE_US);
	}
	return NULL;
}

int main(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (size_t i = 0; i < N_WORKERS; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail("pthread_create", 0);
	while (getchar() != EOF)
		;
	atomic_store(&stop, true);
	for (size_t i = 0; i < N_WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	for (size_t i = 0; i < N_WORKERS; i++)
		printf("%lu ", workers[i].turns);
	return 0;
}
