// count_calls.cu: how often a program calls each function of the driver, by CUPTI.
//
// A library that a program of check_speed loads. CUPTI calls us around every driver call of every
// thread, also where the program found the function by its address. CUPTI's few declarations
// stand here, so that only its library must be there.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

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

static void on_call(void *user, int domain, uint32_t id, const struct call *call)
{
	(void)user;
	(void)domain;
	if (call->site != EXIT || id >= MAX_IDS)
		return;
	counts[id].name = call->function;
	__atomic_fetch_add(&counts[id].calls, 1, __ATOMIC_RELAXED);
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
