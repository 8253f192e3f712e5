/* contain.c: under MPS, a signal that ends the process waits until its work has finished.
 *
 * The processes on a server of NVIDIA's MPS share more than a GPU, so one should not end with work
 * in flight. Where the program leaves SIGHUP, SIGINT or SIGTERM to their default action our handler
 * stands in for it. It wakes the client thread, which lets no further work begin, waits for what
 * was submitted, and then lets the signal do what it does by default. So the process ends by the
 * same signal, a little later. Meanwhile the thread that got the signal waits in our handler, so
 * that the program does not see a call interrupted that would never have returned. It goes on where
 * it may hold what the client thread needs: inside the gate, or when that makes no progress.
 *
 * Nobody waits for ever: a timer sends the signal once more, and that one ends the process at once,
 * as a second one of anybody does. A program that sets a handler replaces ours. A forked child has
 * no client thread, and the first process of a pid namespace has no default actions.
 *
 * The contexts are left to the end of the process: other threads may be using them.
 */
#include "lease/contain.h"

#include "base/clock.h"
#include "gate/gate.h"
#include "gate/slots.h"
#include "lease/wake.h"
#include "work/contexts.h"
#include "work/drain.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_S 5 /* how long work is waited for */
#define PAUSE_US 200
#define STALLED_NS UINT64_C(200000000)

static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
#define N_ENDING (sizeof(ending) / sizeof(ending[0]))

static bool under_mps, stands; /* of the client thread, but for its start */
static int timers[N_ENDING];   /* the kernel's numbers; written before their signals */
static _Atomic(pid_t) owner;   /* the process whose client thread waits; 0: none does */
static atomic_uint rounds;     /* of the wait: it makes progress */
static atomic_int came;        /* the signal; 0: none */

static void default_action(int number)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};

	sigaction(number, &plain, NULL);
	raise(number);
}

static void start_timer(int number)
{
	struct itimerspec once = {.it_value = {.tv_sec = MOST_S}};

	for (size_t i = 0; i < N_ENDING; i++)
		if (ending[i] == number)
			syscall(SYS_timer_settime, timers[i], 0, &once, NULL);
}

static void wait_here(void)
{
	unsigned int seen = atomic_load(&rounds);
	uint64_t since = now_ns();

	while (!my_slot || atomic_load(&my_slot->place) != GATE_INSIDE) {
		pause_us(PAUSE_US);
		if (atomic_load(&rounds) != seen) {
			seen = atomic_load(&rounds);
			since = now_ns();
		} else if (now_ns() - since > STALLED_NS) {
			return;
		}
	}
}

/* owner is read again behind the exchange: either contain_end() sees the signal, or this sees that
 * nobody waits any more. */
static void handle(int number)
{
	int saved_errno = errno, none = 0;

	if (getpid() != atomic_load(&owner) ||
	    !atomic_compare_exchange_strong(&came, &none, number) ||
	    getpid() != atomic_load(&owner)) {
		default_action(number);
	} else {
		start_timer(number);
		wake();
		wait_here();
	}
	errno = saved_errno;
}

bool contain_is_ours(const struct sigaction *action)
{
	return action->sa_handler == handle;
}

static bool make_timer(int number, int *timer)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};

	return !syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, timer);
}

static void stand_in(size_t i)
{
	struct sigaction now, replaced,
	    ours = {.sa_handler = handle, .sa_flags = (int)SA_RESTART | (int)SA_ONSTACK};

	if (sigaction(ending[i], NULL, &now) ||
	    (now.sa_handler != SIG_DFL && !contain_is_ours(&now)) || /* a parent's */
	    !make_timer(ending[i], &timers[i]))
		return;
	if (!sigaction(ending[i], &ours, &replaced) && replaced.sa_handler != now.sa_handler)
		sigaction(ending[i], &replaced, NULL); /* the program has just set one */
}

void contain_begin(void)
{
	under_mps = getenv("CUDA_MPS_PIPE_DIRECTORY") && getpid() != 1;
	stands = false;
	atomic_store(&came, 0);
}

/* The client thread blocks all signals otherwise. */
static void unblock(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void finish(int number)
{
	gate_shut();
	unblock(number); /* for the timer's signal */
	while (!gate_empty() || !poll_idle(gate_settled())) {
		atomic_fetch_add(&rounds, 1);
		pause_us(PAUSE_US);
	}
	default_action(number);
}

void contain_advance(void)
{
	int number = atomic_load(&came);

	if (under_mps && !stands && contexts_exist()) {
		stands = true;
		atomic_store(&owner, getpid());
		for (size_t i = 0; i < N_ENDING; i++)
			stand_in(i);
	}
	if (number)
		finish(number);
}

void contain_end(void)
{
	int number;

	atomic_store(&owner, 0);
	number = atomic_load(&came);
	if (!number)
		return;
	unblock(number);
	default_action(number);
}
