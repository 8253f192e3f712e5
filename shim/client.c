/* client.c: the thread that speaks with gpu-leased for this process.
 *
 * It starts with the first call that needs it and is the only one that opens
 * and closes the gate (lease.c). Threads of the program wait on `changed`.
 */
#include "lease.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/gpu-leased/tenant.sock"
#define BACKOFF_FIRST_MS 50
#define BACKOFF_LAST_MS 500
#define MS INT64_C(1000000)
#define MEMORY_EVERY_NS (4 * MS)
#define STACK_BYTES (256 * 1024)

atomic_bool process_ends;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool started, welcomed, refused;
static int waiting;               /* threads at the gate */
static struct gl_welcome welcome; /* under lock, like the rest of this block */
static struct gl_memory others;
static atomic_bool memory_dirty;
static int wake_fd = -1;

/* Of the client thread alone. */
static int daemon_fd = -1;
static uint64_t reported_at;

static void client_wake(void)
{
	uint64_t one = 1;

	if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0) {
		/* full: it wakes anyway */
	}
}

/* -- the wire ---------------------------------------------------------------- */

static void lost(void)
{
	if (daemon_fd >= 0)
		close(daemon_fd);
	daemon_fd = -1;
	lease_forget_daemon();
	debug("no connection with gpu-leased");
}

