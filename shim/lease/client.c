/* client.c: the thread that speaks with gpu-leased for this process.
 *
 * It starts with the first call that needs it and is the only one that opens
 * and closes the gate (lease.c). Threads of the program wait on `changed`.
 */
#include "gate/quiet.h"
#include "lease/connection.h"
#include "lease/explain.h"
#include "lease/lease.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define MEMORY_EVERY_NS (4 * MS)
#define STACK_BYTES (256 * 1024)
#define EXIT_NS (2000 * MS)
#define EXIT_PAUSE_US 100

atomic_bool process_ends;

static struct lock lock = LOCK(LOCK_CLIENT);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool started, welcomed, refused;
static int waiting;               /* threads at the gate */
static int waiting_for_welcome;   /* threads that ask what the job may have */
static struct gl_welcome welcome; /* under lock, like the rest of this block */
static struct gl_memory others;
static atomic_bool memory_dirty;
static int wake_fd = -1;
static atomic_bool thread_runs;

/* Of the client thread alone. */
static uint64_t reported_at;
static bool served; /* the daemon has welcomed us on this connection */

void client_wake(void)
{
	uint64_t one = 1;

	if (wake_fd >= 0) /* and should it be full, it wakes anyway */
		syscall(SYS_write, wake_fd, &one, sizeof(one));
}

/* -- the wire ---------------------------------------------------------------- */

static void lost(void)
{
	connection_close();
	served = false;
	lease_forget_daemon();
	debug("no connection with gpu-leased");
}

void client_send(const void *message, size_t size)
{
	if (connection_fd() >= 0 && !connection_send(message, size))
		lost();
}

int client_waiting(void)
{
	int n;

	lock_take(&lock);
	n = waiting;
	lock_give(&lock);
	return n;
}

