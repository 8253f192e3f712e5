/* thread.c: the client thread, which talks with gpu-leased for this process.
 *
 * The first call that needs it starts it. It alone opens and shuts the gate (lease.c), and it
 * brings whatever threads of the program wait for (gate/waiting.h).
 */
#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/process.h"
#include "base/threads.h"
#include "base/wire.h"
#include "channels/channels.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "lease/contain.h"
#include "lease/explain.h"
#include "lease/host_memory.h"
#include "lease/link.h"
#include "lease/meeting.h"
#include "lease/messages.h"
#include "lease/part.h"
#include "lease/process_lease.h"
#include "lease/signals.h"
#include "lease/stops.h"
#include "lease/suspend.h"
#include "lease/wake.h"
#include "memory/carried.h"
#include "work/contexts.h"
#include "work/drain.h"

#include <stdatomic.h>
#include <sys/prctl.h>

#define MS INT64_C(1000000)
#define STACK_BYTES (256 * 1024)
#define EXIT_NS (2000 * MS) /* how long exit() waits for the client thread */
#define EXIT_PAUSE_US 100

static bool started;  /* under LOCK_WAITING */
static pid_t starter; /* the process that has started it */
static atomic_bool thread_runs;

/* -- a round of the loop ------------------------------------------------------- */

/* The shorter of two pauses in ns; below 0 means for ever. */
static int64_t sooner(int64_t one, int64_t other)
{
	return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* How long the loop may wait for an event, in ns; below 0: for ever. */
static int64_t wait_ns(void)
{
	int64_t ns = sooner(lease_pause_ns(&process_lease), connection_due_ns());

	ns = sooner(ns, link_pause_ns());
	return sooner(ns, explain_pause_ns(now_ns()));
}

static void receive(void)
{
	_Alignas(8) char data[GL_MAX_MESSAGE];
	int descriptor;
	ssize_t n = connection_receive(data, sizeof(data), &descriptor);

	if (n > 0)
		message_take(data, (size_t)n, descriptor);
	else if (n < 0)
		link_lose();
}

static void tell_signals(void)
{
	signals_watch(link_is_served() && lease_is_wanted(&process_lease));
	if (link_is_served())
		lease_tell_signals(&process_lease);
}

static void tell_stranded(void)
{
	struct gl_header message = message_header(GL_STRANDED, sizeof(message));

	if (link_is_served() && carried_is_stranded())
		link_send(&message, sizeof(message));
}

static void speak(void)
{
	if (connection_fd() < 0 || !message_greet())
		return;
	if (link_is_served()) {
		meeting_speak();
		suspend_speak();
		part_speak();
	}
	host_memory_speak();
	lease_ask(&process_lease);
	tell_signals();
	link_send_memory_when_due();
	if (link_is_served())
		link_send_details();
	tell_stranded();
	channels_advance(contexts_exist());
	channels_heed_duties(lease_keeps_duty(&process_lease));
	link_send_channels();
}

static void notice_loss(void)
{
	if (!link_take_loss())
		return;
	channels_keep();
	stops_allow(true);
	lease_moves(&process_lease, false);
	meeting_forget_daemon();
	host_memory_forget_daemon();
	lease_forget_daemon(&process_lease);
}

static void connect_again(void)
{
	if (connection_try())
		message_hello();
	else if (connection_is_barred())
		lease_give_up(&process_lease);
}

/* Does a thread of the program wait for something that this process cannot do by itself? */
static bool waits_for_others(void)
{
	return threads_waiting(WAIT_TERMS) > 0 || meeting_awaited() ||
	       (threads_waiting(WAIT_GATE) > 0 && lease_awaited(&process_lease));
}

static void explain(void)
{
	struct gl_header why = message_header(GL_WHY, sizeof(why));
	struct explain_view view = {waits_for_others(), link_is_served()};

	switch (explain_advance(&view, now_ns())) {
	case EXPLAIN_NOTHING:
		break;
	case EXPLAIN_ASK:
		link_send(&why, sizeof(why));
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
	return atomic_load(&process_ends) || waiting_is_refused();
}

/* By default the kernel may end a thread's waits 50 us late. The client thread waits for as little
 * as that between two checks of whether the work of a revoked lease has finished. */
static void wake_in_time(void)
{
	prctl(PR_SET_TIMERSLACK, 1UL);
}

static void *client_main(void *argument)
{
	(void)argument;
	debug("the client thread starts");
	wake_in_time();
	drain_thread_starts();
	while (!done()) {
		notice_loss();
		connect_again();
		channels_round(false);
		bool heard = wake_wait(wait_ns());

		channels_round(true);
		if (done())
			break;
		if (heard)
			receive();
		speak();
		notice_loss();
		lease_advance(&process_lease);
		contain_advance();
		explain();
	}
	link_lose();
	notice_loss();
	signals_watch(false);
	contain_end();
	waiting_wake_all();
	quiet_end();
	host_memory_offered(false);
	meeting_end();
	atomic_store(&thread_runs, false);
	return NULL;
}

/* -- its beginning and end ----------------------------------------------------- */

/* Tells the user once why the client thread cannot start, which its calls fail with. */
static void complain_of_start(const char *why)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		complain("this process cannot wait for its lease, so its calls to the GPU fail: %s",
		         why);
}

/* Everything here was written and tried with glibc, whose types and constants the library was
 * compiled with. NVIDIA's driver needs it, too. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/* A child that was made without fork() (_Fork(), clone()) looks like its parent, whose client
 * thread it has not. */
static bool is_copy(void)
{
	return starter != getpid();
}

static bool start(void)
{
	if (started && is_copy())
		complain_of_start("it is a copy of one that uses the GPU, made without fork(); let "
		                  "it execute a program, or use fork() before the first CUDA call");
	if (started)
		return !is_copy();
	if (!gnu_get_libc_version) {
		complain_of_start("its C library is not glibc, which sharing a GPU needs as "
		                  "NVIDIA's driver does; use an image that has glibc");
		return false;
	}
	if (!wake_prepare()) {
		complain_of_start("it has no file descriptors left; let it close some, or raise "
		                  "its limit (ulimit -n)");
		return false;
	}
	starter = getpid();
	atomic_store(&thread_runs, true);
	suspend_watch();
	contain_begin();
	started = thread_start(client_main, STACK_BYTES);
	if (started)
		return true;
	atomic_store(&thread_runs, false);
	complain_of_start("the system gives it no further thread; raise its limits of processes "
	                  "and of memory (ulimit -u, ulimit -v)");
	return false;
}

static const struct client_thread client_thread = {start, wake};
WATCH(client_threads, &client_thread);

/* Waits until the client thread has left the driver. The wait is limited, because exit() may be
 * called from within the driver, which may hold what the client thread waits for. */
static void leave_driver(void)
{
	uint64_t begun = now_ns();

	if (is_copy())
		return;
	wake();
	while (atomic_load(&thread_runs) && now_ns() - begun < EXIT_NS)
		pause_us(EXIT_PAUSE_US);
}
EXIT_WATCH(leave_driver);

static void in_child(void)
{
	started = false;
	atomic_store(&thread_runs, false);
}
FORK_WATCH(in_child);
