/* shim_races.c: what two threads of a program do at the same moment, one scenario a run.
 *
 * Linked with the emulated driver, which holds a thread at the start of a call
 * (tests/emugpu/abi/hold.c), and run under the interposer by test_shim_races.py. A line on
 * standard output says how far it is, one on standard input lets it go on.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define MANY 200000 /* looks at a thread */
#define SOON_MS 300 /* much longer than what goes on meanwhile takes */
#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_result = (call);                                                       \
		if (ok_result)                                                                     \
			fail(#call, (int)ok_result);                                               \
	} while (0)

void emugpu_hold(const char *call, int ms);
int emugpu_held(void);
int emugpu_met(void);
void emugpu_let(void);
#undef cuCtxCreate_v2
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

static CUcontext primary;

_Noreturn static void fail(const char *what, int number)
{
	fprintf(stderr, "shim_races: %s: %d\n", what, number);
	_exit(1);
}

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static void wait_for_test(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		fail("the test is gone", 0);
}

static void set_up(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
}

static void held(void)
{
	if (!emugpu_held())
		fail("no thread has come to the call", 0);
}

/* -- other threads ---------------------------------------------------------------- */

struct other {
	pthread_t thread;
	void (*body)(struct other *);
	atomic_int id; /* the kernel's, 0: not yet */
	CUresult result;
	CUdeviceptr pointer;
	CUcontext context;
};

static void *other_main(void *argument)
{
	struct other *other = argument;

	OK(cuCtxSetCurrent(primary));
	atomic_store(&other->id, (int)syscall(SYS_gettid));
	other->body(other);
	return NULL;
}

static void start(struct other *other, void (*body)(struct other *))
{
	other->body = body;
	if (pthread_create(&other->thread, NULL, other_main, other))
		fail("pthread_create", 0);
}

/* Until the thread waits for another one, in a lock or for a condition. */
static void until_waiting(struct other *other)
{
	char path[64], line[64];
	int call = -1;

	while (!atomic_load(&other->id))
		usleep(100);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", atomic_load(&other->id));
	for (int tries = 0; call != SYS_futex; tries++) {
		FILE *file = fopen(path, "r");

		usleep(100);
		if (!file || tries == MANY)
			fail("the thread does not wait for another one", call);
		call = fgets(line, sizeof(line), file) ? atoi(line) : -1;
		fclose(file);
	}
}

/* -- scenarios ---------------------------------------------------------------------- */

static void allocates(struct other *other)
{
	other->result = cuMemAlloc(&other->pointer, 4096);
	pthread_testcancel();
}

/* A thread is cancelled while it waits for gpu-leased, which comes later. */
static void cancelled_while_it_waits(void)
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

static void plain_at_once(void)
{
	at_once(take_plain, "cuMemAllocManaged");
}

static void ordered_at_once(void)
{
	at_once(take_ordered, "cuMemAllocManaged");
}

static void swapped_at_once(void)
{
	at_once(take_plain, "cuMemAddressReserve");
}

static void physical_at_once(void)
{
	at_once(take_physical, "cuMemCreate");
}

static void arrays_at_once(void)
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

static void ends_before_memory_comes(void)
{
	ends_while_memory_comes("cuCtxPushCurrent_v2");
}

static void ends_as_memory_comes(void)
{
	ends_while_memory_comes("cuStreamCreate");
}

/* The process ends while the thread that speaks with gpu-leased is in the driver. */
static void exits_while_it_drains(void)
{
	CUdeviceptr pointer;

	set_up();
	OK(cuMemAlloc(&pointer, MIB));
	OK(cuMemsetD8(pointer, 1, MIB));
	emugpu_hold("cuCtxRecordEvent", SOON_MS);
	say("ready"); /* to be revoked */
	held();
}

/* -- captures ---------------------------------------------------------------------- */

static CUstream capturing;

