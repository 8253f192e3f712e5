/* forbidden_barrier.c: a program forbids itself membarrier after threads have begun to pass the
 * gate without fences. Says whether a barrier then waits until their stores are seen.
 */
#include "gate/barrier.h"

#include "../forbid.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

static volatile sig_atomic_t waits;

static void waited(int number)
{
	(void)number;
	waits = 1;
}

int main(void)
{
	struct sigaction action = {.sa_handler = waited};

	gate_barrier_prepare();
	sigaction(SIGSYS, &action, NULL);
	/* SIGSYS comes instead of a pause. */
	if (!forbid(SYS_nanosleep, SECCOMP_RET_TRAP))
		return 1;
	gate_barrier();
	printf("%s, ", waits ? "waits" : "goes on");
	if (!forbid(SYS_membarrier, SECCOMP_RET_ERRNO | EPERM))
		return 1;
	gate_barrier();
	printf("%s\n", waits ? "waits" : "goes on");
	return 0;
}
