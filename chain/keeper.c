/* keeper.c: gpu-lease-chain, which keeps the pool of a chain: DEVICE POOL_BYTES KEEP_SECONDS.
 *
 * The first component of a chain starts it. It has a CUDA context, since its memory is swapped as
 * that of every process is; it computes nothing. It ends when no component is there and no handle
 * is on its way, or its context is lost.
 */
#include "driver.h"
#include "message.h"
#include "table.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* of every processor; glibc 2.31 has no name for it */
#endif
#define KEEP_S 60
#define ALONE_TICKS 5 /* how long it waits for the first component, or for another one */

static const struct chain_cuda *cuda;
static struct chain_table *table;
static int table_file;
static CUdeviceptr memory[CHAIN_BUFFERS];
static struct pollfd sockets[CHAIN_MEMBERS + 1]; /* of members, and last the door */

/* -- its beginning --------------------------------------------------------------------------- */

/* Whoever has started it reads its standard output until its end. */
__attribute__((noreturn)) static void give_up(const char *why)
{
	printf("%s", why);
	fflush(stdout);
	_exit(1);
}

/* Goes on in a process of its own, which no program waits for, and without what it was given: a
 * pipe that it held open would never end. */
static void leave_parent(void)
{
	pid_t pid = fork();

	if (pid < 0)
		give_up(strerror(errno));
	if (pid)
		_exit(0);
	setsid();
	if (chdir("/"))
		give_up(strerror(errno));
	syscall(SYS_close_range, 3U, ~0U, 0U);
	if (dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDIN_FILENO) < 0)
		give_up(strerror(errno));
}

static void make_context(int device)
{
	CUcontext context;
	CUdevice number;

	cuda = chain_cuda();
	if (!cuda)
		give_up("there is no CUDA driver here");
	if (cuda->cuInit(0) || cuda->cuDeviceGet(&number, device) ||
	    cuda->cuDevicePrimaryCtxRetain(&context, number) || cuda->cuCtxSetCurrent(context))
		give_up("it has no context on the GPU, which may be full or lost");
}

/* The daemon tells components of this process from now on. */
static void become_keeper(void)
{
	int (*keep)(int) = NULL, (*meet)(int *) = NULL, ends[2], other, result;

	*(void **)&keep = dlsym(RTLD_DEFAULT, "gpu_lease_chain_keep");
	*(void **)&meet = dlsym(RTLD_DEFAULT, "gpu_lease_chain_meet");
	if (!keep || !meet)
		give_up("it is in no job that shares a GPU");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) || keep(ends[1]))
		give_up(strerror(errno));
	result = meet(&other);
	if (!result)
		_exit(0); /* there is another keeper */
	if (result != CUDA_ERROR_INVALID_VALUE)
		give_up("gpu-leased does not serve it: it is not known as a process of the job");
	sockets[CHAIN_MEMBERS].fd = ends[0];
}