static void begin_capture(void)
{
	OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void end_capture(void)
{
	CUgraph graph;

	OK(cuStreamEndCapture(capturing, &graph));
}

/* What this thread's mode is after memory in stream order. */
static void asks_its_mode(struct other *other)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAllocAsync(&other->pointer, 4096, NULL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	other->result = (CUresult)mode;
}

static void mode_after(void (*before)(void), void (*meanwhile)(void))
{
	struct other other = {0};

	set_up();
	OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	if (before)
		before();
	emugpu_hold("cuMemAllocManaged", 0);
	start(&other, asks_its_mode);
	held();
	meanwhile();
	emugpu_let();
	pthread_join(other.thread, NULL);
	if ((int)other.result != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
		fail("the thread's capture mode has changed", (int)other.result);
}

static void capture_ends_meanwhile(void)
{
	mode_after(begin_capture, end_capture);
}

static void capture_begins_meanwhile(void)
{
	mode_after(NULL, begin_capture);
}

/* -- primary contexts ---------------------------------------------------------------- */

static void releases(struct other *other)
{
	(void)other;
	OK(cuDevicePrimaryCtxRelease(0));
}

/* A library lets its own hold on the primary context go, and the program goes on. */
static void released_not_for_the_last_time(void)
{
	struct other other = {0};
	unsigned char byte;
	CUdeviceptr pointer;
	CUcontext again;

	set_up();
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	OK(cuMemAlloc(&pointer, 8 * MIB));
	OK(cuMemsetD8(pointer, 7, 8 * MIB));
	OK(cuCtxSynchronize());
	say("ready");
	wait_for_test(); /* its memory has left, and comes back */
	OK(cuMemcpyDtoH(&byte, pointer, 1));
	emugpu_hold("cuMemHostUnregister", SOON_MS);
	start(&other, releases);
	pthread_join(other.thread, NULL);
	if (emugpu_met())
		fail("host copies were let go, though the context goes on", 0);
	emugpu_let();
	say("released");
	wait_for_test(); /* once more */
	OK(cuMemcpyDtoH(&byte, pointer, 1));
	if (byte != 7)
		fail("a byte was lost", byte);
}

/* -- a drain --------------------------------------------------------------------------- */

static int told[2];

static void until_told(void *ignored)
{
	char byte;

	(void)ignored;
	if (read(told[0], &byte, 1) != 1)
		fail("a pipe", 0);
}

static void sets(struct other *other)
{
	OK(cuMemsetD8(other->pointer, 2, 4096));
}

/* One thread is in the driver, another one waits at the gate, and their context is busy. */
static void drains_a_crowd(void)
{
	struct other in_driver = {0}, at_gate = {0};
	CUdeviceptr pointer;

	set_up();
	OK(cuMemAlloc(&pointer, 4096));
	OK(cuMemsetD8(pointer, 1, 4096));
	if (pipe(told))
		fail("pipe", 0);
	OK(cuLaunchHostFunc(NULL, until_told, NULL));
	in_driver.pointer = at_gate.pointer = pointer;
	emugpu_hold("cuMemsetD8_v2", 0);
	start(&in_driver, sets);
	held();
	say("busy"); /* to be revoked */
	wait_for_test();
	start(&at_gate, sets);
	until_waiting(&at_gate);
	say("waits");
	wait_for_test();
	if (write(told[1], "x", 1) != 1)
		fail("a pipe", 0);
	emugpu_let();
	pthread_join(in_driver.thread, NULL);
	pthread_join(at_gate.thread, NULL);
	wait_for_test();
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
    {"cancelled while it waits", cancelled_while_it_waits},
    {"plain at once", plain_at_once},
    {"ordered at once", ordered_at_once},
    {"swapped at once", swapped_at_once},
    {"physical at once", physical_at_once},
    {"arrays at once", arrays_at_once},
    {"ends before memory comes", ends_before_memory_comes},
    {"ends as memory comes", ends_as_memory_comes},
    {"exits while it drains", exits_while_it_drains},
    {"a capture ends meanwhile", capture_ends_meanwhile},
    {"a capture begins meanwhile", capture_begins_meanwhile},
    {"released, not for the last time", released_not_for_the_last_time},
    {"drains a crowd", drains_a_crowd},
};

int main(int n, char **arguments)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (n == 2 && !strcmp(scenarios[i].name, arguments[1])) {
			scenarios[i].run();
			say("done");
			return 0;
		}
	}
	fail("no such scenario", n);
}
