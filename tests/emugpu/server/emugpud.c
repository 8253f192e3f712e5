/* emugpud.c: the server that owns the emulated GPUs of one directory. */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef EMUGPU_MODELS
#define EMUGPU_MODELS "models"
#endif

#define NICE (-10)

static const char *socket_path;
static struct connection *connections; /* under the emulator's lock */

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "emugpud: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct process *process_open(uint32_t pid, uint64_t token)
{
	struct process *process = calloc(1, sizeof(*process));
	struct account *account = calloc(1, sizeof(*account));

	if (!process || !account)
		abort();
	account->pid = pid;
	account->alive = true;
	account->next = emulator.accounts;
	emulator.accounts = account;
	process->pid = pid;
	process->token = token;
	process->callback_fd = -1;
	process->delivery_fd = -1;
	process->account = account;
	pthread_cond_init(&process->changed, NULL);
	pthread_cond_init(&process->ends, NULL);
	process->next = emulator.processes;
	emulator.processes = process;
	return process;
}

/* When the last connection of a process has ended, everything that it had is freed. */
static void process_close(struct process *process)
{
	while (process->contexts)
		context_destroy(process->contexts);
	pools_close(process, NULL);
	graphs_close(process, NULL);
	vmm_close(process);
	rm_close(process);
	for (struct process **at = &emulator.processes; *at; at = &(*at)->next) {
		if (*at == process) {
			*at = process->next;
			break;
		}
	}
	process->account->alive = false;
	pthread_cond_destroy(&process->changed);
	pthread_cond_destroy(&process->ends);
	free(process);
	changed();
}

/* Finds the process of a connection. The kernel gives its pid; the token tells it from an
 * earlier process with the same pid. */
