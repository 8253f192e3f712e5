/* client.c: the connection of a process with emugpud, one socket a thread. */
#include "abi/client.h"
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HIGH 768 /* the lowest number of a connection, where files may have such */

int emu_devices;
struct emu_device_info emu_info[EMU_MAX_DEVICES];
pthread_mutex_t emu_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized, forked;
static int primary = -1;
static bool callbacks_started, delivery_started;
static uint64_t token;
static uint64_t sent; /* asynchronous requests of this process, under send_lock */
static pthread_mutex_t send_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* A socket whose number no program takes for its own: threads of the interposer connect at moments
 * that a program does not know. -1: there is none. */
static int open_socket(void)
{
	int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), high;

	if (low < 0)
		return -1;
	high = fcntl(low, F_DUPFD_CLOEXEC, HIGH);
	if (high < 0)
		return low;
	close(low);
	return high;
}

/* Connects to the server and sends HELLO; returns the socket, or -1. */
static int open_connection(enum emu_role role, uint64_t memory, int *devices)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *visible = role == EMU_ROLE_PROCESS ? getenv("CUDA_VISIBLE_DEVICES") : NULL;
	struct emu_request hello = {.op = EMU_HELLO,
	                            .payload = visible ? strlen(visible) + 1 : 0,
	                            .arg = {role, token, emu_mps_server, emu_mps_percent, memory}};
	struct emu_reply reply;
	const char *dir = getenv("EMUGPU_DIR");
	int fd;

	if (!dir || snprintf(address.sun_path, sizeof(address.sun_path), "%s/" EMU_SOCKET, dir) >=
	                (int)sizeof(address.sun_path))
		return -1;
	fd = open_socket();
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    !send_all(fd, &hello, sizeof(hello)) || !send_all(fd, visible, hello.payload) ||
	    !recv_all(fd, &reply, sizeof(reply)) || reply.status) {
		close(fd);
		return -1;
	}
	if (devices)
		*devices = (int)reply.r[0];
	return fd;
}

