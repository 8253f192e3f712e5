/* gate_stress.c: tries to slip through the gate while it closes.
 *
 * gate_stress THREADS CLOSES [fenced]: threads submit without pause, some of them end
 * and others take their places, while the gate is closed and opened at random,
 * bounded or not. `ours` is a plain variable on purpose: it is written only
 * while the gate is closed and read only inside, so a slip is seen by the
 * check, and by the thread sanitizer as a race. fenced: as on a kernel without
 * membarrier. Prints what it saw.
 */
#include "driver/lookup.h"
#include "gate/barrier.h"
#include "gate/gate.h"
#include "gate/waiting.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_OF_A_LIFE 2000
#define CALLS_OF_A_CLOSE 250 /* at least, of every other one */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static atomic_bool stop;
static atomic_ulong passed, slipped, refused, lives;
static int ours;
static atomic_char cold[64 << 20];

/* -- what the gate asks of the rest of the library ---------------------------- */

CUresult wait_until(enum wait_reason reason, bool (*over)(void))
{
	(void)reason;
	pthread_mutex_lock(&lock);
	while (!over())
		pthread_cond_wait(&opened, &lock);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

void waiting_wake_all(void)
{
}

bool stream_captures(CUstream stream)
{
	return stream != NULL;
}

static int draw(long *pause_us)
{
	(void)pause_us;
	return 3;
}

static const struct pace pace = {.draw = draw};

bool captures_exist(void)
{
	return false;
}

bool context_busy(CUcontext context)
{
	(void)context;
	return false;
}

bool contexts_lost_in_fork(void)
{
	return false;
}

/* No step is ever allowed here, so the driver is never asked. */
void *real_symbol(const char *name)
{
	(void)name;
	abort();
}

/* ----------------------------------------------------------------------------- */

/* Stores that miss the cache hold up the ones behind them: `inside` becomes
 * visible late, which is what a gate without a barrier would miss. */
static void delay_stores(unsigned int *seed)
{
	for (int i = 0; i < 12; i++)
		atomic_store_explicit(&cold[(size_t)rand_r(seed) * 64 % sizeof(cold)], 1,
		                      memory_order_relaxed);
}

static void submit(unsigned int depth, unsigned int *seed)
{
	struct thread_slot *slot;
	bool slip;

	delay_stores(seed);
	slot = gate_pass();
	if (!slot && gate_enter(NULL)) {
		atomic_fetch_add(&refused, 1);
		return;
	}
	slip = !ours;
	for (volatile int i = 0; i < 50; i++) /* the driver's own time */
		;
	atomic_signal_fence(memory_order_seq_cst); /* read it again */
	if (slip || !ours)
		atomic_fetch_add(&slipped, 1);
	if (depth)
		submit(depth - 1, seed); /* a driver that calls itself through us */
	if (slot)
		gate_return(slot);
	else
		gate_leave();
	atomic_fetch_add_explicit(&passed, 1, memory_order_relaxed);
}

static void *life(void *argument)
{
	unsigned int seed = (unsigned int)(uintptr_t)argument;

	atomic_fetch_add(&lives, 1);
	for (int i = 0; i < CALLS_OF_A_LIFE && !atomic_load(&stop); i++)
		submit(rand_r(&seed) % 16 == 0, &seed);
	return NULL;
}

/* One thread after the other, until the end. */
static void *successions(void *argument)
{
	while (!atomic_load(&stop)) {
		pthread_attr_t small;
		pthread_t thread;

		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 64 * 1024);
		if (pthread_create(&thread, &small, life, argument))
			abort();
		pthread_join(thread, NULL);
		pthread_attr_destroy(&small);
	}
	return NULL;
}

static void open_again(unsigned int *seed)
{
	pthread_mutex_lock(&lock);
	ours = 1;
	gate_open();
	if (rand_r(seed) % 2)
		gate_bound(&pace);
	pthread_cond_broadcast(&opened);
	pthread_mutex_unlock(&lock);
}

/* As many calls as it takes, however busy the machine is. */
static void wait_for_calls(unsigned long n)
{
	unsigned long before = atomic_load(&passed);

	while (atomic_load(&passed) - before < n)
		usleep(20);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 4, closes = argc > 2 ? atoi(argv[2]) : 1000;
	pthread_t *threads = calloc((size_t)n, sizeof(*threads));
	unsigned int seed = 1;

	gate_shut(); /* sees what the kernel has */
	if (argc > 3 && !strcmp(argv[3], "fenced"))
		gate_needs_fence = true;
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, successions, (void *)(uintptr_t)(i + 1)))
			abort();
	for (int i = 0; i < closes; i++) {
		open_again(&seed);
		usleep(rand_r(&seed) % 300);
		if (i % 2)
			wait_for_calls(CALLS_OF_A_CLOSE);
		if (rand_r(&seed) % 4 == 0)
			gate_bound(rand_r(&seed) % 2 ? &pace : NULL);
		gate_shut();
		while (!gate_empty())
			usleep(20);
		ours = 0;
		usleep(rand_r(&seed) % 50);
	}
	atomic_store(&stop, true);
	open_again(&seed);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	printf("{\"passed\": %lu, \"slipped\": %lu, \"refused\": %lu, \"lives\": %lu, \"fenced\": "
	       "%s}\n",
	       passed, slipped, refused, lives, gate_needs_fence ? "true" : "false");
	free(threads);
	return slipped || refused;
}
