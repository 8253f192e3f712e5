/* host_memory.c: carries requests for host memory and claims to the daemon, and its answers back.
 */
#include "lease/host_memory.h"

#include "base/wire.h"
#include "lease/link.h"
#include "memory/claims.h"
#include "memory/host.h"
#include "memory/shortage.h"

void host_memory_offered(bool offered)
{
	host_offered(offered);
	claims_offered(offered);
	shortage_daemon_away(false);
}

void host_memory_forget_daemon(void)
{
	host_forget_daemon();
	claims_forget_daemon();
	shortage_daemon_away(true);
}

void host_memory_speak(void)
{
	struct gl_host message;
	struct gl_claim claim;

	while (link_is_served() && claims_next_message(&claim))
		link_send(&claim, sizeof(claim));

	while (link_is_served() && host_next_message(&message))
		link_send(&message, sizeof(message));
}

bool host_memory_take(const void *message, size_t size, int descriptor)
{
	const struct gl_host_answer *answer = message;

	if (size != sizeof(*answer) || answer->header.magic != GL_MAGIC ||
	    answer->header.version != GL_VERSION || answer->header.type != GL_HOST)
		return false;
	host_answer(answer, descriptor);
	return true;
}