int emu_open_file(uint64_t memory)
{
	struct emu_file file;
	int fd = open_connection(EMU_ROLE_FILE, memory, NULL);

	if (fd >= 0 && recv(fd, &file, sizeof(file), MSG_PEEK | MSG_WAITALL) == sizeof(file))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void close_thread(void *value)
{
	close((int)(intptr_t)value - 1);
}

static void make_key(void)
{
	pthread_key_create(&thread_key, close_thread);
}

static int thread_fd(void)
{
	int fd;

	pthread_once(&key_once, make_key);
	fd = (int)(intptr_t)pthread_getspecific(thread_key) - 1;
	if (fd < 0) {
		fd = open_connection(EMU_ROLE_THREAD, 0, NULL);
		if (fd >= 0)
			pthread_setspecific(thread_key, (void *)(intptr_t)(fd + 1));
	}
	return fd;
}

/* As with the real driver, what the parent had started is of no use to a child. */
static void in_child(void)
{
	if (!initialized)
		return;
	forked = true;
	close(primary);
	primary = -1;
	emu_mps_in_child();
}

CUresult emu_result(enum emu_status status)
{
	static const CUresult results[] = {
	    [EMU_OK] = CUDA_SUCCESS,
	    [EMU_INVALID] = CUDA_ERROR_INVALID_VALUE,
	    [EMU_OOM] = CUDA_ERROR_OUT_OF_MEMORY,
	    [EMU_NOT_READY] = CUDA_ERROR_NOT_READY,
	    [EMU_BAD_ADDRESS] = CUDA_ERROR_ILLEGAL_ADDRESS,
	    [EMU_LOST] = CUDA_ERROR_LAUNCH_FAILED,
	    [EMU_ECC] = CUDA_ERROR_ECC_UNCORRECTABLE,
	    [EMU_NOT_SUPPORTED] = CUDA_ERROR_NOT_SUPPORTED,
	    [EMU_ILLEGAL_STATE] = CUDA_ERROR_ILLEGAL_STATE,
	    [EMU_OS] = CUDA_ERROR_OPERATING_SYSTEM,
	};

	return status <= EMU_OS ? results[status] : CUDA_ERROR_UNKNOWN;
}

static CUresult load_devices(void)
{
	for (int i = 0; i < emu_devices; i++) {
		struct emu_request q = {.op = EMU_DEVICE, .arg = {(uint64_t)i}};
		struct emu_reply r;
		void *payload = NULL;
		CUresult result = emu_call(&q, &r, &payload);

		if (!result && r.payload == sizeof(emu_info[i]))
			memcpy(&emu_info[i], payload, sizeof(emu_info[i]));
		free(payload);
		TRY(result);
	}
	return CUDA_SUCCESS;
}

static CUresult initialize(void)
{
	CUresult result;

	if (getrandom(&token, sizeof(token), 0) != sizeof(token))
		return CUDA_ERROR_OPERATING_SYSTEM;
	TRY(emu_mps_join());
	primary = open_connection(EMU_ROLE_PROCESS, 0, &emu_devices);
	if (primary < 0) {
		fprintf(stderr, "emulated libcuda: no emugpud answers in EMUGPU_DIR=%s\n",
		        getenv("EMUGPU_DIR") ? getenv("EMUGPU_DIR") : "(unset)");
		return CUDA_ERROR_NO_DEVICE;
	}
	result = emu_devices ? load_devices() : CUDA_ERROR_NO_DEVICE;
	if (result) {
		close(primary);
		return result;
	}
	initialized = true;
	emu_devices_open();
	emu_guard_end();
	pthread_atfork(NULL, NULL, in_child);
	return CUDA_SUCCESS;
}

CUresult emu_initialize(void)
{
	CUresult result = CUDA_SUCCESS;

	if (forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&init_lock);
	if (!initialized)
		result = initialize();
	pthread_mutex_unlock(&init_lock);
	return result;
}

CUresult emu_ready(void)
{
	return initialized && !forked ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* The connections of this process have ended. If it was checkpointed for a while and has let go of
 * them, waits until it may connect again, perhaps on another node. Returns whether it has. */
static bool come_back(void)
{
	char path[128], byte;
	bool good;

	snprintf(path, sizeof(path), "%s/" EMU_AWAY "%d", getenv("EMUGPU_DIR"), getpid());
	while (!access(path, F_OK))
		usleep(2000);
	pthread_mutex_lock(&init_lock);
	if (recv(primary, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
		close(primary);
		primary = open_connection(EMU_ROLE_PROCESS, 0, NULL);
		callbacks_started = delivery_started = false;
	}
	good = primary >= 0;
	pthread_mutex_unlock(&init_lock);
	close(thread_fd());
	pthread_setspecific(thread_key, NULL);
	return good;
}

/* Receives what comes with a reply: at `into`, which has room for `room` bytes, or else at
 * *payload, for who wants it to free. */
static bool take_payload(int fd, uint64_t size, void *into, uint64_t room, void **payload)
{
	void *data;

	if (into)
		return size == room && recv_all(fd, into, size);
	data = malloc(size);
	if (!data || !recv_all(fd, data, size)) {
		free(data);
		return false;
	}
	if (payload)
		*payload = data;
	else
		free(data);
	return true;
}

/* Sends a request and waits for the reply. The thread is not cancelled meanwhile, since a
 * request that was sent in part would break the connection. */
static CUresult ask(const struct emu_request *request, const void *sends, void *into,
                    struct emu_reply *reply, void **payload)
{
	struct emu_request q = *request;
	struct emu_reply r = {0};
	int fd = thread_fd();

	if (payload)
		*payload = NULL;
	pthread_mutex_lock(&send_lock);
	q.sent = sent;
	pthread_mutex_unlock(&send_lock);
	while (fd < 0 || !send_all(fd, &q, sizeof(q)) || !send_all(fd, sends, q.payload) ||
	       !recv_all(fd, &r, sizeof(r))) {
		if (fd < 0 || !come_back())
			return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; /* the server is gone */
		fd = thread_fd();
	}
	if (r.payload && !take_payload(fd, r.payload, into, request->arg[2], payload))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	if (reply)
		*reply = r;
	if (r.status == EMU_BAD_ADDRESS)
		emu_mps_fault();
	return emu_result((enum emu_status)r.status);
}

CUresult emu_call(const struct emu_request *request, struct emu_reply *reply, void **payload)
{
	CUresult result;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	emu_enter();
	result = ask(request, NULL, NULL, reply, payload);
	emu_leave();
	pthread_setcancelstate(cancel, &cancel);
	return result;
}

CUresult emu_read(const struct emu_request *request, void *into)
{
	CUresult result;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	emu_enter();
	result = ask(request, NULL, into, NULL, NULL);
	emu_leave();
	pthread_setcancelstate(cancel, &cancel);
	return result;
}

CUresult emu_checkpoint_call(const struct emu_request *request, const void *in,
                             struct emu_reply *reply)
{
	CUresult result;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = ask(request, in, NULL, reply, NULL);
	pthread_setcancelstate(cancel, &cancel);
	return result;
}

CUresult emu_kernel_call(uint64_t number, const void *in, uint64_t size, void **payload)
{
	struct emu_request q = {.op = EMU_RM, .payload = size, .arg = {number}};
	struct emu_reply r = {0};
	CUresult result;
	int cancel;

	*payload = NULL;
	if (forked || !initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = ask(&q, in, NULL, &r, payload);
	pthread_setcancelstate(cancel, &cancel);
	if (!result && r.payload == size)
		return CUDA_SUCCESS;
	free(*payload);
	*payload = NULL;
	return CUDA_ERROR_UNKNOWN;
}

static CUresult post(struct emu_request *request, const void *payload)
{
	int fd = thread_fd();

	if (fd < 0)
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	pthread_mutex_lock(&send_lock);
	request->sent = sent++;
	pthread_mutex_unlock(&send_lock);
	while (!send_all(fd, request, sizeof(*request)) ||
	       !send_all(fd, payload, request->payload)) {
		if (!come_back())
			return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
		fd = thread_fd();
		if (fd < 0)
			return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	return CUDA_SUCCESS;
}

CUresult emu_post(struct emu_request *request, const void *payload)
{
	CUresult result;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	emu_enter();
	result = post(request, payload);
	emu_leave();
	pthread_setcancelstate(cancel, &cancel);
	return result;
}

/* Runs the functions of cuLaunchHostFunc when the server says so. */
static void *callback_main(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct emu_reply call;
	struct emu_request done = {.op = EMU_HOST_CALLBACK};

	while (recv_all(fd, &call, sizeof(call))) {
		((CUhostFn)(uintptr_t)call.r[0])((void *)(uintptr_t)call.r[1]);
		if (!send_all(fd, &done, sizeof(done)))
			break;
	}
	close(fd);
	return NULL;
}

/* Takes and gives the bytes of copies that the program does not wait for. */
static void *delivery_main(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct emu_reply head;
	struct emu_request done = {.op = EMU_HOST_CALLBACK};

	/* If the memory does not exist any more this ends with EFAULT, which the server takes
	 * for a bad address. */
	while (recv_all(fd, &head, sizeof(head))) {
		void *host = (void *)(uintptr_t)head.r[0];

		if (!send_all(fd, host, head.r[1]) || !recv_all(fd, host, head.payload) ||
		    !send_all(fd, &done, sizeof(done)))
			break;
	}
	close(fd);
	return NULL;
}

/* Starts, once in each process, a thread that serves a connection on which the server sends
 * requests. */
static CUresult start_thread(enum emu_role role, void *(*body)(void *), bool *started)
{
	CUresult result = CUDA_SUCCESS;
	pthread_t thread;

	pthread_mutex_lock(&init_lock);
	if (!*started) {
		int fd = open_connection(role, 0, NULL);

		if (fd < 0 || pthread_create(&thread, NULL, body, (void *)(intptr_t)fd))
			result = CUDA_ERROR_OPERATING_SYSTEM;
		else
			pthread_detach(thread);
		*started = !result;
	}
	pthread_mutex_unlock(&init_lock);
	return result;
}

CUresult emu_start_callbacks(void)
{
	return start_thread(EMU_ROLE_CALLBACK, callback_main, &callbacks_started);
}

CUresult emu_start_delivery(void)
{
	return start_thread(EMU_ROLE_DELIVERY, delivery_main, &delivery_started);
}
