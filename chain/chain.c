/* chain.c: a component's side of a chain. */
#include "driver.h"
#include "holds.h"
#include "message.h"
#include "parts.h"
#include "quick.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEEPER "gpu-lease-chain"
#define TRIES 20    /* at joining; two keepers that start at once may both give way */
#define LOOK_MS 500 /* between looks at whether the keeper is there, while something is awaited */
#define ANSWER_MS 60000 /* how long a call that waits for nothing else waits for the keeper */

extern char **environ;

struct gpu_lease_chain {
	/* What each call needs is one line. */
	_Alignas(CHAIN_LINE) struct gpu_lease_chain *next;
	uint64_t serial; /* among those that this process has opened, from 1 on */
	pid_t pid;
	atomic_uint inside; /* long calls under way */
	atomic_uint later;  /* host functions that have not run yet */
	atomic_bool closed; /* those that wait give up */
	struct chain_holds holds;
	const struct chain_cuda *cuda;
	CUcontext context;    /* for threads that have none */
	pthread_mutex_t lock; /* of the opening of memory, and of questions to the keeper */
	int keeper;
	bool unheard; /* the keeper has been asked, and its answer was not awaited */
	struct chain_parts parts;
};

/* Of the list, and of what this process holds. Nobody waits who has it. */
static pthread_mutex_t chains_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_lease_chain *chains;
static pid_t *self; /* this process; 0 in a forked child that has opened none */
static _Thread_local uint64_t
    met; /* the chain for which this thread was last seen to have a context */
static _Thread_local char reason[256];

const char *gpu_lease_chain_error(void)
{
	return reason;
}

__attribute__((format(printf, 2, 3))) static int fail(int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return status;
}

static int fail_cuda(const char *what, CUresult result)
{
	return fail(GPU_LEASE_CHAIN_CUDA,
	            "%s failed with CUDA error %d; if the GPU or its context is lost, start the "
	            "component again",
	            what, (int)result);
}

static int fail_ended(void)
{
	return fail(GPU_LEASE_CHAIN_ENDED,
	            "the chain's keeper (" KEEPER ") has ended, and with it the pool; close the "
	            "chain and open it again");
}

/* -- joining --------------------------------------------------------------------------------- */

