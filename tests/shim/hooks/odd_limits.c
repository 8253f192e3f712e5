/* odd_limits.c: programs that have reached a limit. */
#include "odd.h"

#include "../forbid.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct rlimit lower(__rlimit_resource_t what, rlim_t to)
{
	struct rlimit old, now;

	getrlimit(what, &old);
	now = (struct rlimit){to, old.rlim_max};
	if (setrlimit(what, &now))
		fail("setrlimit", errno);
	return old;
}

/* It may open no more, as programs say that shut themselves in. */
void may_open_no_more(void)
{
	set_up();
	OK(submit());
	lower(RLIMIT_NOFILE, 0);
	say("limited");
	wait_for_test();
	OK(submit());
}

/* All its threads are shut in so. */
void may_not_poll(void)
{
	if (!forbid(SYS_ppoll, SECCOMP_RET_ERRNO | EPERM))
		fail("seccomp", errno);
	set_up();
	OK(submit());
	say("limited");
	wait_for_test();
	OK(submit());
}

static rlim_t lowest_free(void)
{
	int number = dup(STDIN_FILENO);

	if (number < 0 || close(number))
		fail("dup", errno);
	return (rlim_t)number;
}

void has_no_descriptor_left(void)
{
	struct rlimit old;
	CUdeviceptr pointer;
	CUresult result;

	set_up();
	old = lower(RLIMIT_NOFILE, lowest_free());
	result = cuMemAlloc(&pointer, 4096);
	if (result != CUDA_ERROR_OPERATING_SYSTEM)
		fail("without descriptors", (int)result);
	setrlimit(RLIMIT_NOFILE, &old);
	OK(submit());
}

void gets_no_thread(void)
{
	int before[MOST_FILES], after[MOST_FILES], n;
	CUdeviceptr pointer;
	struct rlimit old;
	CUresult result;

	set_up();
	n = descriptors(before);
	old = lower(RLIMIT_AS, 1);
	for (int i = 0; i < 20; i++) {
		result = cuMemAlloc(&pointer, 4096);
		if (result != CUDA_ERROR_OPERATING_SYSTEM)
			fail("without a thread", (int)result);
	}
	setrlimit(RLIMIT_AS, &old);
	if (descriptors(after) > n + 2)
		fail("descriptors are left open", descriptors(after) - n);
	OK(submit());
}

/* The program has all keys of thread-specific data. */
void has_all_keys(void)
{
	static pthread_key_t keys[PTHREAD_KEYS_MAX];
	int n = 0;

	set_up();
	while (n < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[n], NULL))
		n++;
	for (int i = 0; i < n; i++)
		pthread_setspecific(keys[i], &keys[i]);
	OK(submit());
	for (int i = 0; i < n; i++)
		if (pthread_getspecific(keys[i]) != &keys[i])
			fail("the program's value has changed, of key", i);
}

static bool is_set_back;

/* Stands in for the C library's. The clock of the day is set back by an hour whenever it has been
 * read. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = (int)syscall(SYS_clock_gettime, clock, now);

	if (is_set_back && clock == CLOCK_REALTIME)
		now->tv_sec += 3600;
	return result;
}

/* A program that monitors the GPU while there is no daemon. */
void clock_is_set_back(void)
{
	void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
	int (*begin)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
	int (*find)(unsigned int, void **) =
	    (int (*)(unsigned int, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
	int (*ask)(void *, unsigned long long *) =
	    (int (*)(void *, unsigned long long *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
	unsigned long long memory[3];

	is_set_back = true;
	if (begin() || find(0, &device) || ask(device, memory))
		fail("NVML", 0);
}
