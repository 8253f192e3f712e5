/* signals.c: has the program handled a signal while it waits?
 *
 * Python runs handlers between its own steps, and a program in C mostly looks at a flag after a
 * step. A thread that waits for a lease, at the gate or in the driver for work that is stopped,
 * comes to neither before its call returns. So while this job waits, or another one does, our own
 * handler stands before those of the program: it counts the signal, wakes the client thread and
 * calls the program's. It does not matter which thread gets the signal.
 *
 * These are the signals that people and Slurm send, and the alarm clock. Those that a thread causes
 * itself, and those that profilers use, are left alone. Handlers stand before others only where the
 * program has set one. If it sets another one meanwhile, that one is in force until the next look.
 * If it has taken ours for its own, and sets it again later, ours calls what it stood before.
 */
#include "lease/signals.h"

#include "lease/contain.h"
#include "lease/wake.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

typedef void handler(int number, siginfo_t *info, void *context);

#define LAST SIGTERM /* the highest of these numbers */
static const int watched[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM};
#define N_WATCHED (sizeof(watched) / sizeof(watched[0]))

static _Atomic(handler *) programs[LAST + 1]; /* by signal: the handler that ours stands before */
static struct sigaction before[LAST + 1];     /* the program's actions; of the client thread */
static atomic_uint handled;

unsigned int signals_handled(void)
{
	return atomic_load(&handled);
}

/* The program's handler may take less than this, and never return. */
static void count(int number, siginfo_t *info, void *context)
{
	int saved_errno = errno;

	atomic_fetch_add(&handled, 1);
	wake();
	errno = saved_errno;
	atomic_load (&programs[number])(number, info, context);
}

/* One that the kernel takes away by itself is left alone. */
static bool is_programs(const struct sigaction *action)
{
	bool set = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;

	return set && action->sa_sigaction != count && !contain_is_ours(action) &&
	       !(action->sa_flags & (int)SA_RESETHAND);
}

static void stand_before(int number)
{
	struct sigaction now, ours, replaced;

	if (sigaction(number, NULL, &now) || !is_programs(&now))
		return;
	before[number] = ours = now;
	atomic_store(&programs[number], now.sa_sigaction);
	ours.sa_flags |= SA_SIGINFO;
	ours.sa_sigaction = count;
	if (!sigaction(number, &ours, &replaced) && replaced.sa_sigaction != now.sa_sigaction)
		sigaction(number, &replaced, NULL); /* the program has just set another one */
}

static void stand_back(int number)
{
	struct sigaction now;

	if (!sigaction(number, NULL, &now) && now.sa_sigaction == count)
		sigaction(number, &before[number], NULL);
}

void signals_watch(bool watch)
{
	static bool watches;

	if (!watch && !watches)
		return;
	watches = watch;
	for (size_t i = 0; i < N_WATCHED; i++)
		(watch ? stand_before : stand_back)(watched[i]);
}
