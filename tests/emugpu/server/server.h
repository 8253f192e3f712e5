/* server.h: connections of emugpud. */
#ifndef EMUGPU_SERVER_H
#define EMUGPU_SERVER_H

#include "engine/engine.h"
#include "messages.h"

struct connection {
	struct connection *next;
	int fd;
	enum emu_role role;
	struct process *process; /* NULL for a monitor and a file */
	bool gone;               /* the process has let go of it */
	struct export *export;   /* of a file */
};

/* io.c: all of it or false; interrupted calls are repeated. */
bool send_reply(int fd, enum emu_status status, const uint64_t *r, const void *payload,
                uint64_t size);

/* requests.c: serve one request; false ends the connection. The lock is held. */
bool serve(struct connection *connection, const struct emu_request *request, uint8_t *payload);
bool reply(const struct connection *c, enum emu_status status, const uint64_t *r);
/* Devices as the peer counts them: CUDA_VISIBLE_DEVICES hides some from processes. */
struct device *device_at(const struct connection *c, uint64_t ordinal);
uint64_t ordinal_of(const struct connection *c, const struct device *device);
void see_devices(struct process *process, const char *list); /* NULL: all */

void take_time(uint64_t ns); /* sleeps without the lock */

enum emu_status wait_context(struct process *process, uint64_t id); /* until it is idle */

enum emu_status context_status(const struct context *context);

/* requests_memory.c */
bool serve_memory(struct connection *c, const struct emu_request *q);

/* requests_graph.c */
bool serve_graph(struct connection *c, const struct emu_request *q);

/* requests_ipc.c */
bool serve_ipc(struct connection *c, const struct emu_request *q);

/* requests_peer.c */
bool serve_peer(struct connection *c, const struct emu_request *q);

/* requests_pool.c */
bool serve_pool(struct connection *c, const struct emu_request *q);

/* requests_rm.c */
bool serve_rm(struct connection *c, const struct emu_request *q, const uint8_t *payload);
void rm_close(struct process *process); /* it ends */

/* emugpud.c: what files stand for that no process has open any more is given up now: their
 * connections end a moment later. The lock is held. */
void end_closed_files(void);

/* emugpud.c: a checkpointed process has no connections any more, and keeps what it has. */
void process_lets_go(struct process *process);
void process_may_return(const struct process *process);

/* requests_checkpoint.c */
const struct model *process_model(const struct process *process); /* of its first device */
bool serve_checkpoint(struct connection *c, const struct emu_request *q, const uint8_t *payload);

/* requests_vmm.c */
bool serve_vmm(struct connection *c, const struct emu_request *q);

/* stats.c: everything as JSON, malloc'ed; the lock is held. */
char *stats_json(void);

#endif
