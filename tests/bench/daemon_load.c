/* daemon_load.c: what the daemon benchmark puts on a daemon, one process for each tenant.
 *
 * daemon_load ADMIN TENANT DEVICES CLIENTS OPTIONS: sockets of the daemon; each tenant registers
 * itself as the slurmstepd of its job, becomes a user of its own and opens CLIENTS connections,
 * each with memory on its device. It reads commands, a line each, and answers each with a line:
 *   add N         start N further tenants; tenant i is job i + 1 on device i % DEVICES
 *   idle          nobody asks or holds; answers when that is so
 *   hold T D      T tenants on each of the first D devices hold a lease until it is revoked and
 *                 want the next at once; the others are idle
 *   pass T D      the same, but they release as soon as they are granted
 *   measure N     the last tenant asks for its lease N times; answers [[grant, echo], ...] in ns:
 *                 request to grant, and a round trip with a process that only answers
 *   count         {"leases": granted, "steps": STEP messages}, so far
 *   handoffs      [ns, ...] of leases since this was last asked: from just before the process that
 *                 had the device last sends RELEASED to when the next job has read its GRANT
 * At the end of its input everything ends.
 */
#include "base/wire.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_TENANTS 1024
#define MAX_CLIENTS 16
#define MAX_SAMPLES 100000
#define FIRST_UID 200000
#define MEMORY_BYTES (UINT64_C(1) << 20) /* of each client, all of it movable */
#define PREFETCH_NS 20000                /* that it says it took: 1 MiB at 50 GiB/s */
#define PAUSE_MIN_NS 1000000 /* between samples, so that none waits for the one before */
#define PAUSE_SPAN_NS 3000000

enum mode { IDLE, HOLD, PASS, MEASURE };

/* What a tenant is told by the parent, over its control socket. The answer is one byte. */
struct order {
	enum mode mode;
	int samples;
};

struct client {
	int fd;
	uint64_t held; /* epoch of its lease, else 0 */
	bool requested;
};

/* Between parent and tenants; each counter has one writer. */
struct shared {
	_Atomic uint64_t leases[MAX_TENANTS], steps[MAX_TENANTS];
	uint32_t samples[MAX_SAMPLES][2];
	_Atomic uint64_t released_at[MAX_TENANTS]; /* by device, ns; 0: nobody has since a grant */
	_Atomic uint32_t n_handoffs;
	uint32_t handoffs[MAX_SAMPLES];
};

static const char *admin_path, *tenant_path, *options;
static int n_devices, n_clients, n_tenants;
static int controls[MAX_TENANTS]; /* the parent's ends */
static int echo_fd;
static struct shared *shared;

/* Of one tenant. */
static int self;
static enum mode mode;
static bool answers; /* the parent waits for an answer */
static uint64_t last_epoch;
static uint8_t uuid[GL_UUID_BYTES];
static struct client clients[MAX_CLIENTS];

