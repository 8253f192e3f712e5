/* client.c: the thread that speaks with gpu-leased for this process.
 *
 * It starts with the first call that needs it and is the only one that opens
 * and closes the gate. Threads of the program wait on `changed`.
 */
#include "shim.h"

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
#define IDLE_LOOK_MIN_NS MS
#define IDLE_LOOK_MAX_NS (5 * MS)
#define DRAIN_LOOK_NS (MS / 20)
#define LONG_DRAIN_LOOK_NS (MS / 2)
#define STUCK_NS (20 * MS) /* a drain that takes longer may wait for others of the job */
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
static struct {
	int fd;
	uint64_t epoch;      /* of the lease we hold, else 0 */
	bool requested;      /* and not yet granted */
	uint64_t idle_ns;    /* while contended, else GL_IDLE_NEVER */
	uint64_t idle_since; /* 0: not idle when last looked */
	unsigned long calls; /* submissions when last looked */
	uint64_t reported_at;
	uint64_t prefetch_bytes, prefetch_ns;
	enum gl_release_reason closing; /* why the lease is being given up, else 0 */
	uint64_t closing_since;
	bool told_stuck;
	bool let_in;        /* one call, while closing */
	bool gone;          /* drained: memory may leave as soon as nobody is inside */
	uint64_t restoring; /* since when memory comes back, for what follows, else 0 */
	bool restores_for_step;
	struct gl_grant grant; /* that is being carried out */
	bool moving;           /* memory, at the last step */
} me = {.fd = -1, .idle_ns = GL_IDLE_NEVER};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void client_wake(void)
{
	uint64_t one = 1;

	if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0) {
		/* full: it wakes anyway */
	}
}

/* -- the wire ---------------------------------------------------------------- */

static struct gl_header header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

/* The daemon that knew of us is gone: nobody waits whom we could hear of. */
static void forget_daemon(void)
{
	me.requested = false;
	me.idle_ns = me.grant.idle_ns = GL_IDLE_NEVER;
	gate_bound(false);
	if (!me.restoring)
		swap_stop(); /* nor is room made for anybody */
}

static void lost(void)
{
	if (me.fd >= 0)
		close(me.fd);
	me.fd = -1;
	forget_daemon();
	debug("no connection with gpu-leased");
}

