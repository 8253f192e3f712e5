// ipc.cu: two processes that share memory and events by CUDA IPC.
//
// ipc KERNELS.ptx pair MIB BALLAST_MIB ROUNDS [THREADS]: starts itself once more before it touches
// the device. In every round each fills what it shares, lets the other one wait for the event on
// the device, and the other one compares every word, writes what is next, and hands it back. The
// ballast is private to each and is compared at the end. THREADS: that fill, from 32 on; few make
// long kernels. Prints a line of JSON.
// ipc KERNELS.ptx offer: prints a handle, and "ready", and waits.
// ipc KERNELS.ptx take HANDLE: opens it, prints the error's number.
//
// Built twice: for the driver alone, and for the runtime (-DWITH_RUNTIME).
static unsigned int blocks = 512, threads = 256; // that fill

#ifdef WITH_RUNTIME
#include "ipc_runtime.cuh"
#else
#include "ipc_driver.cuh"
#endif

#include <spawn.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define N_SHARED 4 // three small ones and a large one
#define BALLAST_PIECE_MIB 256

extern char **environ;

struct message {
	memory_handle memory[N_SHARED];
	event_handle event;
};

// What is shared, or a piece of the ballast.
struct area {
	address at;
	size_t n; // words
};

struct side {
	int end; // of the connection
	std::vector<area> own, others, ballast;
	shared_event own_event, others_event;
	unsigned long long wrong;
	std::vector<uint32_t> host;
};

static void send_all(int end, const void *data, size_t n)
{
	if (write(end, data, n) != (ssize_t)n)
		DIE("the other process is gone");
}

static void receive_all(int end, void *data, size_t n)
{
	if (recv(end, data, n, MSG_WAITALL) != (ssize_t)n)
		DIE("the other process is gone");
}

// Both have come so far.
static void meet(struct side *side)
{
	char token = 1;

	send_all(side->end, &token, 1);
	receive_all(side->end, &token, 1);
}

static void fill_area(struct area area, uint32_t value)
{
	fill_words(area.at, area.n, value);
}

static void compare(struct side *side, struct area area, uint32_t value)
{
	side->host.resize(area.n);
	copy_out(side->host.data(), area.at, area.n * 4);
	for (size_t i = 0; i < area.n; i++)
		side->wrong += side->host[i] != value + (uint32_t)i * 2654435761u;
}

static struct area allocate(size_t bytes)
{
	return {allocate_bytes(bytes), bytes / 4};
}

// The two processes fill with the same: each compares what the other one has written.
static uint32_t value_of(unsigned int round, size_t i, unsigned int turn)
{
	return round * 1000003u + (uint32_t)i * 101 + turn * 7;
}

static void exchange(struct side *side)
{
	struct message message;

	for (size_t i = 0; i < N_SHARED; i++)
		get_memory(&message.memory[i], side->own[i].at);
	side->own_event = make_event(&message.event);
	send_all(side->end, &message, sizeof(message));
	receive_all(side->end, &message, sizeof(message));
	for (size_t i = 0; i < N_SHARED; i++)
		side->others.push_back({open_memory(message.memory[i]), side->own[i].n});
	side->others_event = open_event(message.event);
}

// Each writes to its own, and then to what it has opened.
static void run_round(struct side *side, unsigned int round)
{
	for (size_t i = 0; i < N_SHARED; i++)
		fill_area(side->own[i], value_of(round, i, 0));
	record(side->own_event);
	meet(side);
	wait_for(side->others_event);
	for (size_t i = 0; i < N_SHARED; i++) {
		compare(side, side->others[i], value_of(round, i, 0));
		fill_area(side->others[i], value_of(round, i, 1));
	}
	record(side->own_event);
	meet(side);
	wait_for(side->others_event);
	for (size_t i = 0; i < N_SHARED; i++)
		compare(side, side->own[i], value_of(round, i, 1));
	meet(side);
}

