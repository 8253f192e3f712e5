/* odd_stops.c: programs that do something odd while their work is stopped in mid-kernel, one
 * scenario a run, under the interposer.
 *
 * Linked with the emulated driver, and run by test_odd_stop_programs.py. Each says "runs"
 * when its work runs, waits for a line and says "right" if what it has computed is right.
 */
#include "stops_work.h"

#include "../../emugpu/rm.h"
#include "../forbid.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_MS 1200
#define FED_MS 300

static struct work work;

static struct other feeder;
static CUcontext fed; /* its work is in there */
static atomic_bool enough;

/* One kernel of the work runs, and one waits. */
static void feed(struct other *other)
{
	CUevent events[2];

	(void)other;
	OK(cuCtxSetCurrent(fed));
	OK(cuEventCreate(&events[0], CU_EVENT_BLOCKING_SYNC));
	OK(cuEventCreate(&events[1], CU_EVENT_BLOCKING_SYNC));
	for (int i = 0; !atomic_load(&enough); i++) {
		work_begin(&work, FED_MS);
		OK(cuEventRecord(events[i % 2], work.stream));
		OK(cuEventSynchronize(events[(i + 1) % 2]));
	}
}

/* Its work runs, until the test has had its handoff, however often a stop is given up on a busy
 * machine. */
static void run_work(void)
{
	OK(cuCtxGetCurrent(&fed));
	work_begin(&work, FED_MS);
	start(&feeder, feed);
	say("runs");
	wait_for_test();
	atomic_store(&enough, true);
}

static void end_right(void)
{
	if (feeder.thread)
		pthread_join(feeder.thread, NULL);
	work_check(&work);
	say("right");
}

static void plain(void)
{
	set_up();
	work_prepare(&work);
	run_work();
	end_right();
}

/* -- who stands in the way of ioctl ---------------------------------------------------------- */

static void hidden_subdevices(void)
{
	wrap_ioctl(RM_SUBDEVICE);
	plain();
}

static void hidden_groups(void)
{
	wrap_ioctl(RM_GROUP);
	plain();
}

static void wrapped_later(void)
{
	CUcontext second;
	int before;

	set_up();
	wrap_ioctl(0);
	before = wrapped_calls();
	OK(cuCtxCreate_v2(&second, 0, 0));
	if (wrapped_calls() == before)
		fail("the wrapper is not called", before);
	work_prepare(&work);
	run_work();
	end_right();
}

/* A driver of its own, in a namespace of its own, makes groups of which nobody here knows. */
static void second_namespace(void)
{
	void *library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	__typeof__(&cuInit) init;

	if (!library)
		fail(dlerror(), 0);
	init = (__typeof__(&cuInit))(uintptr_t)dlsym(library, "cuInit");
	set_up();
	work_prepare(&work);
	OK(init(0));
	run_work();
	end_right();
}

static void bound_deeply(void)
{
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND))
		fail(dlerror(), 0);
	plain();
}

/* The process shuts itself in when its contexts are there: from then on the kernel refuses what
 * controls anything, to all its threads. */
static void shut_in(int number)
{
	set_up();
	work_prepare(&work);
	say("there");
	wait_for_test();
	if (!forbid_request(_IOWR('F', RM_CONTROL, struct rm_control),
	                    SECCOMP_RET_ERRNO | (unsigned int)number))
		fail("seccomp", errno);
	run_work();
	end_right();
}

static void shut_in_eperm(void)
{
	shut_in(EPERM);
}

static void shut_in_enosys(void)
{
	shut_in(ENOSYS);
}

/* -- processes and threads --------------------------------------------------------------------- */

/* The child ends in its own way; the parent's stop is the parent's. */
static void forks(void)
{
	int status;

	set_up();
	work_prepare(&work);
	run_work();
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();

		if (!child && i % 2)
			exit(0);
		if (!child)
			_exit(cuMemsetD8(work.memory, 1, 1) ? 0 : 1);
		if (waitpid(child, &status, 0) != child || status)
			fail("the child has failed", status);
	}
	say("forked");
	end_right();
}

/* Another program in its place: it comes to the daemon as a new process. */
static void executes(void)
{
	set_up();
	work_prepare(&work);
	run_work();
	execl("/proc/self/exe", "odd_stops", "plain", NULL);
	fail("execl", 0);
}

static void *finishes(void *argument)
{
	wait_for_test();
	pthread_join(*(pthread_t *)argument, NULL);
	set_up();
	end_right();
	exit(0);
}