static void send_message(const void *message, size_t size)
{
	while (me.fd >= 0 && send(me.fd, message, size, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			lost();
}

static int n_waiting(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = waiting;
	pthread_mutex_unlock(&lock);
	return n;
}

static void send_hello(void)
{
	struct gl_hello hello = {.header = header(GL_HELLO, sizeof(hello)), .held_epoch = me.epoch};

	me.requested = !me.epoch && n_waiting() > 0;
	hello.flags = me.requested ? GL_HELLO_WANTS : 0;
	hello.n_devices = memory_report(hello.devices);
	send_message(&hello, sizeof(hello));
}

static void send_memory(void)
{
	struct gl_memory memory = {.header = header(GL_MEMORY, sizeof(memory))};

	atomic_store(&memory_dirty, false);
	memory.n_devices = memory_report(memory.devices);
	send_message(&memory, sizeof(memory));
	me.reported_at = now_ns();
}

static void send_progress(void)
{
	struct gl_progress progress = {header(GL_PROGRESS, sizeof(progress)), gate_calls()};

	send_message(&progress, sizeof(progress));
}

/* Before it asks for the device the daemon knows what it will bring there. */
static void send_request(void)
{
	struct gl_header request = header(GL_REQUEST, sizeof(request));

	if (atomic_load(&memory_dirty))
		send_memory();
	me.requested = true;
	send_message(&request, sizeof(request));
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
	me.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (me.fd >= 0 && connect(me.fd, (struct sockaddr *)&address, sizeof(address))) {
		close(me.fd);
		me.fd = -1;
	}
	if (me.fd >= 0)
		send_hello();
	return me.fd >= 0;
}

/* -- the lease --------------------------------------------------------------- */

static void release(enum gl_release_reason reason, uint64_t drain_ns)
{
	struct gl_released released = {
	    .header = header(GL_RELEASED, sizeof(released)),
	    .epoch = me.epoch,
	    .reason = reason,
	    .flags = n_waiting() ? GL_RELEASED_WANTS : 0,
	    .drain_ns = drain_ns,
	    .prefetch_bytes = me.prefetch_bytes,
	    .prefetch_ns = me.prefetch_ns,
	};

	debug("release lease %llu (%s)", (unsigned long long)me.epoch,
	      reason == GL_RELEASE_IDLE ? "idle" : "revoked");
	me.epoch = 0;
	me.idle_ns = GL_IDLE_NEVER;
	me.prefetch_bytes = me.prefetch_ns = 0;
	if (atomic_load(&memory_dirty))
		send_memory();
	me.requested = released.flags;
	send_message(&released, sizeof(released));
}

/* From now on nobody enters; advance_closing() does the rest, step by step. */
static void begin_closing(enum gl_release_reason reason)
{
	gate_shut();
	gate_step(false);
	me.let_in = me.gone = false;
	me.closing = reason;
	me.closing_since = now_ns();
	me.told_stuck = false;
}

static void allow_step(void)
{
	pthread_mutex_lock(&lock);
	me.let_in = true;
	gate_step(true);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* What was submitted does not finish. It may wait for a call that waits here,
 * on another device, or in another process of the job. */
static void help_stuck(void)
{
	struct gl_epoch stuck = {header(GL_STUCK, sizeof(stuck)), me.epoch};

	if (!me.told_stuck)
		send_message(&stuck, sizeof(stuck));
	me.told_stuck = true;
	if (contexts_some_idle() && n_waiting())
		allow_step();
}

static void advance_closing(void)
{
	uint64_t passed = now_ns() - me.closing_since;
	enum gl_release_reason reason = me.closing;

	if (gate_step_pending() && !me.told_stuck) { /* the one call has not come yet */
		me.closing_since = now_ns();
		return;
	}
	if (me.gone || (gate_empty() && drained())) {
		if (me.let_in) { /* it may just have come */
			gate_step(false);
			me.let_in = false;
			return;
		}
		me.gone = true;
		if (swap_let_go() && !gate_empty())
			return;
		me.closing = 0;
		release(reason, passed);
	} else if ((int64_t)passed > STUCK_NS) {
		help_stuck();
	}
}

/* Somebody waits, or nobody does any more. */
static void set_contended(uint64_t idle_ns, uint64_t in_flight_ns)
{
	bool waited_for = idle_ns != GL_IDLE_NEVER;

	if (waited_for && me.idle_ns == GL_IDLE_NEVER && in_flight_ns)
		bound_begin(in_flight_ns);
	gate_bound(waited_for && in_flight_ns);
	me.idle_ns = idle_ns;
	me.idle_since = 0;
	me.calls = gate_calls();
}

/* swapped: bytes that have come since then in another way. Where that is how memory
 * comes, they alone tell how fast the link is. */
static void prefetch(uint64_t since, uint64_t swapped)
{
	uint64_t asked = memory_prefetch(&me.grant);

	me.prefetch_bytes = client_swaps() ? swapped : asked;
	me.prefetch_ns = me.prefetch_bytes ? now_ns() - since : 0;
}

static void send_restored(void)
{
	struct gl_restored restored = {.header = header(GL_RESTORED, sizeof(restored)),
	                               .epoch = me.epoch,
	                               .bytes = me.prefetch_bytes,
	                               .ns = me.prefetch_ns};

	me.prefetch_bytes = me.prefetch_ns = 0; /* said once */
	send_message(&restored, sizeof(restored));
}

/* The gate opens when everything that is swapped is back. */
static void advance_restoring(void)
{
	me.moving = swap_step();
	if (!swap_restored())
		return;
	if (me.restores_for_step) {
		me.restoring = 0;
		begin_closing(GL_RELEASE_REVOKED);
		allow_step();
		return;
	}
	prefetch(me.restoring, swap_copied_in());
	if (client_swaps())
		send_restored();
	me.restoring = 0;
	pthread_mutex_lock(&lock);
	gate_open();
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	set_contended(me.grant.idle_ns, me.grant.in_flight_ns);
}

static void begin_restoring(bool for_step)
{
	me.restoring = now_ns();
	me.restores_for_step = for_step;
	swap_restore();
	advance_restoring();
}

static void take_grant(const struct gl_grant *grant)
{
	bool again = me.epoch == grant->epoch;

	debug("lease %llu", (unsigned long long)grant->epoch);
	me.requested = false;
	me.epoch = grant->epoch;
	me.idle_since = 0;
	me.grant = *grant;
	if (!again) {
		begin_restoring(false);
	} else if (!me.restoring) { /* only what others had displaced: the gate is open */
		prefetch(now_ns(), 0);
		set_contended(grant->idle_ns, grant->in_flight_ns);
	}
}

/* What is not back yet stays away. */
static void take_revoke(void)
{
	if (me.restoring)
		swap_stop();
	me.restoring = 0;
	begin_closing(GL_RELEASE_REVOKED);
}

static void take_contended(const struct gl_contended *contended)
{
	me.grant.idle_ns = contended->idle_ns;
	me.grant.in_flight_ns = contended->in_flight_ns;
	if (!me.restoring)
		set_contended(contended->idle_ns, contended->in_flight_ns);
}

/* Another process of the job is stuck: hold the lease again for one call. */
static void take_step_message(const struct gl_epoch *message)
{
	if (me.epoch || me.closing)
		return;
	me.epoch = message->epoch;
	begin_restoring(true);
}

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

static void take_message(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const union {
		struct gl_welcome welcome;
		struct gl_refused refused;
		struct gl_grant grant;
		struct gl_revoke revoke;
		struct gl_contended contended;
		struct gl_memory others, evict;
		struct gl_epoch step;
	} *m = data;

	if (size < sizeof(*h) || h->magic != GL_MAGIC || h->version != GL_VERSION ||
	    h->length != size)
		return;
	if (h->type == GL_WELCOME && size == sizeof(m->welcome)) {
		take_welcome(&m->welcome);
	} else if (h->type == GL_REFUSED && size == sizeof(m->refused)) {
		take_refusal(&m->refused);
	} else if (h->type == GL_GRANT && size == sizeof(m->grant)) {
		take_grant(&m->grant);
	} else if (h->type == GL_REVOKE && size == sizeof(m->revoke)) {
		if (m->revoke.epoch == me.epoch)
			take_revoke();
	} else if (h->type == GL_CONTENDED && size == sizeof(m->contended)) {
		if (m->contended.epoch == me.epoch)
			take_contended(&m->contended);
	} else if (h->type == GL_STEP && size == sizeof(m->step)) {
		take_step_message(&m->step);
	} else if (h->type == GL_EVICT && size == sizeof(m->evict)) {
		if (!me.epoch && !me.closing)
			swap_evict(&m->evict);
	} else if (h->type == GL_RESYNC && size == sizeof(*h)) {
		forget_daemon();
		send_hello();
	} else if (h->type == GL_MEASURE && size == sizeof(*h)) {
		send_progress();
	} else if (h->type == GL_OTHERS && size == sizeof(m->others)) {
		pthread_mutex_lock(&lock);
		others = m->others;
		pthread_mutex_unlock(&lock);
	}
}

/* While contended: yield after so much idleness (no call, no work under way). */
static void look_idle(void)
{
	unsigned long calls = gate_calls();
	uint64_t now = now_ns();

	if (calls != me.calls || !device_idle()) {
		me.calls = calls;
		me.idle_since = 0;
		return;
	}
	if (!me.idle_since)
		me.idle_since = now;
	if (now - me.idle_since >= me.idle_ns)
		begin_closing(GL_RELEASE_IDLE);
}

/* -- the thread -------------------------------------------------------------- */

/* How long to wait for something to happen, in ns; below 0: for ever. */
static int64_t wait_ns(int backoff_ms)
{
	int64_t quarter = (int64_t)(me.idle_ns / 4);

	if (me.closing)
		return (int64_t)(now_ns() - me.closing_since) < STUCK_NS ? DRAIN_LOOK_NS
		                                                         : LONG_DRAIN_LOOK_NS;
	if (me.restoring || me.moving)
		return swap_pause_ns();
	if (me.fd < 0)
		return backoff_ms * MS;
	if (me.epoch && me.idle_ns != GL_IDLE_NEVER)
		return quarter < IDLE_LOOK_MIN_NS   ? IDLE_LOOK_MIN_NS
		       : quarter > IDLE_LOOK_MAX_NS ? IDLE_LOOK_MAX_NS
		                                    : quarter;
	return atomic_load(&memory_dirty) ? MEMORY_EVERY_NS : -1;
}

static void wait_for(struct pollfd *fds, int64_t ns)
{
	struct timespec time = {ns / 1000000000, ns % 1000000000};

	ppoll(fds, 2, ns < 0 ? NULL : &time, NULL);
}

static void receive(void)
{
	_Alignas(8) char data[GL_MAX_MESSAGE];
	ssize_t n = recv(me.fd, data, sizeof(data), MSG_DONTWAIT);

	if (n > 0)
		take_message(data, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		lost();
}

static void speak(void)
{
	if (me.fd < 0)
		return;
	if (!me.epoch && !me.requested && n_waiting())
		send_request();
	if (atomic_load(&memory_dirty) && (int64_t)(now_ns() - me.reported_at) >= MEMORY_EVERY_NS)
		send_memory();
}

static bool done(void)
{
	return atomic_load(&process_ends) || refused;
}

static void *client_main(void *argument)
{
	int backoff = BACKOFF_FIRST_MS;
	uint64_t drop;

	(void)argument;
	drain_thread_starts();
	while (!done()) {
		if (me.fd < 0) {
			if (connect_daemon())
				backoff = BACKOFF_FIRST_MS;
			else
				backoff =
				    backoff * 2 < BACKOFF_LAST_MS ? backoff * 2 : BACKOFF_LAST_MS;
		}
		struct pollfd fds[2] = {{wake_fd, POLLIN, 0}, {me.fd, POLLIN, 0}};

		wait_for(fds, wait_ns(backoff));
		if (fds[0].revents && read(wake_fd, &drop, sizeof(drop)) < 0) {
			/* somebody else's wake was enough */
		}
		if (done())
			break;
		if (me.fd >= 0 && fds[1].revents)
			receive();
		speak();
		if (me.restoring) {
			advance_restoring();
			continue;
		}
		me.moving = swap_step();
		if (me.closing)
			advance_closing();
		else if (me.fd >= 0 && me.epoch && me.idle_ns != GL_IDLE_NEVER)
			look_idle();
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

CUresult client_need_lease(void)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!start_thread())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	waiting++;
	client_wake();
	while (!result && atomic_load(&gate_state) == GATE_CLOSED && !gate_may_step()) {
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

bool client_oversub(void)
{
	bool oversub;

	pthread_mutex_lock(&lock);
	oversub = welcome.flags & GL_WELCOME_OVERSUB;
	pthread_mutex_unlock(&lock);
	return oversub;
}

bool client_swaps(void)
{
	bool swaps;

	pthread_mutex_lock(&lock);
	swaps = welcome.flags & GL_WELCOME_SWAP;
	pthread_mutex_unlock(&lock);
	return swaps;
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
	if (me.fd >= 0)
		close(me.fd);
	me.fd = wake_fd = -1;
	me.epoch = 0;
	me.requested = false;
	me.idle_ns = GL_IDLE_NEVER;
	me.closing = 0;
	me.restoring = 0;
	me.moving = false;
	started = welcomed = refused = false;
	waiting = 0;
	memset(&others, 0, sizeof(others));
	atomic_store(&memory_dirty, false);
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
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