static void make_table(int device, uint64_t limit, uint32_t keep_s)
{
	size_t total = 0;
	CUdevice number;

	if (!cuda->cuDeviceGet(&number, device))
		cuda->cuDeviceTotalMem(&total, number);
	if (!limit)
		limit = total / 4 > CHAIN_UNIT ? total / 4 : CHAIN_UNIT;
	table_file = memfd_create("gpu-lease-chain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (table_file < 0 || ftruncate(table_file, sizeof(*table)) ||
	    fcntl(table_file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		give_up(strerror(errno));
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, table_file, 0);
	if (table == MAP_FAILED || !table_begin(table, limit, keep_s ? keep_s : KEEP_S))
		give_up("the host has no memory for its table");
}

/* -- memory ----------------------------------------------------------------------------------- */

/* Gives up free buffers until there is room for so many bytes. */
static bool make_room(uint64_t bytes)
{
	while (table->bytes + bytes > table->limit) {
		uint32_t largest = CHAIN_BUFFERS;

		for (uint32_t i = 0; i < table_top(table); i++)
			if (use_is_free(use_now(&table->buffers[i])) &&
			    (largest == CHAIN_BUFFERS || table->rooms[i] > table->rooms[largest]))
				largest = i;
		if (largest == CHAIN_BUFFERS)
			return false;
		if (table_retire(table, largest))
			cuda->cuMemFree(memory[largest]);
	}
	return true;
}

/* A number without memory; CHAIN_BUFFERS: all have some. */
static uint32_t place(void)
{
	uint32_t i = 0;

	while (i < table_top(table) && use_now(&table->buffers[i]).memory)
		i++;
	return i;
}

/* Only this program gives memory to buffers and takes it, so the place stays while the driver waits
 * for other jobs to make room. */
static CUresult fill(uint32_t index, uint64_t room)
{
	CUipcMemHandle handle;
	CUresult result = cuda->cuMemAlloc(&memory[index], room);

	if (result)
		return result;
	result = cuda->cuIpcGetMemHandle(&handle, memory[index]);
	if (result) {
		cuda->cuMemFree(memory[index]);
		return result;
	}
	memcpy(table->memory[index], &handle, sizeof(table->memory[index]));
	return CUDA_SUCCESS;
}

static void grow(struct chain_grow *message)
{
	uint64_t room;
	uint32_t index;

	message->status = GPU_LEASE_CHAIN_FULL;
	if (!message->size || message->size > table->limit)
		return;
	room = table_room(table, message->size);
	index = make_room(room) ? place() : CHAIN_BUFFERS;
	if (index == CHAIN_BUFFERS)
		return;
	message->cuda = (int32_t)fill(index, room);
	message->status = message->cuda ? GPU_LEASE_CHAIN_CUDA : 0;
	if (!message->cuda)
		table_offer(table, index, room);
}

/* -- members ----------------------------------------------------------------------------------- */

/* A bit for each. */
static uint64_t present(void)
{
	uint64_t members = 0;

	for (uint32_t i = 0; i < CHAIN_MEMBERS; i++)
		members |= (uint64_t)(sockets[i].fd >= 0) << i;
	return members;
}

static void admit(int end)
{
	struct chain_hello hello = {CHAIN_MARK, 0, 0};

	while (hello.member < CHAIN_MEMBERS && sockets[hello.member].fd >= 0)
		hello.member++;
	if (hello.member == CHAIN_MEMBERS) {
		hello.status = GPU_LEASE_CHAIN_LIMIT;
		message_send(end, &hello, sizeof(hello), -1);
		close(end);
		return;
	}
	sockets[hello.member].fd = end;
	table->members = (uint32_t)__builtin_popcountll(present());
	message_send(end, &hello, sizeof(hello), table_file);
}

/* A component has ended. */
static void forget(uint32_t member)
{
	close(sockets[member].fd);
	sockets[member].fd = -1;
	table->members = (uint32_t)__builtin_popcountll(present());
	table_forget(table, member);
}

static void serve(uint32_t member)
{
	struct chain_grow message;
	int file;

	if (!message_receive(sockets[member].fd, &message, sizeof(message), &file)) {
		forget(member);
		return;
	}
	if (file >= 0)
		close(file);
	grow(&message);
	if (!message_send(sockets[member].fd, &message, sizeof(message), -1))
		forget(member);
}

static void open_door(void)
{
	char byte;
	int end;

	if (message_receive(sockets[CHAIN_MEMBERS].fd, &byte, 1, &end) && end >= 0)
		admit(end);
}

/* -- time -------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

/* With its context the pool is lost. Under MPS no process may begin before those have ended that
 * had this. */
static void keep(void)
{
	int64_t last = now_ms();
	int alone = 0;

	while (alone <= ALONE_TICKS && !chain_context_is_lost(cuda)) {
		poll(sockets, CHAIN_MEMBERS + 1, 1000);
		for (uint32_t i = 0; i < CHAIN_MEMBERS; i++)
			if (sockets[i].fd >= 0 && sockets[i].revents)
				serve(i);
		if (sockets[CHAIN_MEMBERS].revents)
			open_door();
		if (now_ms() - last < 1000)
			continue;
		last = now_ms();
		alone = table_tick(table, present()) || present() ? 0 : alone + 1;
	}
}

int main(int argc, char **argv)
{
	int device = argc > 1 ? atoi(argv[1]) : 0;

	if (argc != 4)
		give_up("usage: gpu-lease-chain DEVICE POOL_BYTES KEEP_SECONDS");
	for (int i = 0; i <= CHAIN_MEMBERS; i++)
		sockets[i] = (struct pollfd){-1, POLLIN, 0};
	leave_parent();
	become_keeper();
	make_context(device);
	make_table(device, strtoull(argv[2], NULL, 10), (uint32_t)strtoul(argv[3], NULL, 10));
	dup2(STDIN_FILENO, STDOUT_FILENO);
	dup2(STDIN_FILENO, STDERR_FILENO);
	keep();
	return 0;
}
