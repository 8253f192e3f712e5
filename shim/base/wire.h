/* wire.h: the protocol between a client (libgpulease.so) and gpu-leased.
 *
 * Messages are fixed structs in native byte order (both ends are on one machine) over
 * SOCK_SEQPACKET. A packet is one message, and every message begins with gl_header. Python reads
 * the same text after the C preprocessor, so there are only plain C declarations and constants
 * between the two cffi marks of each header. A message is a row of messages.def and a struct: here,
 * or in wire_host.h, wire_meet.h, wire_move.h, wire_save.h or wire_channels.h. Sizes are asserted,
 * and tests/wire/data/wire_vectors.json holds golden bytes that both sides check.
 *
 * Sequence of one client (C) and the daemon (D):
 *   C HELLO    -> D WELCOME or REFUSED (then the daemon closes)
 *   C MEMORY      Its memory on a device has changed. The values are absolute.
 *   C REQUEST     A thread waits at the gate. Repeating it has no effect.
 *   D GRANT       The gate may open, until a REVOKE with the same epoch. Like CONTENDED it
 *                 tells whether another job waits.
 *   D RESTORE     For the lease that the client holds: restore what others have displaced. A
 *                 client that has released that lease ignores it; the daemon may not have
 *                 received the release when it sent this.
 *   D CONTENDED   Another job waits: release after this much idleness. GL_IDLE_NEVER: no job
 *                 waits any more.
 *   D REVOKE      Shut the gate, drain, release.
 *   C RELEASED    The gate is shut and everything submitted has finished, or is stopped
 *                 (GL_RELEASED_STOPPED). With GL_RELEASED_WANTS it is a REQUEST as well.
 *   C STUCK       The submitted work does not finish. It may wait for work of another process
 *                 of the tenant, as the kernels of a collective do.
 *   D STEP        To clients that have released: hold the lease again for one call, so that
 *                 the stuck one can finish. They answer RELEASED or STUCK.
 *   D OTHERS      The memory that the other clients of the tenant have.
 *   D EVICT       (memory:swap) To clients without a lease: evict this much, the oldest
 *                 allocations first. MEMORY tells the progress.
 *   D PRELOAD     (memory:swap) To a client that waits: it may restore this much before its
 *                 turn.
 *   D EXPECT      (memory:swap) It may have to evict this much soon. With GL_EXPECT_TELLS it
 *                 answers READY.
 *   C READY       (memory:swap) Host memory for that is there, or no more of it can be had.
 *   D AHEAD       (memory:swap) This much may have to be evicted some day. The node keeps as
 *                 much host memory ready for it, and no more. The value is absolute.
 *   C RESTORED    (memory:swap) All memory is restored and the gate opens: the quantum begins.
 *   D MEASURE     Asks for PROGRESS.
 *   C PROGRESS    The number of calls submitted so far.
 *   D WATCH       For a second from now say when the program rests, and when it works again.
 *   C RESTS       It does not work: a long burst of its work has ended, or it has nothing to do.
 *                 Before the first one, and when it has not been asked for a while, it counts as
 *                 one that works.
 *   C WORKS       It works again.
 *   C WHY         A thread has waited for a while and wants to know the reason.
 *   D WAITS       The answer: the client waits for its turn, or for another reason.
 *   C NAME        The client shares memory and has this name. D NAMED: the daemon knows it.
 *   C MEET        Asks to be introduced to the process of its job that has this name.
 *   D MET         To both processes, each with one end of a pair of sockets; or to the asker
 *                 alone: no process has that name.
 *   C HOST_TAKE   (memory:swap) Asks for host memory for copies. Sent only to a daemon with
 *                 GL_WELCOME_HOST. A second request with the same number means the same memory,
 *                 so a client repeats unanswered requests to the next daemon.
 *   D HOST        The answer, with a descriptor of the memory; or that there is none; or that
 *                 it has been taken back.
 *   C HOST_GIVE   The client has unmapped the memory of this number.
 *   C CLAIM       (memory:swap) The client is about to have this much on a device. Host memory
 *                 must exist for as much of it as may have to be evicted. Sent only to a daemon
 *                 with GL_WELCOME_HOST.
 *   D CLAIMED     The client may have this much; or it must wait, or is refused, for a reason.
 *   C DETAILS     For people: why memory stays on a device, and how much has left it without a
 *                 copy.
 *   C CHANNELS    Whether the channel groups of the process can be controlled. Sent after each
 *                 WELCOME and when it changes. A daemon that ignores it leaves the groups alone.
 *   D RUN         How the channel groups of the process on a device run from now on. Sent when
 *                 it changes, and after the first CHANNELS on a connection.
 *   C PARTS       The program changes what part of the multiprocessors it uses, as RUN says. Sent
 *                 once on a connection.
 *   D LEAVE       To clients without a lease: evict all memory from all devices, even if nobody
 *                 needs the space. A GRANT restores it.
 *   D MOVES       The job is about to move to another GPU: its work is waited for, and not stopped
 *                 in mid-kernel, until MOVED. Sent only to clients with GL_HELLO_MOVES.
 *   D MOVED       The move is over: which GPU took the place of which. A WELCOME follows.
 *   D CARRIER     (memory:swap) With one end of a pair of sockets (wire_move.h): until the move is
 *                 over, memory that leaves goes to the other GPU by it, and not to the host; and
 *                 it brings back what is there. Sent only to clients with GL_HELLO_CARRIES.
 *   C STRANDED    The carrier has ended that memory of this process has gone away by: another one
 *                 is needed to bring it back. Sent once after each WELCOME and each such end.
 *   D SAVE        (memory:swap) All memory of the job is away, and is to be saved to files: list
 *                 its copies. Sent only to clients with GL_HELLO_SAVES.
 *   C SAVES       The answer: where the list lies (wire_save.h). From now on the client waits for
 *                 what is written there, and may end the connection.
 *   C SUSPENDS    Slurm is about to stop this process: the job must give up its lease and its
 *                 memory now.
 *   C SIGNALLED   The program has handled a signal, on which it may act only when the call that
 *                 waits returns.
 *   D RESYNC      A new daemon has taken over this connection: send HELLO again. It ignores
 *                 everything before that HELLO.
 * Both sides ignore a message with an old epoch. When the connection ends, the client is gone, and
 * so are its lease and its memory.
 *
 * Different releases meet: a job keeps the interposer that it began with, while the node's daemon
 * may be replaced by a newer release or an older one.
 * Within one GL_VERSION
 *   - No struct changes, and no number changes its meaning. New things are new types of messages
 *     or new bits of flags. A known type with a wrong length or an impossible value is a fault, and
 *     is refused.
 *   - Both sides ignore types and bits that they do not know.
 *   - Who sends a new type loses nothing but the new feature where the other side ignores it.
 *     Where the sender would wait for an answer, WELCOME announces by a bit that there is one.
 * Between versions
 *   - gl_header, GL_REFUSED and gl_refused never change.
 *   - The daemon serves the versions GL_OLDEST_VERSION to GL_VERSION. A version is served for one
 *     release after the last one in which it was the newest. The daemon speaks to each client in
 *     the version of that client's HELLO, and sends RESYNC in every version.
 *   - Clients of other versions are refused with GL_REFUSED_VERSION, in the lower of the two
 *     versions, which both sides can read.
 *   - An interposer reads refusals of every version. A refusal of a version below its own comes
 *     from a daemon that has not been updated yet, and the interposer waits for the update. Every
 *     other refusal is final.
 * gl_refused.reason and gl_waits.reason are read by people: one sentence, with the remedy.
 */
