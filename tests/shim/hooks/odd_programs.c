/* odd_programs.c: programs that do what few do, one scenario a run, under the interposer.
 *
 * Linked with the emulated driver, and run by test_odd_programs.py. A line on standard output says
 * how far it is, one on standard input lets it go on.
 */
#include "races.h"

#include "../forbid.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_FILES 64
#define OTHERS "what another program has sent"
/* Of programs in Fortran: more than the whole stack of a small thread. */
#ifdef THREAD_LOCAL_BYTES
static __thread volatile char thread_local_bytes[THREAD_LOCAL_BYTES];
#endif

/* Something that waits at the gate. */
static CUresult submit(void)
{
	static CUdeviceptr pointer;

	if (!pointer)
		OK(cuMemAlloc(&pointer, 4096));
	return cuMemsetD8(pointer, 1, 4096);
}

/* -- descriptors ------------------------------------------------------------------ */

/* The open descriptors; returns how many. */
static int descriptors(int found[MOST_FILES])
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
			found[n++] = atoi(entry->d_name);
	closedir(folder);
	return n;
}

/* The emulated driver has connections of its own. */
static bool is_of_driver(int number)
{
	int type = 0;
	socklen_t size = sizeof(type);

	return !getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

static int interposers[MOST_FILES], n_interposers;

/* Submits, and finds the descriptors that the interposer has opened for that. */
static void find_interposers(void)
{
	int before[MOST_FILES], after[MOST_FILES];
	int n_before = descriptors(before), n_after;

	OK(submit());
	n_after = descriptors(after);
	n_interposers = 0;
	for (int i = 0; i < n_after; i++) {
		bool known = is_of_driver(after[i]);

		for (int j = 0; j < n_before; j++)
			known |= before[j] == after[i];
		if (!known)
			interposers[n_interposers++] = after[i];
	}
	if (n_interposers < 2)
		fail("descriptors of the interposer", n_interposers);
}

/* It closes descriptors that it has not opened, and has files of its own under their numbers. */
static void files_in_their_place(void)
{
	char path[] = "/tmp/odd_programs.XXXXXX", text[sizeof(OTHERS)];
	int file = mkstemp(path);

	set_up();
	find_interposers();
	unlink(path);
	if (write(file, OTHERS, sizeof(OTHERS)) != sizeof(OTHERS) || lseek(file, 0, SEEK_SET))
		fail("write", errno);
	for (int i = 0; i < n_interposers; i++)
		dup2(file, interposers[i]);
	say("replaced");
	wait_for_test();
	for (int i = 0; i < 100; i++)
		OK(submit());
	if (lseek(file, 0, SEEK_CUR))
		fail("the file was read or written up to", (int)lseek(file, 0, SEEK_CUR));
	if (read(file, text, sizeof(text)) != sizeof(text) || memcmp(text, OTHERS, sizeof(text)) ||
	    read(file, text, 1))
		fail("the file has changed", 0);
	for (int i = 0; i < n_interposers; i++)
		if (fcntl(interposers[i], F_GETFD) < 0)
			fail("closed was", interposers[i]);
}

static void sockets_in_their_place(void)
{
	int ends[2], fork_ends[2];
	char text[sizeof(OTHERS)];

	set_up();
	find_interposers();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) || pipe(fork_ends))
		fail("socketpair", errno);
	for (int i = 0; i < n_interposers; i++)
		dup2(ends[0], interposers[i]);
	if (send(ends[1], OTHERS, sizeof(OTHERS), 0) != sizeof(OTHERS))
		fail("send", errno);
	say("replaced");
	wait_for_test();
	for (int i = 0; i < 100; i++)
		OK(submit());
	if (recv(ends[1], text, sizeof(text), MSG_DONTWAIT) >= 0)
		fail("somebody has sent into the socket", 0);
	if (recv(ends[0], text, sizeof(text), MSG_DONTWAIT) != sizeof(text))
		fail("somebody has received from the socket", errno);
	if (!fork()) { /* a child has them too */
		for (int i = 0; i < n_interposers; i++)
			if (fcntl(interposers[i], F_GETFD) < 0)
				_exit(1);
		_exit(0);
	}
	wait(interposers);
	if (interposers[0])
		fail("a child lacks them", interposers[0]);
}

