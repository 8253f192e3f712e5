// count_calls.cu: how often a program calls each function of the driver, by CUPTI.
//
// A library that a program of check_speed loads, or that the driver loads into any program when
// it is initialized: CUDA_INJECTION64_PATH names it, COUNT_CALLS_CUPTI CUPTI's library, and
// COUNT_CALLS_DIR the folder where each process leaves a file, named by its process id. CUPTI calls
// us around every driver call of every thread, also where the program found the function by its
// address. CUPTI's few declarations stand here, so that only its library must be there.
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DRIVER_API 1 // CUPTI_CB_DOMAIN_DRIVER_API
#define EXIT 1       // CUPTI_API_EXIT
#define MAX_IDS 4096 // of functions; CUDA 13 has some 800

// How CUpti_CallbackData begins.
struct call {
	int site;
	const char *function;
};

static struct {
	const char *name;
	unsigned long calls;
} counts[MAX_IDS];
static void *cupti, *subscriber;
static int64_t first_ns, last_ns; // when calls returned, by the monotonic clock

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void note_time(void)
{
	int64_t now = now_ns(), none = 0;

	if (!__atomic_load_n(&first_ns, __ATOMIC_RELAXED))
		__atomic_compare_exchange_n(&first_ns, &none, now, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	__atomic_store_n(&last_ns, now, __ATOMIC_RELAXED);
}

static void on_call(void *user, int domain, uint32_t id, const struct call *call)
{
	(void)user;
	(void)domain;
	if (call->site != EXIT || id >= MAX_IDS)
		return;
	counts[id].name = call->function;
	__atomic_fetch_add(&counts[id].calls, 1, __ATOMIC_RELAXED);
	note_time();
}

// 0, CUPTI's error, or -1: there is no such library.
extern "C" int count_begin(const char *library)
{
	int (*subscribe)(void **, void *, void *), (*enable)(uint32_t, void *, int), result;

	cupti = dlopen(library, RTLD_NOW);
	if (!cupti)
		return -1;
	subscribe = (int (*)(void **, void *, void *))dlsym(cupti, "cuptiSubscribe");
	enable = (int (*)(uint32_t, void *, int))dlsym(cupti, "cuptiEnableDomain");
	if (!subscribe || !enable)
		return -1;
	result = subscribe(&subscriber, (void *)on_call, NULL);
	return result ? result : enable(1, subscriber, DRIVER_API);
}

extern "C" void count_end(void)
{
	int (*unsubscribe)(void *) = (int (*)(void *))dlsym(cupti, "cuptiUnsubscribe");

	if (unsubscribe)
		unsubscribe(subscriber);
}

// The nth function, or NULL: it was not called.
extern "C" const char *count_name(unsigned int n)
{
	return n < MAX_IDS && counts[n].calls ? counts[n].name : NULL;
}

extern "C" unsigned long count_calls(unsigned int n)
{
	return n < MAX_IDS ? counts[n].calls : 0;
}

extern "C" unsigned int count_size(void)
{
	return MAX_IDS;
}

// -- loaded by the driver -----------------------------------------------------------

static pid_t counted; // a child that is forked later has our counts, and does not write them

static FILE *open_file(void)
{
	const char *folder = getenv("COUNT_CALLS_DIR");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%d", folder ? folder : ".", (int)getpid());
	return fopen(path, "w");
}

static void write_counts(void)
{
	FILE *file = getpid() == counted ? open_file() : NULL;

	if (!file)
		return;
	fprintf(file, "counted %lld %lld\n", (long long)first_ns, (long long)last_ns);
	for (unsigned int n = 0; n < count_size(); n++)
		if (count_name(n))
			fprintf(file, "%s %lu\n", count_name(n), count_calls(n));
	fclose(file);
}

// The driver calls this when it is initialized. A process that does not end by exit() leaves a file
// that says `began` alone.
extern "C" int InitializeInjection(void)
{
	const char *library = getenv("COUNT_CALLS_CUPTI");
	int result = count_begin(library ? library : "libcupti.so");
	FILE *file = open_file();

	if (file) {
		fprintf(file, result ? "refused %d\n" : "began\n", result);
		fclose(file);
	}
	counted = getpid();
	if (!result)
		atexit(write_counts);
	return 1;
}