#ifndef GPU_LEASE_WIRE_H
#define GPU_LEASE_WIRE_H

#include "base/wire_channels.h"
#include "base/wire_header.h"
#include "base/wire_host.h"
#include "base/wire_meet.h"
#include "base/wire_move.h"
#include "base/wire_save.h"

/* cffi:begin */
enum gl_hello_flags {
	GL_HELLO_WANTS = 1,   /* threads wait at the gate */
	GL_HELLO_KEEPER = 2,  /* the process keeps the memory of its chain (lease/keeper.h) */
	GL_HELLO_MOVES = 4,   /* the process understands MOVES and MOVED */
	GL_HELLO_SAVES = 8,   /* the process understands SAVE */
	GL_HELLO_CARRIES = 16 /* the process understands CARRIER */
};

enum gl_welcome_flags {
	GL_WELCOME_OVERSUB = 1, /* the job may allocate more than the device holds */
	GL_WELCOME_SWAP = 2,    /* allocations are swapped, not managed */
	GL_WELCOME_HOST = 4, /* the node has host memory: GL_HOST_TAKE and GL_CLAIM are answered */
	GL_WELCOME_CLEAN = 8 /* memory that still equals its copy need not be copied again */
};

enum gl_released_flags {
	GL_RELEASED_WANTS = 1,  /* threads wait at the gate */
	GL_RELEASED_STOPPED = 2 /* what has not finished is stopped, and goes on after a GRANT */
};

