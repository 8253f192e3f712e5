/* barrier.c: memory barriers for other threads of the process, by membarrier(2). */
#include "gate/barrier.h"

#include "base/clock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SETTLE_NS UINT64_C(10000000)
#define SETTLE_PAUSE_US 1000

bool gate_needs_fence;

static void register_process(void)
{
	gate_needs_fence =
	    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

void gate_barrier_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_process);
}

/* While the process has one thread the kernel registers it at once. With more threads it first
 * waits for an RCU grace period, 10 ms and more, and a thread of the program would wait for that.
 */
__attribute__((constructor)) static void prepare_early(void)
{
	gate_barrier_prepare();
}

/* The program has forbidden itself the call since (seccomp), when threads pass without fences. A
 * store of theirs is seen by all as soon as it has left the processor's store buffer, which takes
 * far less than this. */
static void let_stores_settle(void)
{
	uint64_t begun = now_ns();

	atomic_thread_fence(memory_order_seq_cst);
	while (now_ns() - begun < SETTLE_NS)
		pause_us(SETTLE_PAUSE_US);
}

void gate_barrier(void)
{
	if (gate_needs_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		let_stores_settle();
}