void client_gate_changed(void)
{
	lock_take(&lock);
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

static void send_hello(void)
{
	struct gl_hello hello = {.header = message_header(GL_HELLO, sizeof(hello))};

	lease_hello(&hello);
	hello.n_devices = memory_report(hello.devices);
	client_send(&hello, sizeof(hello));
}

void client_send_memory(void)
{
	struct gl_memory memory = {.header = message_header(GL_MEMORY, sizeof(memory))};

	if (!atomic_exchange(&memory_dirty, false))
		return;
	memory.n_devices = memory_report(memory.devices);
	client_send(&memory, sizeof(memory));
	reported_at = now_ns();
}

static void send_progress(void)
{
	struct gl_progress progress = {message_header(GL_PROGRESS, sizeof(progress)), gate_calls()};

	client_send(&progress, sizeof(progress));
}

/* -- messages ---------------------------------------------------------------- */

static void take_welcome(const struct gl_welcome *message)
{
	lock_take(&lock);
	welcome = *message;
	welcomed = true;
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
	served = true;
	connection_serves();
}

/* Who held a lease holds none any more: its job has ended. */
static void take_refusal(const struct gl_refused *message)
{
	gate_shut();
	lock_take(&lock);
	refused = true;
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
	complain("no lease for this process: %.*s", (int)sizeof(message->reason), message->reason);
}

/* What this daemon can, its WELCOME will say. */
static void take_resync(void)
{
	lock_take(&lock);
	welcome.flags &= ~(uint32_t)GL_WELCOME_EXPLAINS;
	lock_give(&lock);
	lease_forget_daemon();
	send_hello();
}

static void take_others(const struct gl_memory *message)
{
	lock_take(&lock);
	others = *message;
	lock_give(&lock);
}

/* A refusal is read in every version of the protocol. One of a lower version is from a daemon
 * that does not know ours yet. */
static void take_message(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const union {
		struct gl_welcome welcome;
		struct gl_refused refused;
		struct gl_memory others;
		struct gl_waits waits;
	} *m = data;

	if (size < sizeof(*h) || h->magic != GL_MAGIC || h->length != size)
		return;
	if (h->type == GL_REFUSED && size == sizeof(m->refused)) {
		if (h->version < GL_VERSION)
			connection_is_older();
		else
			take_refusal(&m->refused);
		return;
	}
	if (h->version != GL_VERSION)
		return;
	if (h->type == GL_WELCOME && size == sizeof(m->welcome)) {
		take_welcome(&m->welcome);
	} else if (h->type == GL_WAITS && size == sizeof(m->waits)) {
		explain_answer(&m->waits, now_ns());
	} else if (h->type == GL_RESYNC && size == sizeof(*h)) {
		take_resync();
	} else if (h->type == GL_MEASURE && size == sizeof(*h)) {
		send_progress();
	} else if (h->type == GL_OTHERS && size == sizeof(m->others)) {
		take_others(&m->others);
	} else {
		lease_take(data, size);
	}
}

/* -- the thread -------------------------------------------------------------- */

/* Of two pauses in ns, below 0: for ever. */
static int64_t sooner(int64_t one, int64_t other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* How long to wait for something to happen, in ns; below 0: for ever. */
static int64_t wait_ns(void)
{
	int64_t ns = sooner(lease_pause_ns(), connection_due_ns());

	if (atomic_load(&memory_dirty) && connection_fd() >= 0)
		ns = sooner(ns, MEMORY_EVERY_NS);
	return sooner(ns, explain_pause_ns(now_ns()));
}

/* True: the daemon has said something, or is gone. */
static bool wait_for(int64_t ns)
{
	struct timespec time = {ns / 1000000000, ns % 1000000000};
	struct pollfd fds[2] = {{wake_fd, POLLIN, 0}, {connection_fd(), POLLIN, 0}};
	uint64_t drop;

	ppoll(fds, 2, ns < 0 ? NULL : &time, NULL);
	if (fds[0].revents && read(wake_fd, &drop, sizeof(drop)) < 0) {
		/* somebody else's wake was enough */
	}
	return fds[1].revents;
}

static void receive(void)
{
	_Alignas(8) char data[GL_MAX_MESSAGE];
	ssize_t n = connection_receive(data, sizeof(data));

	if (n > 0)
		take_message(data, (size_t)n);
	else if (n < 0)
		lost();
}

static void speak(void)
{
	if (connection_fd() < 0)
		return;
	lease_ask();
	if ((int64_t)(now_ns() - reported_at) >= MEMORY_EVERY_NS)
		client_send_memory();
}

/* Does a thread of the program wait, and for nothing that this process does itself? */
static bool held_up(void)
{
	bool waits;

	lock_take(&lock);
	waits = waiting_for_welcome > 0 || (waiting > 0 && lease_awaited());
	lock_give(&lock);
	return waits;
}

static void explain(void)
{
	struct gl_header why = message_header(GL_WHY, sizeof(why));
	struct explain_view view = {held_up(), served, welcome.flags & GL_WELCOME_EXPLAINS};

	switch (explain_advance(&view, now_ns())) {
	case EXPLAIN_NOTHING:
		break;
	case EXPLAIN_ASK:
		client_send(&why, sizeof(why));
		break;
	case EXPLAIN_UNSERVED:
		connection_complain();
		break;
	case EXPLAIN_SILENCE:
		complain("this process waits: gpu-leased has not answered for a while; ask the "
		         "administrator to look at gpu-leased on this node");
		break;
	case EXPLAIN_THE_ANSWER:
		complain("this process waits: %s", explain_words());
		break;
	}
}

static bool done(void)
{
	return atomic_load(&process_ends) || refused;
}

static void *client_main(void *argument)
{
	(void)argument;
	drain_thread_starts();
	while (!done()) {
		if (connection_try())
			send_hello();
		bool heard = wait_for(wait_ns());

		if (done())
			break;
		if (connection_fd() >= 0 && heard)
			receive();
		speak();
		lease_advance();
		explain();
	}
	lost();
	client_gate_changed();
	quiet_end();
	atomic_store(&thread_runs, false);
	return NULL;
}

/* The lock is held. */
static bool start_thread(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, old;

	if (started)
		return true;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_store(&thread_runs, true);
	started = wake_fd >= 0 && !pthread_create(&thread, &attributes, client_main, NULL);
	if (!started)
		atomic_store(&thread_runs, false);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

static bool must_wait(bool memory)
{
	if (memory)
		return atomic_load(&gate_memory) == GATE_MEMORY_AWAY;
	return gate_now() == GATE_CLOSED && !gate_may_step();
}

/* The lock is held. What is called by exit handlers cannot have a lease any more. */
static CUresult wait_for_change(void)
{
	if (refused)
		return CUDA_ERROR_NOT_PERMITTED;
	if (atomic_load(&process_ends))
		return CUDA_ERROR_DEINITIALIZED;
	lock_wait(&lock, &changed);
	return CUDA_SUCCESS;
}

CUresult client_need_lease(bool memory)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&lock);
	if (!start_thread())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	waiting++;
	client_wake();
	while (!result && must_wait(memory))
		result = wait_for_change();
	waiting--;
	lock_give(&lock);
	return result;
}

CUresult client_need_welcome(void)
{
	CUresult result = CUDA_SUCCESS;
	int kept = errno;

	lock_take(&lock);
	if (!start_thread())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	waiting_for_welcome++;
	if (!welcomed)
		client_wake();
	while (!result && !welcomed)
		result = wait_for_change();
	waiting_for_welcome--;
	lock_give(&lock);
	errno = kept;
	return result;
}

void client_memory_changed(void)
{
	if (!atomic_exchange(&memory_dirty, true))
		client_wake();
}

uint64_t client_limit(const uint8_t uuid[16])
{
	uint64_t limit = NO_LIMIT;

	lock_take(&lock);
	for (uint32_t i = 0; i < welcome.n_devices && i < GL_MAX_DEVICES; i++)
		if (!memcmp(welcome.devices[i].uuid, uuid, GL_UUID_BYTES))
			limit = welcome.devices[i].bytes;
	lock_give(&lock);
	return limit;
}

uint64_t client_others(const uint8_t uuid[16])
{
	uint64_t used = 0;

	lock_take(&lock);
	for (uint32_t i = 0; i < others.n_devices && i < GL_MAX_DEVICES; i++)
		if (!memcmp(others.devices[i].uuid, uuid, GL_UUID_BYTES))
			used = others.devices[i].bytes + others.devices[i].fixed;
	lock_give(&lock);
	return used;
}

static bool welcomed_with(uint32_t flag)
{
	bool set;

	lock_take(&lock);
	set = welcome.flags & flag;
	lock_give(&lock);
	return set;
}

bool client_oversub(void)
{
	return welcomed_with(GL_WELCOME_OVERSUB);
}

bool client_swaps(void)
{
	return welcomed_with(GL_WELCOME_SWAP);
}

bool client_welcomed_within(int ms)
{
	struct timespec until;
	bool known, in_time = true;
	int kept = errno;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	lock_take(&lock);
	while (start_thread() && !welcomed && !refused && in_time)
		in_time = lock_wait_until(&lock, &changed, &until);
	known = welcomed;
	lock_give(&lock);
	errno = kept;
	return known;
}

/* A child starts anew; what the parent held stays the parent's. Where the
 * parent had contexts the driver refuses every call of the child by itself. */
static void in_child(void)
{
	bool refuses = contexts_exist();

	if (started && wake_fd >= 0)
		close(wake_fd);
	wake_fd = -1;
	started = welcomed = refused = served = false;
	atomic_store(&thread_runs, false);
	waiting = waiting_for_welcome = 0;
	memset(&others, 0, sizeof(others));
	atomic_store(&memory_dirty, false);
	locks_after_fork();
	lock_after_fork(&lock);
	pthread_cond_init(&changed, NULL);
	connection_after_fork();
	explain_after_fork();
	lease_after_fork();
	quiet_after_fork();
	gate_after_fork();
	devices_after_fork();
	memory_after_fork();
	managed_after_fork();
	limit_after_fork();
	ordered_after_fork();
	vmm_after_fork();
	pools_after_fork();
	swap_after_fork();
	contexts_after_fork();
	captures_after_fork();
	bound_after_fork();
	if (refuses)
		gate_open();
}

/* The environment is read before the program can change it beside us. */
__attribute__((constructor)) static void prepare(void)
{
	debug_prepare();
	pthread_atfork(NULL, NULL, in_child);
}

/* From here on the driver may be gone: the client thread must not call it, nor be in it.
 * But exit() may be called where the driver waits for its caller, so there is an end to
 * our waiting. No lock: a signal's handler may have interrupted who has it. */
__attribute__((destructor)) static void process_exits(void)
{
	uint64_t start = now_ns();

	atomic_store(&process_ends, true);
	client_wake();
	while (atomic_load(&thread_runs) && now_ns() - start < EXIT_NS)
		pause_us(EXIT_PAUSE_US);
}

static void guard_exit(void)
{
	atexit(process_exits);
}

/* What is registered later runs earlier: before whatever the driver has registered. */
void client_guard_exit(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, guard_exit);
}