__attribute__((noreturn)) static void fail(const char *what)
{
	fprintf(stderr, "daemon_load: tenant %d: %s (%m)\n", self, what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int open_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		fail(path);
	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		fail(path);
	return fd;
}

static void send_all(int fd, const void *data, size_t size)
{
	if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		fail("send");
}

static struct gl_header header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

/* -- a tenant: its messages ---------------------------------------------------- */

static void request(struct client *client)
{
	struct gl_header message = header(GL_REQUEST, sizeof(message));

	client->requested = true;
	send_all(client->fd, &message, sizeof(message));
}

static void release(struct client *client)
{
	bool wants = mode == HOLD || mode == PASS;
	struct gl_released message = {
	    .header = header(GL_RELEASED, sizeof(message)),
	    .epoch = client->held,
	    .flags = wants ? GL_RELEASED_WANTS : 0,
	    .prefetch_bytes = MEMORY_BYTES,
	    .prefetch_ns = PREFETCH_NS,
	};

	client->held = 0;
	client->requested = wants;
	atomic_store(&shared->released_at[self % n_devices], now_ns());
	send_all(client->fd, &message, sizeof(message));
}

static void note_handoff(void)
{
	uint64_t released = atomic_exchange(&shared->released_at[self % n_devices], 0);
	uint32_t number = released ? atomic_fetch_add(&shared->n_handoffs, 1) : MAX_SAMPLES;

	if (number < MAX_SAMPLES)
		shared->handoffs[number] = (uint32_t)(now_ns() - released);
}

static void take_grant(struct client *client, const struct gl_grant *grant)
{
	client->requested = false;
	if (client->held == grant->epoch)
		return; /* only what others had displaced */
	if (grant->epoch > last_epoch) {
		last_epoch = grant->epoch;
		atomic_fetch_add(&shared->leases[self], 1);
		note_handoff();
	}
	client->held = grant->epoch;
	if (mode == IDLE || mode == PASS)
		release(client);
}

static void take_step(struct client *client, uint64_t epoch)
{
	atomic_fetch_add(&shared->steps[self], 1);
	if (!client->held) {
		client->held = epoch;
		release(client);
	}
}

static void send_memory(const struct client *client)
{
	struct gl_memory message = {.header = header(GL_MEMORY, sizeof(message)), .n_devices = 1};

	memcpy(message.devices[0].uuid, uuid, sizeof(uuid));
	message.devices[0].bytes = MEMORY_BYTES;
	send_all(client->fd, &message, sizeof(message));
}

/* Reads one message and does what it says; returns its type. */
static enum gl_type receive(struct client *client)
{
	union {
		char data[GL_MAX_MESSAGE];
		struct gl_header header;
		struct gl_welcome welcome;
		struct gl_refused refused;
		struct gl_grant grant;
		struct gl_revoke revoke;
		struct gl_epoch step;
	} m;
	struct gl_progress progress = {.header = header(GL_PROGRESS, sizeof(progress)),
	                               .calls = last_epoch};
	ssize_t n = recv(client->fd, &m, sizeof(m), 0);

	if (n <= 0)
		exit(1); /* the daemon has ended: its log says why */
	if (n < (ssize_t)sizeof(m.header) || m.header.length != n)
		fail("no header");
	if (m.header.type == GL_REFUSED)
		fail(m.refused.reason);
	else if (m.header.type == GL_WELCOME)
		memcpy(uuid, m.welcome.devices[0].uuid, sizeof(uuid));
	else if (m.header.type == GL_GRANT)
		take_grant(client, &m.grant);
	else if (m.header.type == GL_REVOKE && m.revoke.epoch == client->held)
		release(client);
	else if (m.header.type == GL_STEP)
		take_step(client, m.step.epoch);
	else if (m.header.type == GL_MEASURE)
		send_all(client->fd, &progress, sizeof(progress));
	return m.header.type;
}

static void await(struct client *client, enum gl_type type)
{
	struct pollfd fd = {client->fd, POLLIN, 0};

	do /* as the interposer waits */
		poll(&fd, 1, -1);
	while (receive(client) != type);
}

/* -- a tenant: its life -------------------------------------------------------- */

static void register_job(void)
{
	char text[1024];
	int fd = open_socket(admin_path);
	int size = snprintf(text, sizeof(text),
	                    "{\"op\": \"register\", \"job_id\": %d, \"uid\": %d, \"nodes\": 1, "
	                    "\"shards\": 1, \"gpus\": [%d], \"options\": \"%s\"}",
	                    self + 1, FIRST_UID + self, self % n_devices, options);
	ssize_t n;

	send_all(fd, text, (size_t)size);
	n = recv(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	if (!strstr(text, "\"ok\": true"))
		fail(text);
	close(fd);
}

static void become_user(void)
{
	uid_t id = (uid_t)(FIRST_UID + self);

	if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
		fail("setresuid");
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user takes it back */
}

static void open_clients(void)
{
	struct gl_hello hello = {.header = header(GL_HELLO, sizeof(hello))};

	for (int i = 0; i < n_clients; i++) {
		clients[i].fd = open_socket(tenant_path);
		send_all(clients[i].fd, &hello, sizeof(hello));
		await(&clients[i], GL_WELCOME);
		send_memory(&clients[i]);
	}
}

static void pause_somewhat(void)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	nanosleep(&(struct timespec){0, PAUSE_MIN_NS + state % PAUSE_SPAN_NS}, NULL);
}

static uint32_t time_grant(struct client *client)
{
	uint64_t start = now_ns(), took;

	mode = MEASURE; /* a grant is kept, and then given back for good */
	request(client);
	await(client, GL_GRANT);
	took = now_ns() - start;
	release(client);
	return (uint32_t)took;
}

static uint32_t time_echo(void)
{
	struct gl_header message = header(GL_REQUEST, sizeof(message));
	struct pollfd fd = {echo_fd, POLLIN, 0};
	struct gl_grant answer;
	uint64_t start = now_ns();

	send_all(echo_fd, &message, sizeof(message));
	poll(&fd, 1, -1);
	if (recv(echo_fd, &answer, sizeof(answer), 0) != sizeof(answer))
		fail("echo");
	return (uint32_t)(now_ns() - start);
}

static void measure(int samples)
{
	for (int i = 0; i < samples; i++) {
		pause_somewhat();
		shared->samples[i][0] = time_grant(&clients[0]);
		pause_somewhat();
		shared->samples[i][1] = time_echo();
	}
	mode = IDLE;
}

static void obey(int control)
{
	struct order order;

	if (recv(control, &order, sizeof(order), 0) != sizeof(order))
		exit(0); /* the parent has ended */
	mode = order.mode;
	answers = true;
	if (mode == MEASURE)
		measure(order.samples);
	for (int i = 0; i < n_clients && mode != IDLE; i++)
		if (!clients[i].held && !clients[i].requested)
			request(&clients[i]);
	for (int i = 0; i < n_clients && mode != HOLD; i++)
		if (clients[i].held)
			release(&clients[i]);
}

static bool at_rest(void)
{
	for (int i = 0; i < n_clients; i++)
		if (clients[i].held || clients[i].requested)
			return false;
	return true;
}

__attribute__((noreturn)) static void live(int control)
{
	struct pollfd fds[MAX_CLIENTS + 1] = {{control, POLLIN, 0}};

	register_job();
	become_user();
	open_clients();
	for (int i = 0; i < n_clients; i++)
		fds[1 + i] = (struct pollfd){clients[i].fd, POLLIN, 0};
	answers = true;
	while (true) {
		if (answers && (mode != IDLE || at_rest())) {
			answers = false;
			send_all(control, "", 1);
		}
		poll(fds, (nfds_t)n_clients + 1, -1);
		for (int i = 0; i < n_clients; i++)
			if (fds[1 + i].revents)
				receive(&clients[i]);
		if (fds[0].revents)
			obey(control);
	}
}

/* -- the parent ---------------------------------------------------------------- */

__attribute__((noreturn)) static void echo(int fd)
{
	struct pollfd poll_fd = {fd, POLLIN, 0};
	struct gl_grant answer = {.header = header(GL_GRANT, sizeof(answer))};
	char data[GL_MAX_MESSAGE];

	while (poll(&poll_fd, 1, -1) > 0 && recv(fd, data, sizeof(data), 0) > 0)
		send_all(fd, &answer, sizeof(answer));
	exit(0);
}

/* A child with a socket to it; returns our end. In the child: run it with its end. */
static int start(void (*run)(int))
{
	int ends[2];
	pid_t pid, parent = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) || (pid = fork()) < 0)
		fail("fork");
	if (pid) {
		close(ends[1]);
		return ends[0];
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		exit(1);
	close(ends[0]);
	for (int i = 0; i < n_tenants; i++)
		close(controls[i]);
	run(ends[1]);
	exit(0);
}

