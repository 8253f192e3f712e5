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
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "lease/explain.h"
#include "lease/host_memory.h"
#include "lease/link.h"
#include "lease/meeting.h"
#include "lease/messages.h"
#include "lease/process_lease.h"
#include "lease/suspend.h"
#include "work/drain.h"

#include <poll.h>
#include <sys/eventfd.h>

#define MS INT64_C(1000000)
#define STACK_BYTES (256 * 1024)
#define EXIT_NS (2000 * MS) /* how long exit() waits for the client thread */
#define EXIT_PAUSE_US 100

static bool started; /* under LOCK_WAITING */
static int wake_fd = -1;
static atomic_bool thread_runs;

static void wake(void)
{
	uint64_t one = 1;

	if (wake_fd >=
	    0) /* if the counter is full the write fails, but the thread is woken anyway */
		syscall(SYS_write, wake_fd, &one, sizeof(one));
}

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

/* Waits for a wake or for the daemon. Returns true if a message has come or the connection has
 * ended. */
static bool wait_for(int64_t ns)
{
	struct timespec time = {ns / 1000000000, ns % 1000000000};
	struct pollfd fds[2] = {{wake_fd, POLLIN, 0}, {connection_fd(), POLLIN, 0}};
	uint64_t drop;

	ppoll(fds, 2, ns < 0 ? NULL : &time, NULL);
	if (fds[0].revents && read(wake_fd, &drop, sizeof(drop)) < 0) {
		/* The counter is read already. */
	}
	return fds[1].revents;
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

static void speak(void)
{
	if (connection_fd() < 0)
		return;
	if (link_is_served())
		meeting_speak(messages_introduce());
	if (link_is_served() && messages_park())
		suspend_speak();
	host_memory_speak();
	lease_ask(&process_lease);
	link_send_memory_when_due();
	if (link_is_served())
		link_send_details(messages_details());
}

static void notice_loss(void)
{
	if (!link_take_loss())
		return;
	meeting_forget_daemon();
	host_memory_forget_daemon();
	lease_forget_daemon(&process_lease);
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
	struct explain_view view = {waits_for_others(), link_is_served(), messages_explain()};

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

static void *client_main(void *argument)
{
	(void)argument;
	drain_thread_starts();
	while (!done()) {
		notice_loss();
		if (connection_try())
			message_hello();
		bool heard = wait_for(wait_ns());

		if (done())
			break;
		if (connection_fd() >= 0 && heard)
			receive();
		speak();
		notice_loss();
		lease_advance(&process_lease);
		explain();
	}
	link_lose();
	notice_loss();
	waiting_wake_all();
	quiet_end();
	host_memory_forget_daemon();
	meeting_end();
	atomic_store(&thread_runs, false);
	return NULL;
}

/* -- its beginning and end ----------------------------------------------------- */

static bool start(void)
{
	if (started)
		return true;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_store(&thread_runs, true);
	suspend_watch();
	started = wake_fd >= 0 && thread_start(client_main, STACK_BYTES);
	if (!started)
		atomic_store(&thread_runs, false);
	return started;
}

static const struct client_thread client_thread = {start, wake};
WATCH(client_threads, &client_thread);

/* Waits until the client thread has left the driver. The wait is limited, because exit() may be
 * called from within the driver, which may hold what the client thread waits for. */
static void leave_driver(void)
{
	uint64_t begun = now_ns();

	wake();
	while (atomic_load(&thread_runs) && now_ns() - begun < EXIT_NS)
		pause_us(EXIT_PAUSE_US);
}
EXIT_WATCH(leave_driver);

static void in_child(void)
{
	if (started && wake_fd >= 0)
		close(wake_fd);
	wake_fd = -1;
	started = false;
	atomic_store(&thread_runs, false);
}
FORK_WATCH(in_child);
