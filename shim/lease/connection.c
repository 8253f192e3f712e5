/* connection.c: the connection with gpu-leased, and a new one when it has ended.
 *
 * When a daemon that served this process is gone, the next try is due at once, since the daemon has
 * probably just been restarted. While no daemon can be reached, the pauses between tries grow to
 * half a second, so that nobody waits long after it is back. While a daemon accepts connections but
 * does not serve this process, they grow to 10 s, so as not to burden it.
 */
#include "lease/connection.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/descriptor.h"
#include "base/fork.h"
#include "base/passing.h"
#include "runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_SOCKET GPU_LEASE_RUNTIME_DIR "/tenant.sock"
#define SHOWN 120 /* bytes of the socket's name in a message, at most */
#define MS INT64_C(1000000)
#define FIRST_PAUSE_NS (50 * MS)
#define LAST_PAUSE_NS (500 * MS)      /* while no daemon can be reached */
#define CONNECT_MS 100                /* how long connect() may wait */
#define LAST_UNSERVED_NS (10000 * MS) /* while a daemon ends each connection without serving */

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static const char *path = DEFAULT_SOCKET;

static struct descriptor connection = NO_DESCRIPTOR;
static int fault;          /* errno of the last try; 0: it has connected */
static bool barred;        /* connection_is_barred() */
static uint64_t due;       /* when to try next */
static int64_t pause_ns;   /* the last pause between tries */
static bool served, older; /* connection_serves(), connection_is_older() */

int connection_fd(void)
{
	return connection.number;
}

bool connection_is_lost(void)
{
	return connection.number >= 0 && descriptor_number(&connection) < 0;
}

/* Schedules the next try after twice the last pause, but not more than `longest` ns. */
static void put_off(int64_t longest)
{
	pause_ns = pause_ns ? 2 * pause_ns : FIRST_PAUSE_NS;
	if (pause_ns > longest)
		pause_ns = longest;
	due = now_ns() + (uint64_t)pause_ns;
}

void connection_close(void)
{
	if (connection.number < 0)
		return;
	descriptor_close(&connection);
	if (served)
		pause_ns = 0;
	if (served)
		due = now_ns();
	else
		put_off(LAST_UNSERVED_NS);
	served = false;
}

void connection_retry(void)
{
	due = 0;
	pause_ns = 0;
}

void connection_serves(void)
{
	served = true;
	older = false;
}

void connection_is_older(void)
{
	older = true;
}

/* Limits how long connect() and send() wait; 0: for ever. */
static void wait_at_most(int fd, long ms)
{
	struct timeval most = {ms / 1000, ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

bool connection_is_barred(void)
{
	return connection.number < 0 && barred;
}

/* Is it this process that may not, or cannot, whoever listens? (Of a missing socket nobody can tell
 * whether there is no daemon or this process is in another root directory.) */
static bool is_own_fault(int why)
{
	return why == EMFILE || why == EACCES || why == EPERM;
}

/* Returns 0 if it has connected, else errno. While the daemon's queue of connections is full,
 * connect() waits in line with other processes; a try without waiting might never succeed. But it
 * waits for CONNECT_MS only (EAGAIN), since the daemon may be stopped. */
static int try_to_connect(void)
{
	int result, fd;

	if (!address.sun_path[0])
		return ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	wait_at_most(fd, CONNECT_MS);
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		wait_at_most(fd, 0);
		connection = descriptor_keep(fd);
		return 0;
	}
	result = errno;
	close(fd);
	return result;
}

bool connection_try(void)
{
	if (connection.number >= 0 || now_ns() < due)
		return false;
	fault = try_to_connect();
	barred = is_own_fault(fault);
	if (fault)
		put_off(LAST_PAUSE_NS);
	return !fault;
}

static const char *remedy(void)
{
	if (older && !fault)
		return "it is of an older release than this job's library; ask the administrator "
		       "to restart it after its update: then this process goes on";
	switch (fault) {
	case 0:
	case EAGAIN:
		return "it does not let this process in; ask the administrator to look at "
		       "gpu-leased on this node";
	case ENOENT:
		return "there is no such socket here; in a container, mount its directory into it; "
		       "else ask the administrator to start gpu-leased on this node";
	case ECONNREFUSED:
		return "nobody listens there; ask the administrator to start gpu-leased on this "
		       "node: then this process goes on";
	case EACCES:
	case EPERM:
		return "this process may not open it; ask the administrator for access";
	case EMFILE:
		return "this process has no file descriptors left; let it close some, or raise its "
		       "limit (ulimit -n): then it goes on";
	case ENAMETOOLONG:
		return "the name is too long for a socket; take GPU_LEASE_SOCKET out of the "
		       "environment";
	default:
		return "ask the administrator to look at gpu-leased on this node";
	}
}

void connection_complain(void)
{
	char buffer[64];
	const char *why = fault ? strerror_r(fault, buffer, sizeof(buffer)) : "it was reached";

	complain("this process waits for gpu-leased at %.*s (%s): %s", SHOWN, path, why, remedy());
}

int64_t connection_due_ns(void)
{
	int64_t left = (int64_t)(due - now_ns());

	if (connection.number >= 0)
		return -1;
	return left > 0 ? left : 0;
}

bool connection_send(const void *message, size_t size)
{
	int fd = descriptor_number(&connection);

	while (fd >= 0 && send(fd, message, size, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return false;
	return fd >= 0;
}

ssize_t connection_receive(void *message, size_t size, int *descriptor)
{
	int fd = descriptor_number(&connection), files[PASS_MOST];
	size_t n_files = 0;
	ssize_t n = fd < 0 ? 0 : pass_receive(fd, message, size, files, &n_files);

	while (n_files > 1)
		close(files[--n_files]); /* the daemon sends one at most */
	*descriptor = n_files ? files[0] : -1;
	if (n > 0)
		return n;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* The child makes a connection of its own. */
static void in_child(void)
{
	descriptor_close(&connection);
	fault = 0;
	due = 0;
	pause_ns = 0;
	served = older = barred = false;
}
FORK_WATCH(in_child);

/* The environment is read before main(), because the program may later change it in another thread.
 */
__attribute__((constructor)) static void read_path(void)
{
	const char *given = getenv("GPU_LEASE_SOCKET");

	if (given)
		path = strdup(given);
	if (!path)
		path = DEFAULT_SOCKET;
	if (strlen(path) < sizeof(address.sun_path))
		strcpy(address.sun_path, path);
}
