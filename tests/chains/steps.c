/* steps.c: stops a component after each instruction of its changes of a chain's table.
 *
 * A child passes buffers, one instruction after the other. After each, a copy of the table is what
 * the keeper finds if the child is killed there: all buffers are to come back to the pool. And a
 * child is stopped before and behind each instruction that changes a buffer, when it has read what
 * the change depends on, while another component takes a handle of the same buffer, or allocates
 * another one, and drops it. Prints how many instructions and changes it has looked at.
 */
#include "holds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUFFERS 3
#define SIZE 4096
#define KEEP_S 2
#define CHANGES 100 /* at most */

/* Memory of both. */
static struct shared {
	struct chain_table table;
	_Atomic bool put; /* `handle` is there */
	struct chain_handle handle;
} *shared;
static struct chain_table *copy;
static struct chain_holds component, other;

static void expect(bool true_, const char *what)
{
	if (true_)
		return;
	printf("%s\n", what);
	exit(1);
}

static void begin(void)
{
	memset(shared, 0, sizeof(*shared));
	expect(table_begin(&shared->table, BUFFERS * CHAIN_UNIT, KEEP_S), "no random numbers");
	for (uint32_t i = 0; i < BUFFERS; i++)
		table_offer(&shared->table, i, CHAIN_UNIT);
	memset(&component, 0, sizeof(component));
	memset(&other, 0, sizeof(other));
	component.table = other.table = &shared->table;
	other.member = 1;
	other.next = 1; /* another one than the component's */
}

static uint32_t hold(struct chain_holds *holds)
{
	uint32_t index;

	do
		index = holds_find(holds, SIZE, true);
	while (index < CHAIN_BUFFERS && !holds_begin(holds, index, SIZE));
	expect(index < CHAIN_BUFFERS, "no buffer was free");
	return index;
}

/* What the child does. Of its first put one taker is the other component. */
static void pass(void)
{
	struct chain_handle handle;
	uint32_t index = hold(&component);
	uint64_t size;

	expect(!holds_give(&component, index, 2, true, &handle), "not given before");
	holds_ready(&component, index, handle.number);
	expect(holds_end(&component, index), "not held while it was given before");
	shared->handle = handle;
	shared->put = true;
	expect(!holds_take(&component, &handle, &size) && size == SIZE, "not taken");
	expect(!holds_give(&component, index, 1, false, &handle), "not given");
	expect(!holds_take(&component, &handle, &size), "not taken again");
	expect(holds_end(&component, index), "not dropped");
}

static pid_t start(void)
{
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		pass();
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	return pid;
}

/* Returns false if the child has ended instead. */
static bool step(pid_t pid)
{
	int status;

	expect(!ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), "no single steps");
	expect(waitpid(pid, &status, 0) == pid, "the child is gone");
	expect(!WIFEXITED(status) || !WEXITSTATUS(status), "the child has failed");
	return WIFSTOPPED(status);
}

static void expect_all_free(const struct chain_table *table)
{
	for (uint32_t i = 0; i < BUFFERS; i++)
		expect(use_is_free(use_now(&table->buffers[i])), "a buffer is not free");
}

/* As the keeper does when the child has been killed here. */
static void forget(void)
{
	memcpy(copy, &shared->table, sizeof(*copy));
	table_forget(copy, component.member);
	for (uint32_t i = 0; i < BUFFERS; i++)
		expect(!use_now(&copy->buffers[i]).holders, "a dead component holds a buffer");
	for (int i = 0; i <= KEEP_S + 1; i++) /* it sees the last put in the first of them */
		table_tick(copy, UINT64_C(1) << other.member);
	expect_all_free(copy);
}

/* Notes after how many instructions the buffers have changed. */
static unsigned int killed_anywhere(unsigned int changes[CHANGES], unsigned int *n)
{
	struct chain_buffer before[BUFFERS];
	unsigned int steps = 0;
	pid_t pid;

	begin();
	for (pid = start(); step(pid); steps++) {
		if (steps && memcmp(before, shared->table.buffers, sizeof(before)) && *n < CHANGES)
			changes[(*n)++] = steps + 1;
		memcpy(before, shared->table.buffers, sizeof(before));
		forget();
	}
	return steps;
}

/* What the other component does while the child stands still, unless it has done it. */
static bool take(void)
{
	uint32_t index;
	uint64_t size;

	if (!shared->put) {
		index = hold(&other);
		expect(holds_end(&other, index), "the other's is not held");
		return false;
	}
	expect(!holds_take(&other, &shared->handle, &size), "the other cannot take it");
	expect(holds_end(&other, shared->handle.index), "the other does not hold it");
	return true;
}

static void stopped_after(unsigned int steps)
{
	pid_t pid;
	bool taken;

	begin();
	pid = start();
	while (steps-- && step(pid))
		;
	taken = take();
	while (step(pid))
		;
	if (!taken)
		take();
	expect_all_free(&shared->table);
}

int main(void)
{
	unsigned int steps, changes[CHANGES], n = 0;

	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	copy = aligned_alloc(CHAIN_LINE, sizeof(*copy));
	setbuf(stdout, NULL);
	expect(shared != MAP_FAILED && copy, "no memory");
	steps = killed_anywhere(changes, &n);
	for (unsigned int i = 0; i < n; i++) {
		stopped_after(changes[i] - 1);
		stopped_after(changes[i]);
	}
	printf("%u instructions, %u changes\n", steps, n);
	return 0;
}
