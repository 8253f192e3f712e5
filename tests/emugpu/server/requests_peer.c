/* requests_peer.c: contexts that reach each other's memory. The lock is held. */
#include "server/server.h"

bool serve_peer(struct connection *c, const struct emu_request *q)
{
	struct context *context = context_find(c->process, q->arg[0]);
	struct context *peer = context_find(c->process, q->arg[1]);
	bool done;

	if (!context || !peer)
		return reply(c, EMU_INVALID, NULL);
	done = q->op == EMU_PEER_ENABLE ? peer_enable(context, peer) : peer_disable(context, peer);
	return reply(c, EMU_OK, (uint64_t[5]){done});
}