static bool hello(struct connection *c, const struct emu_request *q, const char *visible)
{
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	if (q->op != EMU_HELLO || getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return false;
	c->role = (enum emu_role)q->arg[0];
	if (c->role == EMU_ROLE_MONITOR)
		return true;
	if (c->role == EMU_ROLE_FILE)
		return (c->export = vmm_export(q->arg[4])) != NULL;
	for (struct process *p = emulator.processes; p; p = p->next)
		if (p->pid == (uint32_t)peer.pid && p->token == q->arg[1] && !p->dead)
			c->process = p;
	if (c->role == EMU_ROLE_PROCESS && c->process)
		c->process->away = false;
	if (c->role == EMU_ROLE_PROCESS && !c->process) {
		c->process = process_open((uint32_t)peer.pid, q->arg[1]);
		c->process->uid = peer.uid;
		c->process->mps = q->arg[2];
		c->process->percent = q->arg[3];
		see_devices(c->process, visible);
	}
	if (!c->process)
		return false;
	c->process->connections++;
	if (c->role == EMU_ROLE_CALLBACK)
		c->process->callback_fd = c->fd;
	if (c->role == EMU_ROLE_DELIVERY)
		c->process->delivery_fd = c->fd;
	return true;
}

void host_function(struct process *process, uint64_t function, uint64_t data)
{
	struct emu_reply call = {.r = {function, data}};
	struct emu_request done;
	int fd = process->callback_fd;

	if (fd < 0)
		return;
	process->in_host_function = true;
	pthread_mutex_unlock(&emulator.lock);
	if (send_all(fd, &call, sizeof(call)))
		(void)recv_all(fd, &done, sizeof(done));
	pthread_mutex_lock(&emulator.lock);
	process->in_host_function = false;
}

/* One exchange on the connection for host memory; gives up the lock meanwhile. out: bytes to
 * send. in: where to store bytes. One of them is NULL. */
static bool exchange(struct process *process, const struct emu_reply *head, const uint8_t *out,
                     uint8_t *in, uint64_t size)
{
	struct emu_request done;
	bool good;
	int fd;

	while (process->delivering)
		wait_change(process);
	fd = process->delivery_fd;
	if (fd < 0)
		return false;
	process->delivering = true;
	pthread_mutex_unlock(&emulator.lock);
	good = send_all(fd, head, sizeof(*head)) && (!out || send_all(fd, out, size)) &&
	       (!in || recv_all(fd, in, size)) && recv_all(fd, &done, sizeof(done));
	pthread_mutex_lock(&emulator.lock);
	process->delivering = false;
	pthread_cond_broadcast(&process->changed);
	return good;
}

/* The kernel copies between the processes if it allows that. This is faster, and several copies
 * can go on together, while a connection is served by one thread. ends: the process has no memory
 * any more, or only its first thread has ended. A device may use its host memory until the last of
 * its connections has ended. */
static bool copy_directly(struct process *process, uint64_t address, void *data, uint64_t size,
                          bool deliver, bool *ends)
{
	__typeof__(&process_vm_readv) copy =
	    deliver ? (__typeof__(&process_vm_readv))process_vm_writev : process_vm_readv;
	struct iovec ours = {data, size}, theirs = {(void *)(uintptr_t)address, size};
	pid_t pid = (pid_t)process->pid;
	ssize_t copied;

	pthread_mutex_unlock(&emulator.lock);
	copied = copy(pid, &ours, 1, &theirs, 1, 0);
	*ends = copied < 0 && errno == ESRCH;
	pthread_mutex_lock(&emulator.lock);
	return copied == (ssize_t)size;
}

/* Bytes of a process' memory, by the kernel or else by a connection. out, in: as for exchange(). */
static enum emu_status host_bytes(struct process *process, const struct emu_reply *head,
                                  const uint8_t *out, uint8_t *in, uint64_t size)
{
	void *data = out ? (void *)(uintptr_t)out : in;
	bool ends;

	if (copy_directly(process, head->r[0], data, size, out, &ends) ||
	    exchange(process, head, out, in, size) ||
	    copy_directly(process, head->r[0], data, size, out, &ends))
		return EMU_OK;
	return ends ? EMU_INVALID : EMU_BAD_ADDRESS;
}

enum emu_status host_deliver(struct process *process, uint64_t address, const uint8_t *data,
                             uint64_t size)
{
	return host_bytes(process, &(struct emu_reply){.payload = size, .r = {address}}, data, NULL,
	                  size);
}

enum emu_status host_fetch(struct process *process, uint64_t address, uint8_t *data, uint64_t size)
{
	return host_bytes(process, &(struct emu_reply){.r = {address, size}}, NULL, data, size);
}

static bool next_request(int fd, struct emu_request *q, uint8_t **payload)
{
	*payload = NULL;
	if (!recv_all(fd, q, sizeof(*q)) || q->payload > EMU_MAX_PAYLOAD)
		return false;
	if (!q->payload)
		return true;
	*payload = malloc(q->payload);
	if (*payload && recv_all(fd, *payload, q->payload))
		return true;
	free(*payload);
	return false;
}

static void serve_connection(struct connection *c)
{
	struct emu_request q;
	uint8_t *payload;
	bool go_on = true;

	while (go_on && next_request(c->fd, &q, &payload)) {
		pthread_mutex_lock(&emulator.lock);
		go_on = serve(c, &q, payload);
		pthread_mutex_unlock(&emulator.lock);
	}
}

/* A child that the process forked may hold its other connections open. */
static void process_dies(struct process *process)
{
	process->dead = true;
	for (struct context *c = process->contexts; c; c = c->next) {
		for (const struct stream *s = c->streams; s && !c->error; s = s->next)
			process->account->cut_short += s->length;
		c->error = c->error ? c->error : EMU_INVALID; /* nothing of it waits any more */
	}
	for (struct connection *c = connections; c; c = c->next)
		if (c->process == process)
			shutdown(c->fd, SHUT_RDWR);
	changed();
}

/* Says to the process, by a file, for how long it is not to connect. */
static void away_path(char *path, size_t size, const struct process *process)
{
	snprintf(path, size, "%.*s%s%u", (int)(strlen(socket_path) - strlen(EMU_SOCKET)),
	         socket_path, EMU_AWAY, process->pid);
}

void process_lets_go(struct process *process)
{
	char path[PATH_MAX];

	away_path(path, sizeof(path), process);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	process->away = true;
	for (struct connection *c = connections; c; c = c->next) {
		if (c->process == process) {
			c->gone = true;
			shutdown(c->fd, SHUT_RDWR);
		}
	}
	pthread_cond_broadcast(&process->ends);
	pthread_cond_broadcast(&process->changed);
}

void process_may_return(const struct process *process)
{
	char path[PATH_MAX];

	away_path(path, sizeof(path), process);
	unlink(path);
}

static void end_file(struct connection *c)
{
	if (!c->export)
		return;
	vmm_unexport(c->export);
	c->export = NULL;
	changed();
}

void end_closed_files(void)
{
	char byte;

	for (struct connection *c = connections; c; c = c->next)
		if (c->export && !recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT))
			end_file(c);
}