/* stdout and stderr are closed, as in daemons, when the interposer opens its own. */
static void without_standard_output(void)
{
	int out = fcntl(STDOUT_FILENO, F_DUPFD, 20), error = fcntl(STDERR_FILENO, F_DUPFD, 20);
	bool taken = false;

	set_up();
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	OK(submit());
	for (int i = STDOUT_FILENO; i <= STDERR_FILENO; i++)
		taken |= fcntl(i, F_GETFD) >= 0 && !is_of_driver(i);
	dup2(out, STDOUT_FILENO);
	dup2(error, STDERR_FILENO);
	if (taken)
		fail("what the program prints goes to the interposer's files", 0);
}

/* -- limits ------------------------------------------------------------------------- */

static struct rlimit lower(__rlimit_resource_t what, rlim_t to)
{
	struct rlimit old, now;

	getrlimit(what, &old);
	now = (struct rlimit){to, old.rlim_max};
	if (setrlimit(what, &now))
		fail("setrlimit", errno);
	return old;
}

/* It may open no more, as programs say that shut themselves in. */
static void may_open_no_more(void)
{
	set_up();
	OK(submit());
	lower(RLIMIT_NOFILE, 0);
	say("limited");
	wait_for_test();
	OK(submit());
}

static void has_no_descriptor_left(void)
{
	int open_now[MOST_FILES];
	struct rlimit old;
	CUdeviceptr pointer;
	CUresult result;

	set_up();
	old = lower(RLIMIT_NOFILE, (rlim_t)descriptors(open_now));
	result = cuMemAlloc(&pointer, 4096);
	if (result != CUDA_ERROR_OPERATING_SYSTEM)
		fail("without descriptors", (int)result);
	setrlimit(RLIMIT_NOFILE, &old);
	OK(submit());
}

static void gets_no_thread(void)
{
	int before[MOST_FILES], after[MOST_FILES], n;
	CUdeviceptr pointer;
	struct rlimit old;
	CUresult result;

	set_up();
	n = descriptors(before);
	old = lower(RLIMIT_AS, 1);
	for (int i = 0; i < 20; i++) {
		result = cuMemAlloc(&pointer, 4096);
		if (result != CUDA_ERROR_OPERATING_SYSTEM)
			fail("without a thread", (int)result);
	}
	setrlimit(RLIMIT_AS, &old);
	if (descriptors(after) > n + 2)
		fail("descriptors are left open", descriptors(after) - n);
	OK(submit());
}

/* The program has all keys of thread-specific data. */
static void has_all_keys(void)
{
	static pthread_key_t keys[PTHREAD_KEYS_MAX];
	int n = 0;

	set_up();
	while (n < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[n], NULL))
		n++;
	for (int i = 0; i < n; i++)
		pthread_setspecific(keys[i], &keys[i]);
	OK(submit());
	for (int i = 0; i < n; i++)
		if (pthread_getspecific(keys[i]) != &keys[i])
			fail("the program's value has changed, of key", i);
}

/* -- ends --------------------------------------------------------------------------- */

/* A child that was made without fork() ends by exit(), and waits for nobody. */
static void child_of_clone(void)
{
	int status;
	pid_t child;

	set_up();
	OK(submit());
	fflush(stdout);
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child) {
		if (!forbid(SYS_nanosleep, SECCOMP_RET_KILL_PROCESS))
			_exit(1);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		fail("the child has waited, or failed", status);
	OK(submit());
}

static void goes_on(struct other *other)
{
	(void)other;
	OK(submit());
	say("submitted");
	wait_for_test();
	OK(submit());
	say("done");
	exit(0);
}

/* main() ends its thread, not the process: the kernel shows it as a zombie then. */
static void main_thread_ends(void)
{
	static struct other other;

	set_up();
	start(&other, goes_on);
	pthread_exit(NULL);
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
    {"files in their place", files_in_their_place},
    {"sockets in their place", sockets_in_their_place},
    {"without standard output", without_standard_output},
    {"may open no more", may_open_no_more},
    {"has no descriptor left", has_no_descriptor_left},
    {"gets no thread", gets_no_thread},
    {"has all keys", has_all_keys},
    {"child of clone", child_of_clone},
    {"main thread ends", main_thread_ends},
};

int main(int n, char **arguments)
{
#ifdef THREAD_LOCAL_BYTES
	thread_local_bytes[0] = 1;
	if (n == 1) {
		set_up();
		OK(submit());
		say("done");
		return 0;
	}
#endif
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (n == 2 && !strcmp(scenarios[i].name, arguments[1])) {
			scenarios[i].run();
			say("done");
			return 0;
		}
	}
	fail("no such scenario", n);
}