/* The thread that has submitted the work ends while it is stopped. */
static void thread_ends(void)
{
	static pthread_t first;
	pthread_t second;

	first = pthread_self();
	set_up();
	work_prepare(&work);
	work_begin(&work, LONG_MS);
	say("runs");
	if (pthread_create(&second, NULL, finishes, &first))
		fail("pthread_create", 0);
	pthread_exit(NULL);
}

/* -- contexts ---------------------------------------------------------------------------------- */

/* The primary context is reset while the work of another one is stopped. */
static void resets_another(void)
{
	CUcontext second;

	set_up();
	OK(cuCtxCreate_v2(&second, 0, 0));
	work_prepare(&work);
	run_work();
	OK(cuDevicePrimaryCtxReset(0));
	OK(cuCtxSetCurrent(second));
	end_right();
}

/* The work's own context ends while it is stopped: the call waits for the next lease, and so for
 * the work. What is submitted afterwards is right. */
static void destroys_its_own(void)
{
	CUcontext own;

	set_up();
	OK(cuCtxCreate_v2(&own, 0, 0));
	work_prepare(&work);
	work_begin(&work, LONG_MS);
	say("runs");
	wait_for_test();
	OK(cuCtxDestroy(own));
	say("destroyed");
	set_up();
	memset(&work, 0, sizeof(work));
	work_prepare(&work);
	work_begin(&work, 1);
	end_right();
}

/* -- calls that other threads are in ----------------------------------------------------------- */

static void captures(struct other *other)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec ready;

	(void)other;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!atomic_load(&enough)) {
		OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		work_spin(&work, stream, 1);
		usleep(2000);
		work_spin(&work, stream, 1);
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuGraphInstantiate(&ready, graph, 0));
		OK(cuGraphLaunch(ready, stream));
		OK(cuStreamSynchronize(stream));
		OK(cuGraphExecDestroy(ready));
		OK(cuGraphDestroy(graph));
	}
}

static void loads(struct other *other)
{
	CUmodule module;

	(void)other;
	while (!atomic_load(&enough)) {
		work_load(&module);
		OK(cuModuleUnload(module));
	}
}

static void frees(struct other *other)
{
	CUdeviceptr memory;

	(void)other;
	while (!atomic_load(&enough)) {
		OK(cuMemAlloc(&memory, 4 * MIB));
		OK(cuMemsetD8(memory, 1, 4 * MIB));
		OK(cuMemFree(memory));
	}
}

static void copies(struct other *other)
{
	char *host = malloc(2 * MIB);
	CUdeviceptr memory;

	(void)other;
	OK(cuMemAlloc(&memory, 2 * MIB));
	for (int i = 0; !atomic_load(&enough); i++) {
		memset(host, i, 2 * MIB);
		OK(cuMemcpyHtoD(memory, host, 2 * MIB));
		memset(host, i + 1, 2 * MIB);
		OK(cuMemcpyDtoH(host, memory, 2 * MIB));
		if (host[0] != (char)i || host[2 * MIB - 1] != (char)i)
			fail("a byte that was copied is wrong", i);
	}
	free(host);
}

/* Kernels run without pause, and the test stops them again and again. */
static void beside(void (*calls)(struct other *))
{
	static struct other other;

	set_up();
	work_prepare(&work);
	start(&other, calls);
	run_work();
	pthread_join(other.thread, NULL);
	end_right();
}

static void beside_captures(void)
{
	beside(captures);
}

static void beside_loads(void)
{
	beside(loads);
}

static void beside_frees(void)
{
	beside(frees);
}

static void beside_copies(void)
{
	beside(copies);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
    {"plain", plain},
    {"hidden subdevices", hidden_subdevices},
    {"hidden groups", hidden_groups},
    {"wrapped later", wrapped_later},
    {"second namespace", second_namespace},
    {"bound deeply", bound_deeply},
    {"shut in, EPERM", shut_in_eperm},
    {"shut in, ENOSYS", shut_in_enosys},
    {"forks", forks},
    {"executes", executes},
    {"thread ends", thread_ends},
    {"resets another", resets_another},
    {"destroys its own", destroys_its_own},
    {"captures", beside_captures},
    {"loads", beside_loads},
    {"frees", beside_frees},
    {"copies", beside_copies},
};

int main(int n, char **arguments)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (n == 2 && !strcmp(scenarios[i].name, arguments[1])) {
			scenarios[i].run();
			return 0;
		}
	}
	fail("no such scenario", n);
}
