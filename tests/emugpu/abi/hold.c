/* hold.c: for tests of races: holds a thread at the start of a call, as a scheduler may at any
 * moment. A program links with this library, or looks the functions up by name, and calls
 * emugpu_hold(), emugpu_held() or emugpu_met(), and emugpu_let(). With EMUGPU_STRICT in the
 * environment the process ends if it does something that a card's driver leaves undefined. */
#include "abi/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S 60

int emu_holds;

static struct {
	const char *call;    /* the name of the call in which to hold a thread; NULL: none */
	pthread_t requester; /* the thread that asked for it */
	int ms;              /* how long it is held, in ms; 0: until emugpu_let() */
	bool held, let;
	const struct emu_ctx *ctx; /* the context that is current in the thread that is held */
} hold;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int under_way; /* how many calls threads of the process are in */

static struct timespec in_ms(int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* The next call of that name by another thread waits at its start, until emugpu_let() or, if ms
 * is not 0, for so long. The name is that of the symbol; it is not copied. */
void emugpu_hold(const char *call, int ms);
EXPORT void emugpu_hold(const char *call, int ms)
{
	pthread_mutex_lock(&lock);
	hold.call = call;
	hold.requester = pthread_self();
	hold.ms = ms;
	hold.held = hold.let = false;
	__atomic_store_n(&emu_holds, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&lock);
}

/* Waits until a thread is held; returns 0 if none has come. */
int emugpu_held(void);
EXPORT int emugpu_held(void)
{
	struct timespec until = in_ms(PATIENCE_S * 1000);
	int failed = 0;

	pthread_mutex_lock(&lock);
	while (!hold.held && failed != ETIMEDOUT)
		failed = pthread_cond_timedwait(&changed, &lock, &until);
	pthread_mutex_unlock(&lock);
	return !failed;
}

/* Has a thread been held? */
int emugpu_met(void);
EXPORT int emugpu_met(void)
{
	int met;

	pthread_mutex_lock(&lock);
	met = hold.held;
	pthread_mutex_unlock(&lock);
	return met;
}

void emugpu_let(void);
EXPORT void emugpu_let(void)
{
	pthread_mutex_lock(&lock);
	hold.call = NULL;
	hold.let = true;
	__atomic_store_n(&emu_holds, 0, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_here(void)
{
	struct timespec until = in_ms(hold.ms ? hold.ms : PATIENCE_S * 1000);
	int failed = 0, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	emu_enter();
	hold.call = NULL;
	hold.held = true;
	hold.ctx = emu_current();
	pthread_cond_broadcast(&changed);
	while (!hold.let && failed != ETIMEDOUT)
		failed = pthread_cond_timedwait(&changed, &lock, &until);
	hold.ctx = NULL;
	emu_leave();
	pthread_setcancelstate(cancel, &cancel);
}

void emu_point(const char *call)
{
	pthread_mutex_lock(&lock);
	if (hold.call && !strcmp(hold.call, call) && !pthread_equal(hold.requester, pthread_self()))
		wait_here();
	pthread_mutex_unlock(&lock);
}

/* -- what is undefined ------------------------------------------------------------------ */

void emu_undefined(const char *what)
{
	if (!getenv("EMUGPU_STRICT"))
		return;
	fprintf(stderr, "emulated libcuda: undefined on a card: %s\n", what);
	abort();
}

void emu_ends(const struct emu_ctx *ctx)
{
	bool used;

	pthread_mutex_lock(&lock);
	used = hold.ctx == ctx;
	pthread_mutex_unlock(&lock);
	if (used)
		emu_undefined("a context is destroyed during another thread's call in it");
}

void emu_enter(void)
{
	__atomic_fetch_add(&under_way, 1, __ATOMIC_SEQ_CST);
}

void emu_leave(void)
{
	__atomic_fetch_sub(&under_way, 1, __ATOMIC_SEQ_CST);
}

/* The driver ends with the process, even if a thread is in it. */
static void driver_ends(void)
{
	if (__atomic_load_n(&under_way, __ATOMIC_SEQ_CST) > 0)
		emu_undefined("the process ends while a thread of it is in the driver");
}

static void in_child(void)
{
	under_way = 0; /* the parent's threads are not here */
}

void emu_guard_end(void)
{
	atexit(driver_ends);
	pthread_atfork(NULL, NULL, in_child);
}
