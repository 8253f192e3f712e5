/* shared_parts.c: what goes between two processes that share memory. */
#include "memory/shared_parts.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_MS 60000 /* the other process may be busy */
#define SIZE_MOST (UINT64_C(1) << 46)

bool part_send(int end, const struct shared_part *part, const int *files)
{
	union {
		char space[CMSG_SPACE(SHARED_AT_ONCE * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec data = {(void *)part, sizeof(*part)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	size_t bytes = part->n * sizeof(int);

	if (part->n) {
		message.msg_control = control.space;
		message.msg_controllen = CMSG_SPACE(bytes);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.align), files, bytes);
	}
	return sendmsg(end, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*part);
}

/* The descriptors that came with a message, at most as many as fit. */
static uint32_t files_of(struct msghdr *message, int files[SHARED_AT_ONCE])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	size_t n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(files, CMSG_DATA(c), n * sizeof(int));
	return (uint32_t)n;
}

bool part_receive(int end, struct shared_part *part, int files[SHARED_AT_ONCE], uint32_t *n)
{
	union {
		char space[CMSG_SPACE(SHARED_AT_ONCE * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec data = {part, sizeof(*part)};
	struct msghdr message = {.msg_iov = &data,
	                         .msg_iovlen = 1,
	                         .msg_control = control.space,
	                         .msg_controllen = sizeof(control.space)};
	struct pollfd readable = {end, POLLIN, 0};
	ssize_t got;

	*n = 0;
	if (poll(&readable, 1, ANSWER_MS) <= 0)
		return false;
	got = recvmsg(end, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return false;
	*n = files_of(&message, files);
	return got == (ssize_t)sizeof(*part);
}

bool part_follows(const struct shared_part *part, const struct shared_part *before)
{
	return !memcmp(part->mark, SHARED_PART_MARK, sizeof(part->mark)) && !part->status &&
	       part->size && part->size <= SIZE_MOST && part->piece && part->piece <= part->size &&
	       part->n && part->n <= SHARED_AT_ONCE &&
	       part->total == (part->size - 1) / part->piece + 1 &&
	       part->first == before->first + before->n && part->n <= part->total - part->first &&
	       (!before->total || (part->total == before->total && part->size == before->size &&
	                           part->piece == before->piece));
}