static void carry(struct side *side, size_t mib)
{
	for (size_t left = mib, n; left; left -= n) {
		n = left < BALLAST_PIECE_MIB ? left : BALLAST_PIECE_MIB;
		side->ballast.push_back(allocate(n << 20));
		fill_area(side->ballast.back(), (uint32_t)side->ballast.size());
	}
	synchronize();
}

static void choose_threads(unsigned int all)
{
	threads = all < 256 ? all : 256;
	blocks = all / threads;
}

static void run(struct side *side, char **argv)
{
	unsigned int rounds = (unsigned int)atoi(argv[5]);

	if (argv[6])
		choose_threads((unsigned int)atoi(argv[6]));
	for (size_t i = 0; i + 1 < N_SHARED; i++)
		side->own.push_back(allocate(4096 << 4 * i));
	side->own.push_back(allocate((size_t)atoll(argv[3]) << 20));
	carry(side, (size_t)atoll(argv[4]));
	exchange(side);
	for (unsigned int round = 0; round < rounds; round++)
		run_round(side, round);
	for (size_t i = 0; i < side->ballast.size(); i++)
		compare(side, side->ballast[i], (uint32_t)i + 1);
	for (struct area area : side->others)
		close_memory(area.at);
	destroy(side->others_event);
	meet(side);
	for (struct area area : side->own)
		free_bytes(area.at);
}

// The same program as the other side; the socket is its standard input.
static pid_t start_other(char **argv, int *end)
{
	char other_side[] = "other";
	char *arguments[] = {argv[0], argv[1], other_side, argv[3],
	                     argv[4], argv[5], argv[6],    NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t other;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		DIE("no sockets");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
	if (posix_spawn(&other, "/proc/self/exe", &actions, NULL, arguments, environ))
		DIE("it cannot be started again");
	close(ends[1]);
	*end = ends[0];
	return other;
}

static int run_pair(char **argv)
{
	struct side side = {};
	unsigned long long others_wrong;
	pid_t other = start_other(argv, &side.end);
	int status;

	open_device(argv[1]);
	run(&side, argv);
	receive_all(side.end, &others_wrong, sizeof(others_wrong));
	if (waitpid(other, &status, 0) != other || status)
		DIE("the other process failed");
	printf("{\"name\": \"ipc\", \"interposed\": %s, \"digest\": \"%s rounds of %s MiB\", "
	       "\"wrong_words\": %llu}\n",
	       interposed(), argv[5], argv[3], side.wrong + others_wrong);
	return side.wrong + others_wrong != 0;
}

static int run_other(char **argv)
{
	struct side side = {};

	run(&side, argv);
	send_all(0, &side.wrong, sizeof(side.wrong));
	return 0;
}

static int offer(void)
{
	struct area area = allocate(6 << 20);
	memory_handle handle;

	fill_area(area, 1);
	synchronize();
	get_memory(&handle, area.at);
	for (size_t i = 0; i < sizeof(handle); i++)
		printf("%02x", ((const unsigned char *)&handle)[i]);
	putchar('\n');
	wait_for_go("ready");
	puts("{\"name\": \"offer\"}");
	return 0;
}

static int take(const char *text)
{
	memory_handle handle = {};

	for (size_t i = 0; i < sizeof(handle) && text[2 * i]; i++)
		sscanf(text + 2 * i, "%2hhx", (unsigned char *)&handle + i);
	printf("{\"name\": \"take\", \"error\": %d}\n", try_open(handle));
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";

	if ((argc == 6 || argc == 7) && !strcmp(what, "pair"))
		return run_pair(argv);
	open_device(argc > 1 ? argv[1] : "");
	if ((argc == 6 || argc == 7) && !strcmp(what, "other"))
		return run_other(argv);
	if (argc == 3 && !strcmp(what, "offer"))
		return offer();
	if (argc == 4 && !strcmp(what, "take"))
		return take(argv[3]);
	DIE("usage: ipc KERNELS.ptx pair MIB BALLAST_MIB ROUNDS [THREADS], ... offer, ... take "
	    "HANDLE");
}
