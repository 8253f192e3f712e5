/* nodelay.c: TCP connections send at once. Preloaded into slurmctld, slurmdbd and sacct.
 *
 * To and from slurmdbd a message is two writes, its length and the rest. The kernel keeps the
 * second one back until the first is acknowledged, which the other side does 40 ms later; at its
 * start slurmctld asks some ten questions, one after the other. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int socket(int domain, int type, int protocol)
{
	int on = 1, made = (int)syscall(SYS_socket, domain, type, protocol);

	/* What a listening socket accepts has its options. */
	if (made >= 0 && (domain == AF_INET || domain == AF_INET6))
		setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return made;
}