static void end_connection(struct connection *c)
{
	pthread_mutex_lock(&emulator.lock);
	for (struct connection **at = &connections; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			break;
		}
	}
	if (c->process) {
		if (c->role == EMU_ROLE_PROCESS && !c->gone)
			process_dies(c->process);
		if (c->role == EMU_ROLE_CALLBACK)
			c->process->callback_fd = -1;
		if (c->role == EMU_ROLE_DELIVERY) {
			c->process->delivery_fd = -1;
			while (c->process->delivering)
				wait_change(c->process);
		}
		if (!--c->process->connections && !c->process->away)
			process_close(c->process);
	}
	end_file(c);
	pthread_mutex_unlock(&emulator.lock);
	close(c->fd);
}

/* What a process can read, without taking it away, that has the file open. */
static bool write_file(const struct connection *c)
{
	struct emu_file file = {.mark = EMU_FILE_MARK};

	pthread_mutex_lock(&emulator.lock);
	file.id = c->export ? c->export->alloc->id : 0;
	pthread_mutex_unlock(&emulator.lock);
	return send_all(c->fd, &file, sizeof(file));
}

static void *connection_main(void *argument)
{
	struct connection c = {.fd = (int)(intptr_t)argument};
	struct emu_request q;
	uint8_t *visible;
	uint64_t devices;
	bool known;

	pthread_mutex_lock(&emulator.lock);
	c.next = connections;
	connections = &c;
	pthread_mutex_unlock(&emulator.lock);
	if (next_request(c.fd, &q, &visible)) {
		pthread_mutex_lock(&emulator.lock);
		known = hello(&c, &q, (const char *)visible);
		devices = c.process ? c.process->n_visible : emulator.n_devices;
		pthread_mutex_unlock(&emulator.lock);
		free(visible);
		if (known && send_reply(c.fd, EMU_OK, (uint64_t[5]){devices}, NULL, 0) &&
		    (c.role != EMU_ROLE_FILE || write_file(&c))) {
			if (c.role != EMU_ROLE_CALLBACK && c.role != EMU_ROLE_DELIVERY) {
				serve_connection(&c);
			} else {
				/* The engines use it; it is only stored here. */
				pthread_mutex_lock(&emulator.lock);
				while (!c.process->dead && !c.gone)
					pthread_cond_wait(&c.process->ends, &emulator.lock);
				pthread_mutex_unlock(&emulator.lock);
			}
		}
	}
	end_connection(&c);
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path)) {
		fprintf(stderr, "emugpud: %s is too long for a socket; use a shorter --dir\n",
		        path);
		exit(1);
	}
	strcpy(address.sun_path, path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, 0666) ||
	    listen(fd, 256))
		die(path);
	return fd;
}