enum gl_expect_flags {
	GL_EXPECT_TELLS = 1 /* READY is to be said when host memory is there */
};

enum gl_refusal {
	GL_REFUSED_VERSION = 1,   /* the daemon does not serve this version */
	GL_REFUSED_NO_TENANT = 2, /* the process belongs to no registered tenant */
	GL_REFUSED_LIMIT = 3,     /* too many clients or messages */
	GL_REFUSED_PROTOCOL = 4   /* a message that makes no sense */
};

/* A device and amounts of memory. Each message defines what they mean; unused ones are 0. */
struct gl_device {
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t bytes;
	uint64_t fixed;
	uint64_t resident;
};

/* GL_MEMORY: bytes = the evictable memory that this client has, fixed = its memory that cannot be
 * evicted, resident = the part of its evictable memory that is known to be on the device now
 * (memory:swap; of managed memory only the driver knows). The values are absolute, and there is one
 * entry for each device that the client has used.
 * GL_OTHERS: the same for all other clients of the tenant together.
 * GL_EVICT, GL_PRELOAD, GL_EXPECT, GL_AHEAD: bytes = how much. */
struct gl_memory {
	struct gl_header header;
	uint32_t n_devices;
	uint32_t flags;               /* of GL_EXPECT: enum gl_expect_flags; else 0 */
	struct gl_device devices[16]; /* GL_MAX_DEVICES */
};

/* GL_HELLO: the first message of every connection, also of a renewed one, so that a restarted
 * daemon can rebuild its state. */
struct gl_hello {
	struct gl_header header;
	uint64_t held_epoch; /* the epoch of the lease that this client holds, or 0 */
	uint32_t flags;      /* enum gl_hello_flags */
	uint32_t n_devices;
	struct gl_device devices[16]; /* as in GL_MEMORY */
};

/* GL_WELCOME: the gang. bytes = what the job sees as the device's total memory (that of the device
 * without the reserve, or the job's mem: limit), fixed = 0. */
struct gl_welcome {
	struct gl_header header;
	uint32_t flags; /* enum gl_welcome_flags */
	uint32_t n_devices;
	uint64_t job_id;
	struct gl_device devices[16];
};

/* GL_GRANT: devices[].bytes = how much may be prefetched to that device now. With memory:swap
 * everything is restored before the gate opens, as space becomes free. GL_RESTORE: the same for a
 * gate that is open already. */
struct gl_grant {
	struct gl_header header;
	uint64_t epoch;
	uint64_t idle_ns;      /* as in GL_CONTENDED */
	uint64_t in_flight_ns; /* as in GL_CONTENDED */
	uint32_t n_devices;
	uint32_t zero;
	struct gl_device devices[16];
};

/* GL_REVOKE: deadline_ns = how long the drain may take before it is an overrun. */
struct gl_revoke {
	struct gl_header header;
	uint64_t epoch;
	uint64_t deadline_ns;
};