/* A child has the parent's descriptor, by which the keeper sees that the parent lives. */
static void in_child(void)
{
	pthread_mutex_init(&chains_lock, NULL);
	for (struct gpu_lease_chain *c = chains; c; c = c->next) {
		if (c->keeper >= 0)
			close(c->keeper);
		c->keeper = -1;
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* A page that the kernel empties in each child, so that a call need not ask it who calls. */
static void make_self(void)
{
	void *page =
	    mmap(NULL, sizeof(*self), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page != MAP_FAILED && !madvise(page, sizeof(*self), MADV_WIPEONFORK))
		self = page;
}

/* Returns false if the host has no memory. */
static bool know_self(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_self);
	if (self)
		*self = getpid();
	return self;
}

static bool is_open(const struct gpu_lease_chain *chain)
{
	const struct gpu_lease_chain *open = chains;

	while (open && open != chain)
		open = open->next;
	return open;
}

/* Takes the lock, if the chain is open: until give_open() it stays so. */
static int take_open(const struct gpu_lease_chain *chain)
{
	bool open;

	pthread_mutex_lock(&chains_lock);
	open = is_open(chain);
	if (open && chain->pid == *self)
		return 0;
	pthread_mutex_unlock(&chains_lock);
	if (!open)
		return fail(GPU_LEASE_CHAIN_CLOSED, "the chain has been closed; open it again");
	return fail(GPU_LEASE_CHAIN_FORKED,
	            "the chain was opened before a fork; open it in the child, or start the child "
	            "by another program");
}

static void give_open(void)
{
	pthread_mutex_unlock(&chains_lock);
}

/* Begins a long call: until leave() the chain's memory stays, also if another thread closes it. */
static int enter(struct gpu_lease_chain *chain)
{
	int status = take_open(chain);

	if (status)
		return status;
	atomic_fetch_add(&chain->inside, 1);
	give_open();
	return 0;
}

static int leave(struct gpu_lease_chain *chain, int status)
{
	atomic_fetch_sub(&chain->inside, 1);
	return status;
}

/* The keeper's program lies beside this library. Returns false if the path is too long. */
static bool find_keeper(char path[PATH_MAX])
{
	const char *slash;
	Dl_info info;

	if (!dladdr((void *)find_keeper, &info) || !info.dli_fname)
		return false;
	slash = strrchr(info.dli_fname, '/');
	return snprintf(path, PATH_MAX, "%.*s" KEEPER,
	                slash ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname) < PATH_MAX;
}

/* The keeper says on its standard output why it cannot be one. */
static int hear_keeper(int output, pid_t pid)
{
	char said[200] = "";
	size_t n = 0;
	ssize_t more;
	int status = 0;

	while (n < sizeof(said) - 1 && (more = read(output, said + n, sizeof(said) - 1 - n)) > 0)
		n += (size_t)more;
	close(output);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	said[n] = 0;
	return n ? fail(GPU_LEASE_CHAIN_SYSTEM, "the chain's keeper cannot start: %s", said) : 0;
}

static int start_keeper(int device, uint64_t pool_bytes, uint32_t keep_s)
{
	char path[PATH_MAX], numbers[3][24];
	char *arguments[] = {path, numbers[0], numbers[1], numbers[2], NULL};
	posix_spawn_file_actions_t actions;
	int output[2], error;
	pid_t pid;

	if (!find_keeper(path) || pipe2(output, O_CLOEXEC))
		return fail(GPU_LEASE_CHAIN_SYSTEM, "the chain's keeper cannot start: %s",
		            strerror(errno));
	snprintf(numbers[0], sizeof(numbers[0]), "%d", device);
	snprintf(numbers[1], sizeof(numbers[1]), "%llu", (unsigned long long)pool_bytes);
	snprintf(numbers[2], sizeof(numbers[2]), "%u", keep_s);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
	error = posix_spawn(&pid, path, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(output[1]);
	if (!error)
		return hear_keeper(output[0], pid);
	close(output[0]);
	return fail(GPU_LEASE_CHAIN_SYSTEM, "the chain's keeper %s cannot start: %s", path,
	            strerror(error));
}

/* Returns 0 with chain->holds.table NULL if the keeper has ended meanwhile. */
static int join(struct gpu_lease_chain *chain, int end)
{
	struct chain_hello hello;
	int file;
	void *table;

	if (!message_receive(end, &hello, sizeof(hello), &file)) {
		close(end);
		return 0;
	}
	if (memcmp(hello.mark, CHAIN_MARK, sizeof(hello.mark))) {
		close(end);
		if (file >= 0)
			close(file);
		return fail(GPU_LEASE_CHAIN_SYSTEM,
		            "the chain's keeper is of another release of gpu-lease; let the "
		            "components that began before the update end first");
	}
	if (hello.status || file < 0) {
		close(end);
		return fail(GPU_LEASE_CHAIN_LIMIT,
		            "the chain has %d components already; let one "
		            "of them end first",
		            CHAIN_MEMBERS);
	}
	table =
	    mmap(NULL, sizeof(*chain->holds.table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (table == MAP_FAILED) {
		close(end);
		return fail(GPU_LEASE_CHAIN_SYSTEM, "the chain's table cannot be mapped: %s",
		            strerror(errno));
	}
	chain->holds.table = table;
	chain->holds.member = hello.member;
	chain->keeper = end;
	return 0;
}

/* Two keepers that have started at once both give way. */
static void pause_some(void)
{
	struct timespec time = {0, 1000000};
	uint8_t some = 0;

	if (getrandom(&some, sizeof(some), 0) == sizeof(some))
		time.tv_nsec += some * 400000L;
	nanosleep(&time, NULL);
}

/* As CUDA's runtime does: a program that has used nothing yet has the primary context of the first
 * device. */
static CUresult make_context(const struct chain_cuda *cuda)
{
	CUcontext context;
	CUdevice device;
	CUresult result = cuda->cuInit(0);

	if (!result)
		result = cuda->cuCtxGetCurrent(&context);
	if (result || context)
		return result;
	result = cuda->cuDeviceGet(&device, 0);
	if (!result)
		result = cuda->cuDevicePrimaryCtxRetain(&context, device);
	return result ? result : cuda->cuCtxSetCurrent(context);
}

/* The calling thread has a context from here on. */
static void have_context(const struct gpu_lease_chain *chain)
{
	CUcontext context;

	if (!chain->cuda->cuCtxGetCurrent(&context) && !context)
		chain->cuda->cuCtxSetCurrent(chain->context);
	met = chain->serial;
}

static int find_chain(struct gpu_lease_chain *chain, uint64_t pool_bytes, uint32_t keep_s)
{
	int (*meet)(int *) = NULL, end, status = 0, result;
	CUdevice device;

	*(void **)&meet = dlsym(RTLD_DEFAULT, "gpu_lease_chain_meet");
	if (!meet)
		return fail(GPU_LEASE_CHAIN_OUTSIDE, "this process is in no job that shares a GPU; "
		                                     "start it in a job with --gres=shard:1");
	result = (int)make_context(chain->cuda);
	if (!result)
		result = (int)chain->cuda->cuCtxGetCurrent(&chain->context);
	if (!result)
		result = (int)chain->cuda->cuCtxGetDevice(&device);
	if (result)
		return fail_cuda("making a context on the GPU", (CUresult)result);
	for (int i = 0; i < TRIES && !status && !chain->holds.table; i++) {
		result = meet(&end);
		if (!result)
			status = join(chain, end);
		else if (result == CUDA_ERROR_INVALID_VALUE)
			status = start_keeper(device, pool_bytes, keep_s);
		else
			return fail_cuda("asking gpu-leased for the chain", (CUresult)result);
		if (!status && !chain->holds.table && i)
			pause_some();
	}
	return status || chain->holds.table ? status : fail_ended();
}

int gpu_lease_chain_open(struct gpu_lease_chain **out, uint64_t pool_bytes, uint32_t keep_s)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static _Atomic uint64_t opened;
	struct gpu_lease_chain *chain = aligned_alloc(CHAIN_LINE, sizeof(*chain));
	int status;

	if (!chain)
		return fail(GPU_LEASE_CHAIN_SYSTEM, "the host has no memory");
	memset(chain, 0, sizeof(*chain));
	chain->serial = atomic_fetch_add(&opened, 1) + 1;
	chain->cuda = chain_cuda();
	pthread_mutex_init(&chain->lock, NULL);
	chain->pid = getpid();
	if (!chain->cuda)
		status = fail(GPU_LEASE_CHAIN_OUTSIDE, "there is no CUDA driver here");
	else if (!know_self())
		status = fail(GPU_LEASE_CHAIN_SYSTEM, "the host has no memory");
	else
		status = find_chain(chain, pool_bytes, keep_s);
	if (status) {
		free(chain);
		return status;
	}
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&chains_lock);
	chain->next = chains;
	chains = chain;
	pthread_mutex_unlock(&chains_lock);
	*out = chain;
	return 0;
}

/* Returns whether it was open: only one of those who close it does. */
static bool leave_list(const struct gpu_lease_chain *chain)
{
	struct gpu_lease_chain **at = &chains;
	bool open;

	pthread_mutex_lock(&chains_lock);
	open = is_open(chain) && chain->pid == *self;
	while (open && *at != chain)
		at = &(*at)->next;
	if (open)
		*at = chain->next;
	pthread_mutex_unlock(&chains_lock);
	return open;
}

static bool is_lost(const struct gpu_lease_chain *chain)
{
	CUcontext before = NULL;
	bool lost;

	chain->cuda->cuCtxGetCurrent(&before);
	lost = chain->cuda->cuCtxSetCurrent(chain->context) || chain_context_is_lost(chain->cuda);
	chain->cuda->cuCtxSetCurrent(before);
	return lost;
}

/* Waits for calls of other threads, and for what follows from the end of a stream's work. The
 * driver calls none of that once the context is lost: then returns false. */
static bool wait_for_others(const struct gpu_lease_chain *chain)
{
	const struct timespec time = {0, 1000000};

	for (int looks = 1; atomic_load(&chain->inside) || atomic_load(&chain->later); looks++) {
		if (!atomic_load(&chain->inside) && !(looks % LOOK_MS) && is_lost(chain))
			return false;
		nanosleep(&time, NULL);
	}
	return true;
}

/* The keeper gives back what this process still holds. */
void gpu_lease_chain_close(struct gpu_lease_chain *chain)
{
	bool ended;

	if (!leave_list(chain))
		return;
	atomic_store(&chain->closed, true);
	table_changed(chain->holds.table);
	ended = wait_for_others(chain);
	for (int i = 0; i < CHAIN_BUFFERS; i++)
		if (chain->holds.of[i].birth)
			chain->cuda->cuIpcCloseMemHandle(chain->holds.of[i].at);
	parts_end(&chain->parts, chain->cuda);
	close(chain->keeper);
	if (!ended) /* the driver may be in the middle of such a call */
		return;
	munmap(chain->holds.table, sizeof(*chain->holds.table));
	free(chain);
}

/* -- waiting ----------------------------------------------------------------------------------- */

static bool keeper_is_there(const struct gpu_lease_chain *chain)
{
	char byte;

	return recv(chain->keeper, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

/* How a call waits: it looks, says that it will wait, looks again, and waits. */
struct patience {
	int64_t ms; /* 0: not at all; below 0: for ever */
	int64_t since;
	bool said;
	uint32_t seen; /* of table_will_wait() */
};

static struct patience patience_of(int64_t ms)
{
	return (struct patience){.ms = ms, .since = now_ms()};
}

/* How long to wait before the next look. instead_of_0: ms of patience for what is waited for also
 * by who does not wait. Returns 0: the patience is at its end. */
static int left_ms(const struct patience *patience, int64_t instead_of_0)
{
	int64_t ms = patience->ms ? patience->ms : instead_of_0;
	int64_t left = ms < 0 ? LOOK_MS : patience->since + ms - now_ms();

	return left < 0 ? 0 : left < LOOK_MS ? (int)left : LOOK_MS;
}

static int check_closed(const struct gpu_lease_chain *chain)
{
	if (!atomic_load(&chain->closed))
		return 0;
	return fail(GPU_LEASE_CHAIN_CLOSED, "the chain was closed by another thread");
}

/* What the caller has looked for was not there. Returns 0: it is to look again; `late` if the
 * patience is at its end; or why no change will come. */
static int wait_for_change(const struct gpu_lease_chain *chain, struct patience *patience, int late)
{
	int left = left_ms(patience, 0), status = check_closed(chain);

	if (status)
		return status;
	if (!left)
		return late;
	if (!keeper_is_there(chain))
		return fail_ended();
	if (patience->said)
		table_wait(chain->holds.table, patience->seen, left);
	else
		patience->seen = table_will_wait(chain->holds.table);
	patience->said = !patience->said;
	return 0;
}

/* -- questions to the keeper ------------------------------------------------------------------- */

static int fail_silent(void)
{
	return fail(GPU_LEASE_CHAIN_LATE,
	            "the chain's keeper (" KEEPER ") has not answered in time: it is stopped, or "
	            "waits for the GPU; let it run, and try again");
}

/* Takes the lock, which another thread may have that waits for the keeper. */
static int take_lock(struct gpu_lease_chain *chain, const struct patience *patience)
{
	struct timespec until;
	int left;

	do {
		left = left_ms(patience, ANSWER_MS);
		if (!left)
			return fail_silent();
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += left * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
	} while (pthread_mutex_timedlock(&chain->lock, &until));
	return 0;
}

/* Caller has the lock. */
static int hear(struct gpu_lease_chain *chain, struct chain_grow *answer,
                const struct patience *patience)
{
	struct pollfd readable = {chain->keeper, POLLIN, 0};
	int left, status, none;

	do {
		left = left_ms(patience, ANSWER_MS);
		status = left ? check_closed(chain) : fail_silent();
		if (status)
			return status;
	} while (poll(&readable, 1, left) <= 0);
	chain->unheard = false;
	return message_receive(chain->keeper, answer, sizeof(*answer), &none) ? 0 : fail_ended();
}

/* The answer to an earlier question comes first. */
static int ask_keeper(struct gpu_lease_chain *chain, struct chain_grow *message,
                      const struct patience *patience)
{
	struct chain_grow earlier;
	int status = take_lock(chain, patience);

	if (status)
		return status;
	if (chain->unheard)
		status = hear(chain, &earlier, patience);
	if (!status && !message_send(chain->keeper, message, sizeof(*message), -1))
		status = fail_ended();
	if (!status) {
		chain->unheard = true;
		status = hear(chain, message, patience);
	}
	pthread_mutex_unlock(&chain->lock);
	return status;
}

/* Whether the buffer's memory is open, or the keeper runs, of whom it is to be had. */
static int check_memory(struct gpu_lease_chain *chain, uint32_t index,
                        const struct patience *patience)
{
	struct chain_grow nothing = {0};

	return holds_open(&chain->holds, index) ? 0 : ask_keeper(chain, &nothing, patience);
}

/* -- memory of the pool in this process -------------------------------------------------------- */

/* Opens the memory of a buffer that this process holds. */
static CUresult open_memory(struct gpu_lease_chain *chain, uint32_t index)
{
	uint32_t birth = atomic_load(&chain->holds.table->buffers[index].birth);
	struct chain_held *held = &chain->holds.of[index];
	CUipcMemHandle memory;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&chain->lock);
	if (held->birth && held->birth != birth) {
		chain->cuda->cuIpcCloseMemHandle(held->at);
		held->birth = 0;
	}
	if (!held->birth) {
		memcpy(&memory, chain->holds.table->memory[index], sizeof(memory));
		result = chain->cuda->cuIpcOpenMemHandle(&held->at, memory,
		                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		if (!result)
			atomic_store(&held->birth, birth);
	}
	pthread_mutex_unlock(&chain->lock);
	return result;
}

static bool let_go(struct gpu_lease_chain *chain, uint32_t index)
{
	bool held;

	pthread_mutex_lock(&chains_lock);
	held = holds_end(&chain->holds, index);
	pthread_mutex_unlock(&chains_lock);
	return held;
}

static struct gpu_lease_buffer opened(const struct gpu_lease_chain *chain, uint32_t index,
                                      uint64_t size)
{
	return (struct gpu_lease_buffer){chain->holds.of[index].at, size, index, 0};
}

/* This process holds the buffer already. */
static int give_out(struct gpu_lease_chain *chain, uint32_t index, uint64_t size,
                    struct gpu_lease_buffer *out)
{
	CUresult result = CUDA_SUCCESS;

	have_context(chain);
	if (!holds_open(&chain->holds, index))
		result = open_memory(chain, index);
	if (result) {
		let_go(chain, index);
		return keeper_is_there(chain) ? fail_cuda("opening memory of the pool", result)
		                              : fail_ended();
	}
	*out = opened(chain, index, size);
	return 0;
}

/* -- allocating -------------------------------------------------------------------------------- */

/* Holds a free buffer. Returns its number, or CHAIN_BUFFERS. */
static uint32_t hold_free(struct gpu_lease_chain *chain, uint64_t size, bool close)
{
	uint32_t index;

	pthread_mutex_lock(&chains_lock);
	do
		index = holds_find(&chain->holds, size, close);
	while (index < CHAIN_BUFFERS && !holds_begin(&chain->holds, index, size));
	pthread_mutex_unlock(&chains_lock);
	return index;
}

static int grow(struct gpu_lease_chain *chain, uint64_t size, const struct patience *patience)
{
	struct chain_grow message = {.size = size};
	int status = ask_keeper(chain, &message, patience);

	if (status)
		return status;
	if (message.status == GPU_LEASE_CHAIN_CUDA && message.cuda == CUDA_ERROR_INVALID_VALUE)
		return fail(GPU_LEASE_CHAIN_CUDA,
		            "the job's memory is managed, which processes cannot share; start the "
		            "job with memory:swap in --gpu-share");
	if (message.status == GPU_LEASE_CHAIN_CUDA)
		return fail_cuda("allocating memory of the pool", (CUresult)message.cuda);
	return (int)message.status;
}

static int fail_full(const struct gpu_lease_chain *chain)
{
	return fail(GPU_LEASE_CHAIN_FULL,
	            "the chain's pool is full: %llu bytes at most; drop buffers, wait, or open the "
	            "chain with a larger pool",
	            (unsigned long long)chain->holds.table->limit);
}

static int check_size(const struct gpu_lease_chain *chain, uint64_t size)
{
	if (size && size <= chain->holds.table->limit)
		return 0;
	return fail(GPU_LEASE_CHAIN_LIMIT,
	            "a buffer has from 1 to %llu bytes, which the chain's pool has; open the chain "
	            "with a larger pool",
	            (unsigned long long)chain->holds.table->limit);
}

static int give_new(struct gpu_lease_chain *chain, uint32_t index, uint64_t size,
                    const struct patience *patience, struct gpu_lease_buffer *out)
{
	int status = check_memory(chain, index, patience);

	if (status)
		let_go(chain, index);
	return status ? status : give_out(chain, index, size, out);
}

static int alloc(struct gpu_lease_chain *chain, uint64_t size, int64_t timeout_ms,
                 struct gpu_lease_buffer *out)
{
	struct patience patience = patience_of(timeout_ms);
	uint32_t index;
	int status;

	for (;;) {
		index = hold_free(chain, size, true);
		status = index < CHAIN_BUFFERS ? 0 : grow(chain, size, &patience);
		if (status == GPU_LEASE_CHAIN_FULL)
			index = hold_free(chain, size, false);
		if (index < CHAIN_BUFFERS)
			return give_new(chain, index, size, &patience, out);
		if (status && status != GPU_LEASE_CHAIN_FULL)
			return status;
		if (status)
			status = wait_for_change(chain, &patience, GPU_LEASE_CHAIN_FULL);
		if (status)
			return status == GPU_LEASE_CHAIN_FULL ? fail_full(chain) : status;
	}
}

/* Caller has the lock. */
static int quick_alloc(struct gpu_lease_chain *chain, uint64_t size, struct gpu_lease_buffer *out)
{
	struct chain_holds *holds = &chain->holds;
	int status = check_size(chain, size);
	uint32_t index;

	if (status)
		return status;
	if (met != chain->serial)
		return GPU_LEASE_CHAIN_LONG;
	index = holds_find(holds, size, true);
	if (index == CHAIN_BUFFERS || !holds_open(holds, index) || !holds_begin(holds, index, size))
		return GPU_LEASE_CHAIN_LONG;
	*out = opened(chain, index, size);
	if (holds_open(holds, index))
		return 0;
	holds_end(holds, index); /* it got other memory since */
	return GPU_LEASE_CHAIN_LONG;
}

int gpu_lease_chain_quick_alloc(struct gpu_lease_chain *chain, uint64_t size,
                                struct gpu_lease_buffer *out)
{
	int status = take_open(chain);

	if (status)
		return status;
	status = quick_alloc(chain, size, out);
	give_open();
	return status;
}

int gpu_lease_chain_alloc(struct gpu_lease_chain *chain, uint64_t size, int64_t timeout_ms,
                          struct gpu_lease_buffer *out)
{
	int status = gpu_lease_chain_quick_alloc(chain, size, out);

	if (status == GPU_LEASE_CHAIN_LONG)
		status = enter(chain);
	else
		return status;
	if (!status)
		status = leave(chain, alloc(chain, size, timeout_ms, out));
	return status == GPU_LEASE_CHAIN_LATE ? GPU_LEASE_CHAIN_FULL : status;
}

/* -- what follows from the end of a stream's work ---------------------------------------------- */

/* The end of the work of a put (put_number above 0) or of a drop. */
struct later {
	struct gpu_lease_chain *chain;
	uint64_t put_number;
	uint32_t index;
};

/* The driver's thread calls it. */
static void CUDA_CB work_ended(void *argument)
{
	struct later *later = argument;

	if (later->put_number)
		holds_ready(&later->chain->holds, later->index, later->put_number);
	else
		let_go(later->chain, later->index);
	atomic_fetch_sub(&later->chain->later, 1);
	free(later);
}

static int do_later(struct gpu_lease_chain *chain, uint32_t index, uint64_t put_number,
                    void *stream)
{
	struct later *later = malloc(sizeof(*later));
	CUresult result;

	if (!later)
		return fail(GPU_LEASE_CHAIN_SYSTEM, "the host has no memory");
	*later = (struct later){chain, put_number, index};
	atomic_fetch_add(&chain->later, 1);
	result = chain->cuda->cuLaunchHostFunc(stream, work_ended, later);
	if (!result)
		return 0;
	atomic_fetch_sub(&chain->later, 1);
	free(later);
	return fail_cuda("asking for the end of the stream's work", result);
}

static int wait_for_stream(const struct gpu_lease_chain *chain, void *stream,
                           enum gpu_lease_chain_when when)
{
	CUresult result = CUDA_SUCCESS;

	if ((unsigned int)when > GPU_LEASE_CHAIN_LATER)
		return fail(GPU_LEASE_CHAIN_INVALID,
		            "%d does not say when the work is over: it is 0 (wait), 1 (now) or 2 "
		            "(later)",
		            (int)when);
	if (when != GPU_LEASE_CHAIN_NOW)
		have_context(chain);
	if (when == GPU_LEASE_CHAIN_WAIT)
		result = chain->cuda->cuStreamSynchronize(stream);
	return result ? fail_cuda("waiting for the stream", result) : 0;
}

/* -- giving away and getting ------------------------------------------------------------------- */

static int fail_dropped(void)
{
	return fail(GPU_LEASE_CHAIN_DROPPED, "this component does not hold the buffer: it has "
	                                     "dropped it or put it before");
}

static int fail_takers(void)
{
	return fail(GPU_LEASE_CHAIN_LIMIT, "a buffer is put for 1 to %d takers", CHAIN_TAKERS);
}

/* Caller has the lock. */
static int give(struct gpu_lease_chain *chain, uint32_t index, uint32_t takers, bool before,
                struct chain_handle *out)
{
	int status = holds_give(&chain->holds, index, takers, before, out);

	if (status == GPU_LEASE_CHAIN_DROPPED)
		return fail_dropped();
	return status == GPU_LEASE_CHAIN_LIMIT ? fail_takers() : status;
}

static int put(struct gpu_lease_chain *chain, uint32_t index, uint32_t takers, void *stream,
               enum gpu_lease_chain_when when, struct chain_handle *out)
{
	int status = wait_for_stream(chain, stream, when);

	if (status)
		return status;
	pthread_mutex_lock(&chains_lock);
	status = give(chain, index, takers, when == GPU_LEASE_CHAIN_LATER, out);
	pthread_mutex_unlock(&chains_lock);
	if (status == GPU_LEASE_CHAIN_LATE) /* only one work of those who put it can go on */
		return put(chain, index, takers, stream, GPU_LEASE_CHAIN_WAIT, out);
	if (status || when != GPU_LEASE_CHAIN_LATER)
		return status;
	status = do_later(chain, index, out->number, stream);
	if (status)
		holds_ready(&chain->holds, index, out->number);
	let_go(chain, index);
	return status;
}

int gpu_lease_chain_quick_put(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                              uint32_t takers, enum gpu_lease_chain_when when,
                              uint8_t handle[GPU_LEASE_HANDLE_BYTES])
{
	struct chain_handle made;
	int status;

	if (when != GPU_LEASE_CHAIN_NOW)
		return GPU_LEASE_CHAIN_LONG;
	status = take_open(chain);
	if (status)
		return status;
	status = !takers || takers > CHAIN_TAKERS
	             ? fail_takers()
	             : give(chain, buffer->index, takers, false, &made);
	give_open();
	if (!status)
		memcpy(handle, &made, sizeof(made));
	return status;
}

int gpu_lease_chain_put(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                        uint32_t takers, void *stream, enum gpu_lease_chain_when when,
                        uint8_t handle[GPU_LEASE_HANDLE_BYTES])
{
	struct chain_handle made;
	int status;

	if (when == GPU_LEASE_CHAIN_NOW)
		return gpu_lease_chain_quick_put(chain, buffer, takers, when, handle);
	status = enter(chain);
	if (status)
		return status;
	status = !takers || takers > CHAIN_TAKERS
	             ? fail_takers()
	             : put(chain, buffer->index, takers, stream, when, &made);
	if (!status)
		memcpy(handle, &made, sizeof(made));
	return leave(chain, status);
}

/* The sentence for what holds_know() and holds_take() return. */
static int fail_handle(int status)
{
	switch (status) {
	case GPU_LEASE_CHAIN_FORGED:
		return fail(status, "nobody has made this handle");
	case GPU_LEASE_CHAIN_OTHER:
		return fail(status, "the handle is of another chain, or of a pool that has ended");
	case GPU_LEASE_CHAIN_STALE:
		return fail(status,
		            "the handle is stale: all its takers have the buffer, nobody took it "
		            "in time, or the component that put it ended before its work did");
	case GPU_LEASE_CHAIN_LATE:
		return fail(status, "the work on the buffer has not ended");
	default:
		return status;
	}
}

/* Who has taken a handle cannot give it back, so first it is sure that the memory can be had. */
static int get(struct gpu_lease_chain *chain, const struct chain_handle *handle, int64_t timeout_ms,
               struct gpu_lease_buffer *out)
{
	struct patience patience = patience_of(timeout_ms);
	int status = check_memory(chain, handle->index, &patience);
	uint64_t size = 0;

	if (status)
		return status;
	do {
		pthread_mutex_lock(&chains_lock);
		status = holds_take(&chain->holds, handle, &size);
		pthread_mutex_unlock(&chains_lock);
		if (!status)
			return give_out(chain, handle->index, size, out);
		if (status == GPU_LEASE_CHAIN_LATE)
			status = wait_for_change(chain, &patience, status);
	} while (!status);
	return fail_handle(status);
}

/* Caller has the lock. */
static int quick_get(struct gpu_lease_chain *chain, const struct chain_handle *handle,
                     struct gpu_lease_buffer *out)
{
	int status = holds_know(&chain->holds, handle);
	uint64_t size;

	if (status)
		return fail_handle(status);
	if (met != chain->serial || !holds_open(&chain->holds, handle->index))
		return GPU_LEASE_CHAIN_LONG;
	status = holds_take(&chain->holds, handle, &size);
	if (!status)
		*out = opened(chain, handle->index, size);
	return status == GPU_LEASE_CHAIN_LATE ? GPU_LEASE_CHAIN_LONG : fail_handle(status);
}

static int open_and_get(struct gpu_lease_chain *chain, const struct chain_handle *handle,
                        struct gpu_lease_buffer *out)
{
	int status = take_open(chain);

	if (status)
		return status;
	status = quick_get(chain, handle, out);
	give_open();
	return status;
}

int gpu_lease_chain_quick_get(struct gpu_lease_chain *chain,
                              const uint8_t handle[GPU_LEASE_HANDLE_BYTES],
                              struct gpu_lease_buffer *out)
{
	struct chain_handle copy;

	memcpy(&copy, handle, sizeof(copy));
	return open_and_get(chain, &copy, out);
}

int gpu_lease_chain_get(struct gpu_lease_chain *chain, const uint8_t handle[GPU_LEASE_HANDLE_BYTES],
                        int64_t timeout_ms, struct gpu_lease_buffer *out)
{
	struct chain_handle copy; /* what is looked at is what is used, whoever writes there */
	int status;

	memcpy(&copy, handle, sizeof(copy));
	status = open_and_get(chain, &copy, out);
	if (status == GPU_LEASE_CHAIN_LONG)
		status = enter(chain);
	else
		return status;
	return status ? status : leave(chain, get(chain, &copy, timeout_ms, out));
}

int gpu_lease_chain_quick_drop(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                               enum gpu_lease_chain_when when)
{
	bool held;
	int status;

	if (when != GPU_LEASE_CHAIN_NOW)
		return GPU_LEASE_CHAIN_LONG;
	status = take_open(chain);
	if (status)
		return status;
	held = holds_end(&chain->holds, buffer->index);
	give_open();
	return held ? 0 : fail_dropped();
}

static int drop(struct gpu_lease_chain *chain, uint32_t index, void *stream,
                enum gpu_lease_chain_when when)
{
	int status = wait_for_stream(chain, stream, when);
	bool held;

	if (status)
		return status;
	if (when == GPU_LEASE_CHAIN_WAIT)
		return let_go(chain, index) ? 0 : fail_dropped();
	pthread_mutex_lock(&chains_lock);
	held = holds_one(&chain->holds, index);
	pthread_mutex_unlock(&chains_lock);
	return held ? do_later(chain, index, 0, stream) : fail_dropped();
}

int gpu_lease_chain_drop(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                         void *stream, enum gpu_lease_chain_when when)
{
	int status;

	if (when == GPU_LEASE_CHAIN_NOW)
		return gpu_lease_chain_quick_drop(chain, buffer, when);
	status = enter(chain);
	return status ? status : leave(chain, drop(chain, buffer->index, stream, when));
}

int gpu_lease_chain_used(struct gpu_lease_chain *chain, struct gpu_lease_chain_use *out)
{
	const struct chain_table *table;
	struct chain_use use;
	int status = take_open(chain);

	if (status)
		return status;
	table = chain->holds.table;
	*out = (struct gpu_lease_chain_use){
	    .limit = table->limit, .bytes = table->bytes, .members = table->members};
	for (uint32_t i = 0; i < table->top; i++) {
		use = use_now(&table->buffers[i]);
		out->active += use.holders || use.flight;
		out->inactive += use_is_free(use);
	}
	give_open();
	return 0;
}

/* -- parts of the multiprocessors -------------------------------------------------------------- */

static int fail_part(const char *what, CUresult result)
{
	const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");

	return fail(
	    GPU_LEASE_CHAIN_PART,
	    "the driver gives no part of the multiprocessors: %s failed with CUDA error %d%s", what,
	    (int)result,
	    percent && strcmp(percent, "100")
	        ? "; under MPS leave out sm: in --gpu-share, which divides them itself"
	    : result == CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
	        ? "; only a GPU that is shared by MPS has them"
	        : "");
}

static int part(struct gpu_lease_chain *chain, enum gpu_lease_chain_parts how,
                struct gpu_lease_part *out)
{
	void (*ask)(unsigned int *, unsigned int *) = NULL;
	unsigned int percent = 100, begins = 0;
	const char *what = "";
	CUresult result;

	if ((unsigned int)how > GPU_LEASE_CHAIN_AFFINITY)
		return fail(GPU_LEASE_CHAIN_INVALID,
		            "%d is no kind of part: it is 0 (automatic), 1 (green contexts) or 2 "
		            "(affinity)",
		            (int)how);
	*(void **)&ask = dlsym(RTLD_DEFAULT, "gpu_lease_chain_ask_part");
	if (!ask)
		return fail(GPU_LEASE_CHAIN_PART, "the job's interposer is of a release that knows "
		                                  "no parts; submit the job again");
	ask(&percent, &begins);
	result = parts_choose(&chain->parts, chain->cuda, how, percent, begins, out, &what);
	return result ? fail_part(what, result) : 0;
}

int gpu_lease_chain_part(struct gpu_lease_chain *chain, enum gpu_lease_chain_parts how,
                         struct gpu_lease_part *out)
{
	int status = enter(chain);

	return status ? status : leave(chain, part(chain, how, out));
}