static void await_answer(int tenant)
{
	char answer;

	if (recv(controls[tenant], &answer, 1, 0) != 1)
		fail("a tenant ended");
}

static void add(int n)
{
	for (; n > 0; n--) {
		if (n_tenants == MAX_TENANTS)
			fail("too many tenants");
		self = n_tenants;
		controls[n_tenants] = start(live);
		await_answer(n_tenants++);
	}
}

static void order(int tenant, enum mode wanted, int samples)
{
	struct order told = {wanted, samples};

	send_all(controls[tenant], &told, sizeof(told));
}

/* So many tenants on each of so many devices are active, the others idle. */
static void order_all(enum mode wanted, int tenants, int devices)
{
	for (int i = 0; i < n_tenants; i++)
		order(i, i / n_devices < tenants && i % n_devices < devices ? wanted : IDLE, 0);
	for (int i = 0; i < n_tenants; i++)
		await_answer(i);
}

static void report_samples(int samples)
{
	if (!n_tenants || samples < 1 || samples > MAX_SAMPLES)
		fail("measure");
	order(n_tenants - 1, MEASURE, samples);
	await_answer(n_tenants - 1);
	for (int i = 0; i < samples; i++)
		printf("%s[%u, %u]", i ? ", " : "[", shared->samples[i][0], shared->samples[i][1]);
	printf("]\n");
}

static void report_count(void)
{
	uint64_t leases = 0, steps = 0;

	for (int i = 0; i < n_tenants; i++) {
		leases += atomic_load(&shared->leases[i]);
		steps += atomic_load(&shared->steps[i]);
	}
	printf("{\"leases\": %llu, \"steps\": %llu}\n", (unsigned long long)leases,
	       (unsigned long long)steps);
}

static void report_handoffs(void)
{
	uint32_t n = atomic_exchange(&shared->n_handoffs, 0);

	printf("[");
	for (uint32_t i = 0; i < n && i < MAX_SAMPLES; i++)
		printf("%s%u", i ? ", " : "", shared->handoffs[i]);
	printf("]\n");
}

static void serve(const char *line)
{
	int a = 0, b = 0;

	if (sscanf(line, "add %d", &a) == 1)
		add(a);
	else if (sscanf(line, "hold %d %d", &a, &b) == 2)
		order_all(HOLD, a, b);
	else if (sscanf(line, "pass %d %d", &a, &b) == 2)
		order_all(PASS, a, b);
	else if (!strncmp(line, "idle", 4))
		order_all(IDLE, 0, 0);
	else if (sscanf(line, "measure %d", &a) == 1)
		return report_samples(a);
	else if (!strncmp(line, "count", 5))
		return report_count();
	else if (!strncmp(line, "handoffs", 8))
		return report_handoffs();
	else
		fail(line);
	printf("{}\n");
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 6) {
		fprintf(stderr, "usage: daemon_load ADMIN TENANT DEVICES CLIENTS OPTIONS\n");
		return 2;
	}
	admin_path = argv[1];
	tenant_path = argv[2];
	n_devices = atoi(argv[3]);
	n_clients = atoi(argv[4]);
	options = argv[5];
	if (n_devices < 1 || n_clients < 1 || n_clients > MAX_CLIENTS)
		return 2;
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	echo_fd = start(echo);
	while (fgets(line, sizeof(line), stdin)) {
		serve(line);
		fflush(stdout);
	}
	for (int i = 0; i < n_tenants; i++)
		close(controls[i]);
	close(echo_fd);
	while (wait(NULL) > 0)
		continue;
	return 0;
}