#define GL_IDLE_NEVER 0xFFFFFFFFFFFFFFFF

/* GL_CONTENDED: from now on, release after idle_ns of idleness, and keep at most in_flight_ns of
 * work in flight (0: any amount). */
struct gl_contended {
	struct gl_header header;
	uint64_t epoch;
	uint64_t idle_ns;
	uint64_t in_flight_ns;
};

/* GL_STUCK, GL_STEP: the epoch of a revoked lease. */
struct gl_epoch {
	struct gl_header header;
	uint64_t epoch;
};

/* GL_RELEASED: from the bytes and the time of the prefetch the daemon measures the link. */
struct gl_released {
	struct gl_header header;
	uint64_t epoch;
	uint32_t flags; /* enum gl_released_flags */
	uint32_t zero;
	uint64_t prefetch_bytes;
	uint64_t prefetch_ns;
};

/* GL_PROGRESS: how many calls the process has submitted since it started. For a second after each
 * MEASURE a process that has a lease looks again and again whether it has unfinished work:
 * seen_ns: for how long it has looked, busy_ns: for how much of that it had some, wanted_ns: for
 * how much of it, it had some or submitted more after a moment. bursts: how often that has been
 * seen to begin. Times in which its duty (GL_RUN) keeps its work from a device count in none of
 * them. */
struct gl_progress {
	struct gl_header header;
	uint64_t calls;
	uint64_t busy_ns;
	uint64_t seen_ns;
	uint64_t wanted_ns;
	uint64_t bursts;
};

/* GL_RESTORED: how many bytes were restored for this lease, and how long that took. */
struct gl_restored {
	struct gl_header header;
	uint64_t epoch;
	uint64_t bytes;
	uint64_t ns;
};

struct gl_refused {
	struct gl_header header;
	uint32_t code; /* enum gl_refusal */
	uint32_t zero;
	char reason[240]; /* GL_REASON_BYTES */
};

/* GL_WAITS: why a client that asks for a lease has none. The client understands the first code
 * only; of the others it knows that different codes are different reasons. */
enum gl_waits_code {
	GL_WAITS_TURN = 0,    /* other jobs come first; `reason` is empty */
	GL_WAITS_DRAINED = 1, /* the site has drained a device of the gang */
	GL_WAITS_LOST = 2,    /* a device of the gang is lost, or has another fault */
	GL_WAITS_CROWDED = 3, /* fixed memory of other jobs leaves no space */
	GL_WAITS_STOPPED = 4, /* memory of a stopped job leaves no space */
	GL_WAITS_SHARE = 5,   /* other jobs request so much that too little is left of a device */
	GL_WAITS_COPIES = 6,  /* an allocation of the job waits for host memory for copies */
	GL_WAITS_ONLINE = 7,  /* the job is offline, and an online one has a device of the gang */
	GL_WAITS_NODES = 8    /* the job cannot begin on another one of its nodes */
};

struct gl_waits {
	struct gl_header header;
	uint32_t code; /* enum gl_waits_code, perhaps of a later release */
	uint32_t zero;
	char reason[240]; /* GL_REASON_BYTES */
};
/* cffi:end */

_Static_assert(sizeof(struct gl_device) == 40, "wire layout");
_Static_assert(sizeof(struct gl_memory) == 24 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_hello) == 32 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_welcome) == 32 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_grant) == 48 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_revoke) == 32, "wire layout");
_Static_assert(sizeof(struct gl_contended) == 40, "wire layout");
_Static_assert(sizeof(struct gl_released) == 48, "wire layout");
_Static_assert(sizeof(struct gl_epoch) == 24, "wire layout");
_Static_assert(sizeof(struct gl_progress) == 56, "wire layout");
_Static_assert(sizeof(struct gl_restored) == 40, "wire layout");
_Static_assert(sizeof(struct gl_refused) == 264, "wire layout");
_Static_assert(sizeof(struct gl_waits) == 264, "wire layout");

#endif