void client_send(const void *message, size_t size)
{
	while (daemon_fd >= 0 && send(daemon_fd, message, size, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			lost();
}

int client_waiting(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = waiting;
	pthread_mutex_unlock(&lock);
	return n;
}

void client_gate_changed(void)
{
	pthread_mutex_lock(&lock);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
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

static bool connect_daemon(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("GPU_LEASE_SOCKET");

	if (!path)
		path = DEFAULT_SOCKET;
	if (strlen(path) >= sizeof(address.sun_path))
		return false;
	strcpy(address.sun_path, path);
	daemon_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (daemon_fd >= 0 && connect(daemon_fd, (struct sockaddr *)&address, sizeof(address))) {
		close(daemon_fd);
		daemon_fd = -1;
	}
	if (daemon_fd >= 0)
		send_hello();
	return daemon_fd >= 0;
}

/* -- messages ---------------------------------------------------------------- */

static void take_welcome(const struct gl_welcome *message)
{
	pthread_mutex_lock(&lock);
	welcome = *message;
	welcomed = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Who held a lease holds none any more: its job has ended. */
static void take_refusal(const struct gl_refused *message)
{
	gate_shut();
	pthread_mutex_lock(&lock);
	refused = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	complain("no lease for this process: %.*s", (int)sizeof(message->reason), message->reason);
}

static void take_others(const struct gl_memory *message)
{
	pthread_mutex_lock(&lock);
	others = *message;
	pthread_mutex_unlock(&lock);
}

static void take_message(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const union {
		struct gl_welcome welcome;
		struct gl_refused refused;
		struct gl_memory others;
	} *m = data;

	if (size < sizeof(*h) || h->magic != GL_MAGIC || h->version != GL_VERSION ||
	    h->length != size)
		return;
	if (h->type == GL_WELCOME && size == sizeof(m->welcome)) {
		take_welcome(&m->welcome);
	} else if (h->type == GL_REFUSED && size == sizeof(m->refused)) {
		take_refusal(&m->refused);
	} else if (h->type == GL_RESYNC && size == sizeof(*h)) {
		lease_forget_daemon();
		send_hello();
	} else if (h->type == GL_MEASURE && size == sizeof(*h)) {
		send_progress();
	} else if (h->type == GL_OTHERS && size == sizeof(m->others)) {
		take_others(&m->others);
	} else {
		lease_take(data, size);
	}
}

/* -- the thread -------------------------------------------------------------- */

/* How long to wait for something to happen, in ns; below 0: for ever. */
static int64_t wait_ns(int backoff_ms)
{
	int64_t ns = lease_pause_ns();

	if (ns >= 0)
		return ns;
	if (daemon_fd < 0)
		return backoff_ms * MS;
	return atomic_load(&memory_dirty) ? MEMORY_EVERY_NS : -1;
}

/* True: the daemon has said something, or is gone. */
static bool wait_for(int64_t ns)
{
	struct timespec time = {ns / 1000000000, ns % 1000000000};
	struct pollfd fds[2] = {{wake_fd, POLLIN, 0}, {daemon_fd, POLLIN, 0}};
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
	ssize_t n = recv(daemon_fd, data, sizeof(data), MSG_DONTWAIT);

	if (n > 0)
		take_message(data, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		lost();
}

static void speak(void)
{
	if (daemon_fd < 0)
		return;
	lease_ask();
	if ((int64_t)(now_ns() - reported_at) >= MEMORY_EVERY_NS)
		client_send_memory();
}

static bool done(void)
{
	return atomic_load(&process_ends) || refused;
}

static void *client_main(void *argument)
{
	int backoff = BACKOFF_FIRST_MS;

	(void)argument;
	drain_thread_starts();
	while (!done()) {
		if (daemon_fd < 0) {
			if (connect_daemon())
				backoff = BACKOFF_FIRST_MS;
			else
				backoff =
				    backoff * 2 < BACKOFF_LAST_MS ? backoff * 2 : BACKOFF_LAST_MS;
		}
		bool heard = wait_for(wait_ns(backoff));

		if (done())
			break;
		if (daemon_fd >= 0 && heard)
			receive();
		speak();
		lease_advance();
	}
	lost();
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
	started = wake_fd >= 0 && !pthread_create(&thread, &attributes, client_main, NULL);
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

CUresult client_need_lease(bool memory)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!start_thread())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	waiting++;
	client_wake();
	while (!result && must_wait(memory)) {
		if (refused)
			result = CUDA_ERROR_NOT_PERMITTED;
		else
			pthread_cond_wait(&changed, &lock);
	}
	waiting--;
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult client_need_welcome(void)
{
	CUresult result = CUDA_SUCCESS;
	int kept = errno;

	pthread_mutex_lock(&lock);
	if (!start_thread())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	while (!result && !welcomed) {
		if (refused)
			result = CUDA_ERROR_NOT_PERMITTED;
		else
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
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
	uint64_t limit = 0;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < welcome.n_devices && i < GL_MAX_DEVICES; i++)
		if (!memcmp(welcome.devices[i].uuid, uuid, GL_UUID_BYTES))
			limit = welcome.devices[i].bytes;
	pthread_mutex_unlock(&lock);
	return limit;
}

uint64_t client_others(const uint8_t uuid[16])
{
	uint64_t used = 0;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < others.n_devices && i < GL_MAX_DEVICES; i++)
		if (!memcmp(others.devices[i].uuid, uuid, GL_UUID_BYTES))
			used = others.devices[i].bytes + others.devices[i].fixed;
	pthread_mutex_unlock(&lock);
	return used;
}

static bool welcomed_with(uint32_t flag)
{
	bool set;

	pthread_mutex_lock(&lock);
	set = welcome.flags & flag;
	pthread_mutex_unlock(&lock);
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
	int kept = errno, failed = 0;
	bool known;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	pthread_mutex_lock(&lock);
	while (start_thread() && !welcomed && !refused && !failed)
		failed = pthread_cond_timedwait(&changed, &lock, &until);
	known = welcomed;
	pthread_mutex_unlock(&lock);
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
	if (daemon_fd >= 0)
		close(daemon_fd);
	daemon_fd = wake_fd = -1;
	started = welcomed = refused = false;
	waiting = 0;
	memset(&others, 0, sizeof(others));
	atomic_store(&memory_dirty, false);
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	lease_after_fork();
	gate_after_fork();
	memory_after_fork();
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

__attribute__((constructor)) static void prepare(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* From here on the driver may be gone: the client thread must not call it. */
__attribute__((destructor)) static void process_exits(void)
{
	atomic_store(&process_ends, true);
}
