/* odd_descriptors.c: programs that close what they have not opened. */
#include "odd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHERS "what another program has sent"

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
void files_in_their_place(void)
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

void sockets_in_their_place(void)
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
void without_standard_output(void)
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

static struct rlimit files;
static atomic_bool goes_on;

static void lets_it_open_files(struct other *other)
{
	(void)other;
	wait_for_test();
	atomic_store(&goes_on, true);
	setrlimit(RLIMIT_NOFILE, &files);
}

/* It closes what it has not opened, and may open no more until the test says so. */
void cut_off(void)
{
	static struct other other;
	struct rlimit none;

	set_up();
	find_interposers();
	getrlimit(RLIMIT_NOFILE, &files);
	none = (struct rlimit){0, files.rlim_max};
	start(&other, lets_it_open_files);
	while (!atomic_load(&other.id))
		usleep(100);
	if (setrlimit(RLIMIT_NOFILE, &none))
		fail("setrlimit", errno);
	for (int i = 0; i < n_interposers; i++)
		close(interposers[i]);
	say("cut off");
	while (!atomic_load(&goes_on))
		OK(submit());
	OK(submit());
	pthread_join(other.thread, NULL);
}