static void *accept_main(void *argument)
{
	int listener = (int)(intptr_t)argument;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pthread_t thread;

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				usleep(10000);
			continue;
		}
		if (pthread_create(&thread, NULL, connection_main, (void *)(intptr_t)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
	return NULL;
}

static enum emu_fault fault_named(const char *name)
{
	static const char *const names[] = {[EMU_FAULT_LOST] = "lost",
	                                    [EMU_FAULT_OOM_ONCE] = "oom",
	                                    [EMU_FAULT_ECC] = "ecc",
	                                    [EMU_FAULT_REPAIRED] = "repaired",
	                                    [EMU_FAULT_CONTROLS_UNKNOWN] = "controls-unknown",
	                                    [EMU_FAULT_CONTROL_ONCE] = "control-once",
	                                    [EMU_FAULT_STOP_HANGS] = "stop-hangs",
	                                    [EMU_FAULT_OWN_SLICE] = "own-slice",
	                                    [EMU_FAULT_CHANNELS] = "channels",
	                                    [EMU_FAULT_CONTROLS_WORK] = "controls-work",
	                                    [EMU_FAULT_LOCK] = "lock",
	                                    [EMU_FAULT_SAVE] = "checkpoint",
	                                    [EMU_FAULT_RESTORE] = "restore",
	                                    [EMU_FAULT_UNLOCK] = "unlock",
	                                    [EMU_FAULT_SPINS_END] = "spins-end"};

	for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return (enum emu_fault)i;
	return 0;
}

/* `emugpud --ctl DIR stats` and `emugpud --ctl DIR fail DEVICE FAULT [VALUE]`. */
static int control(const char *dir, int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct emu_request q = {.op = EMU_HELLO, .arg = {EMU_ROLE_MONITOR}};
	struct emu_reply r;
	char *text;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" EMU_SOCKET, dir);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die(address.sun_path);
	if (!send_all(fd, &q, sizeof(q)) || !recv_all(fd, &r, sizeof(r)))
		die("hello");
	if (argc == 1 && !strcmp(argv[0], "stats")) {
		q = (struct emu_request){.op = EMU_STATS};
	} else if (argc >= 3 && argc <= 4 && !strcmp(argv[0], "fail") && fault_named(argv[2])) {
		q = (struct emu_request){.op = EMU_INJECT,
		                         .arg = {strtoul(argv[1], NULL, 10), fault_named(argv[2]),
		                                 argc == 4 ? strtoul(argv[3], NULL, 10) : 0}};
	} else {
		fprintf(stderr,
		        "usage: emugpud --ctl DIR stats | fail DEVICE FAULT [VALUE]; faults: "
		        "lost oom ecc repaired controls-unknown control-once stop-hangs "
		        "own-slice=US channels=N controls-work lock checkpoint restore "
		        "unlock spins-end\n");
		return 2;
	}
	if (!send_all(fd, &q, sizeof(q)) || !recv_all(fd, &r, sizeof(r)))
		die("request");
	text = calloc(1, r.payload + 1);
	if (!text || !recv_all(fd, text, r.payload))
		die("reply");
	if (r.payload)
		puts(text);
	free(text);
	return r.status == EMU_OK ? 0 : 1;
}

static void say_ready(int fd)
{
	if (fd >= 0 && write(fd, "ready\n", 6) == 6)
		close(fd);
}

static void serve_until_told(int listener, int ready_fd)
{
	pthread_t thread;
	sigset_t set;
	int number;

	if (pthread_create(&thread, NULL, accept_main, (void *)(intptr_t)listener))
		die("thread");
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	say_ready(ready_fd);
	sigwait(&set, &number);
	unlink(socket_path);
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* What else the machine does takes no time from a GPU. So its server goes before that, as far as it
 * may: among all sessions and in its own. */
static void hurry(void)
{
	int fd = -1;

	if (getsid(0) == getpid())
		fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		dprintf(fd, "%d", NICE);
		close(fd);
	}
	setpriority(PRIO_PROCESS, 0, NICE);
}

/* What an operation's bytes took is kept for the next one's: fresh pages cost more processor time
 * than the copy does. */
static void keep_memory(void)
{
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_ARENA_MAX, 1);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	    {"dir", 1, NULL, 'd'},      {"model", 1, NULL, 'm'}, {"devices", 1, NULL, 'n'},
	    {"ready-fd", 1, NULL, 'r'}, {"trace", 1, NULL, 't'}, {"ctl", 1, NULL, 'c'},
	    {"node", 1, NULL, 'o'},     {NULL, 0, NULL, 0},
	};
	static struct model model;
	const char *dir = NULL, *name = "emu-h200-small", *ctl = NULL, *trace = NULL;
	char path[PATH_MAX], error[512];
	int option, ready_fd = -1;
	long devices = 1;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'd':
			dir = optarg;
			break;
		case 'm':
			name = optarg;
			break;
		case 'n':
			devices = strtol(optarg, NULL, 10);
			break;
		case 'r':
			ready_fd = (int)strtol(optarg, NULL, 10);
			break;
		case 't':
			trace = optarg;
			break;
		case 'c':
			ctl = optarg;
			break;
		case 'o':
			emulator.node = (uint8_t)strtol(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	}
	if (ctl)
		return control(ctl, argc - optind, argv + optind);
	if (!dir || devices < 1 || devices > EMU_MAX_DEVICES) {
		fprintf(stderr,
		        "usage: emugpud --dir DIR [--model NAME] [--devices 1..%d] "
		        "[--ready-fd FD] [--trace FILE] [--node 0..255]\n",
		        EMU_MAX_DEVICES);
		return 2;
	}
	snprintf(path, sizeof(path), "%s%s%s", strchr(name, '/') ? "" : EMUGPU_MODELS "/", name,
	         strchr(name, '/') ? "" : ".ini");
	if (model_load(path, &model, error, sizeof(error))) {
		fprintf(stderr, "emugpud: %s\n", error);
		return 1;
	}
	if (trace &&
	    (emulator.trace = open(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
		die(trace);
	hurry();
	keep_memory();
	block_signals();
	for (long i = 0; i < devices; i++)
		if (device_start(&emulator.devices[i], &model, (uint32_t)i))
			die("no memory for the devices");
	emulator.n_devices = (uint32_t)devices;
	snprintf(path, sizeof(path), "%s/" EMU_SOCKET, dir);
	socket_path = path;
	fprintf(stderr, "emugpud: %ld x %s (EMULATED) at %s\n", devices, model.name, path);
	serve_until_told(listen_at(path), ready_fd);
	return 0;
}
