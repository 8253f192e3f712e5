/* wire.h: the protocol between a client (libgpulease.so) and gpu-leased.
 *
 * Fixed structs over SOCK_SEQPACKET, native byte order (both ends are one
 * machine), one message per packet, every message starts with gl_header.
 * Python reads this same text, after the C preprocessor: what stands between the two cffi
 * marks must be plain C declarations and constants. A message is a row of messages.def and a
 * struct here. Sizes are asserted below, and tests/wire/data/wire_vectors.json holds golden bytes
 * that both sides check.
 *
 * Sequence of one client (C) and the daemon (D):
 *   C HELLO    -> D WELCOME or REFUSED (then the daemon closes)
 *   C MEMORY      whenever its memory on a device changed; absolute values
 *   C REQUEST     a thread waits at the gate; idempotent
 *   D GRANT       the gate may open, until a REVOKE with the same epoch. It says as
 *                 CONTENDED does whether somebody waits
 *   D RESTORE     of the lease it has: bring back what others displaced. Who has
 *                 released that lease ignores it, though the daemon may not have
 *                 heard of the release yet
 *   D CONTENDED   somebody waits: release after so much idleness (or: nobody
 *                 waits any more, GL_IDLE_NEVER)
 *   D REVOKE      close the gate, drain, release
 *   C RELEASED    the gate is closed and everything submitted has finished;
 *                 with GL_RELEASED_WANTS it is a REQUEST as well
 *   C STUCK       what was submitted does not finish: it may wait for work of
 *                 another process of the tenant (a collective's kernels do)
 *   D STEP        to those that have released: hold it again for one call, so
 *                 that the stuck one can finish; then RELEASED (or STUCK) again
 *   D OTHERS      memory that the other clients of the tenant have
 *   D EVICT       (memory:swap) to those without a lease: so much must leave the
 *                 device, oldest allocations first; MEMORY tells how far it is
 *   D PRELOAD     (memory:swap) to one that waits: so much of its memory may come to
 *                 the device before its turn
 *   D EXPECT      (memory:swap) to one that holds: so much may have to leave soon
 *   D AHEAD       (memory:swap) so much may have to leave some time: host memory of the node for
 *                 that is to be there before, and for no more. Absolute
 *   C RESTORED    (memory:swap) all is back and the gate opens: the quantum begins
 *   D MEASURE     how far are you?
 *   C PROGRESS    so many calls submitted
 *   C WHY         I have waited for a while: for what? (only of a daemon that has
 *                 said GL_WELCOME_EXPLAINS)
 *   D WAITS       for your turn, or for this
 *   C NAME        (once it shares memory) this is my name. D NAMED: it is known
 *   C MEET        introduce me to the process of my job that has this name
 *   D MET         to both, each with one end of a pair of sockets; or to the asker
 *                 alone: there is nobody of that name
 *   C HOST_TAKE   (memory:swap) I need so much host memory for copies (only of a daemon that
 *                 has said GL_WELCOME_HOST). Asked again with the same number it is the same
 *                 memory, so what a daemon has not answered the next one is asked
 *   C HOST_GIVE   that of this number is not mapped any more
 *   C CLAIM       (memory:swap) I am about to have so much on this device, and what of it may
 *                 have to leave must find host memory (only of a daemon that has said
 *                 GL_WELCOME_HOST)
 *   D CLAIMED     you may have so much; or it waits, or is refused, for this reason
 *   C DETAILS     for people: why memory stays on this device, and how much left it without a
 *                 copy (only of a daemon that has said GL_WELCOME_DETAILS)
 *   D HOST        here it is, as a descriptor; or there is none; or it has been taken back
 *   D LEAVE       to those without a lease: all memory must leave all devices, whether
 *                 or not somebody needs the room. What comes back comes with a GRANT
 *   C SUSPENDS    Slurm is about to stop this process: the job is to give up its lease
 *                 and memory now (only to a daemon that has said GL_WELCOME_PARKS)
 *   D RESYNC      a new daemon has this connection of the one before: say HELLO
 *                 again. What it hears before that HELLO it ignores
 * A message with an old epoch is ignored by both sides. Ended connection =
 * the client is gone, and with it what it held.
 *
 * Releases meet: a job keeps the interposer that it began with, while the node's
 * daemon is replaced, by a newer release or an older one.
 * Within one GL_VERSION
 *   - no struct changes, and no number gets another meaning. What is new is a new
 *     type of message or a new bit of some flags. A known type with another length
 *     or an impossible value is a fault, and is refused.
 *   - both sides ignore types and bits that they do not know.
 *   - the daemon sends a new type only where a client that ignores it loses no more
 *     than what is new. A client sends a new type only to a daemon that has said in
 *     a bit of its WELCOME that it knows it, for that of 0.1.0 refuses what it does
 *     not know.
 * Between versions
 *   - gl_header, GL_REFUSED and gl_refused are the same for ever.
 *   - the daemon serves GL_OLDEST_VERSION to GL_VERSION: each version for one release
 *     more than it is the newest of. It speaks to each client in the version of its
 *     HELLO, and says RESYNC in all.
 *   - other versions are refused with GL_REFUSED_VERSION, in the lower of the two,
 *     which both sides can read.
 *   - an interposer reads refusals of every version. One of a lower version than its
 *     own comes from a daemon that has not been updated yet: it waits for that. Any
 *     other is final.
 * For people are gl_refused.reason and gl_waits.reason: one sentence with the remedy.
 */
#ifndef GPU_LEASE_WIRE_H
#define GPU_LEASE_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define GL_MAGIC 0x534C5047 /* "GPLS" in memory */
#define GL_VERSION 1
#define GL_OLDEST_VERSION 1 /* that the daemon serves as well */
#define GL_MAX_DEVICES 16   /* devices in one gang */
#define GL_UUID_BYTES 16    /* as cuDeviceGetUuid gives them; NVML's text less its prefix */
#define GL_NAME_BYTES 16    /* of a process that shares memory */
#define GL_REASON_BYTES 240 /* a sentence, NUL-terminated UTF-8 */
#define GL_MAX_MESSAGE 1024 /* no message is longer */

enum gl_sender { GL_CLIENT = 1, GL_DAEMON = 2 };

enum gl_type {
#define MESSAGE(name, number, body, sender, since) GL_##name = number,
#include "base/messages.def"
#undef MESSAGE
};

/* One row of messages.def. */
struct gl_message {
	const char *name;  /* less GL_ */
	const char *body;  /* its struct */
	const char *since; /* release */
	uint32_t size;
	uint16_t type;   /* enum gl_type */
	uint16_t sender; /* enum gl_sender */
};

const struct gl_message *gl_message_at(uint32_t index); /* the rows in order; NULL: no more */
const struct gl_message *gl_message_of(uint32_t type);  /* NULL: not in this release */

enum gl_hello_flags {
	GL_HELLO_WANTS = 1 /* threads wait at the gate */
};

enum gl_welcome_flags {
	GL_WELCOME_OVERSUB = 1,    /* the job may allocate more than the device holds */
	GL_WELCOME_SWAP = 2,       /* allocations are swapped, not managed */
	GL_WELCOME_EXPLAINS = 4,   /* this daemon answers GL_WHY */
	GL_WELCOME_INTRODUCES = 8, /* ... and GL_NAME and GL_MEET */
	GL_WELCOME_HOST = 16,      /* ... and GL_HOST_TAKE and GL_HOST_GIVE */
	GL_WELCOME_PARKS = 32,     /* ... and hears GL_SUSPENDS */
	GL_WELCOME_CLEAN = 64,     /* what is as its copy is need not be copied again */
	GL_WELCOME_DETAILS = 128   /* this daemon hears GL_DETAILS */
};

enum gl_grant_flags {
	GL_GRANT_SHARED = 1 /* others run beside this tenant; unset: exclusive */
};

enum gl_release_reason {
	GL_RELEASE_REVOKED = 1, /* answer to a REVOKE */
	GL_RELEASE_IDLE = 2     /* idle while contended: the client yields */
};

enum gl_released_flags {
	GL_RELEASED_WANTS = 1 /* threads wait at the gate */
};

enum gl_refusal {
	GL_REFUSED_VERSION = 1,   /* the daemon does not serve this version */
	GL_REFUSED_NO_TENANT = 2, /* the process belongs to no registered tenant */
	GL_REFUSED_LIMIT = 3,     /* too many clients or messages */
	GL_REFUSED_PROTOCOL = 4   /* a message that makes no sense */
};

struct gl_header {
	uint32_t magic;   /* GL_MAGIC */
	uint16_t version; /* GL_VERSION */
	uint16_t type;    /* enum gl_type */
	uint32_t length;  /* of the whole message, bytes */
	uint32_t zero;
};

/* One device and amounts. Their meaning is the message's; 0 where it has none. */
struct gl_device {
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t bytes;
	uint64_t fixed;
	uint64_t resident;
};

/* GL_MEMORY: bytes = evictable memory this client has on the device, fixed =
 * plain memory that cannot be evicted, resident = of the evictable what is
 * known to be on the device now (memory:swap; managed memory is the driver's
 * to know). Absolute, one entry for each device that the client has used.
 * GL_OTHERS: the same of all the other clients of the tenant together. */
struct gl_memory {
	struct gl_header header;
	uint32_t n_devices;
	uint32_t zero;
	struct gl_device devices[16]; /* GL_MAX_DEVICES */
};

/* GL_HELLO: first message of every connection, also of a renewed one, so a
 * restarted daemon can rebuild what it knew. */
struct gl_hello {
	struct gl_header header;
	uint64_t held_epoch; /* of the lease this client holds, else 0 */
	uint32_t flags;      /* enum gl_hello_flags */
	uint32_t n_devices;
	struct gl_device devices[16]; /* as in GL_MEMORY */
};

/* GL_WELCOME: the gang. bytes = what the job sees as the device's total
 * memory (the device less the reserve, or the job's mem: cap), fixed = 0. */
struct gl_welcome {
	struct gl_header header;
	uint32_t flags; /* enum gl_welcome_flags */
	uint32_t n_devices;
	uint64_t job_id;
	struct gl_device devices[16];
};

/* GL_GRANT: devices[].bytes = how much may be prefetched to that device now,
 * 0 for none. With memory:swap all comes back before the gate opens, as room
 * appears. GL_RESTORE: the same, for a gate that is open already. */
struct gl_grant {
	struct gl_header header;
	uint64_t epoch;
	uint64_t quantum_ns;   /* how long the lease lasts while somebody waits */
	uint64_t idle_ns;      /* as in GL_CONTENDED */
	uint64_t in_flight_ns; /* as in GL_CONTENDED */
	uint32_t flags;        /* enum gl_grant_flags */
	uint32_t n_devices;
	struct gl_device devices[16];
};

/* GL_REVOKE: deadline_ns = time to drain before it counts as an overrun. */
struct gl_revoke {
	struct gl_header header;
	uint64_t epoch;
	uint64_t deadline_ns;
};

#define GL_IDLE_NEVER 0xFFFFFFFFFFFFFFFF

/* GL_CONTENDED: while this holds, release after idle_ns of idleness, and keep
 * at most in_flight_ns of work submitted (0: no bound). */
struct gl_contended {
	struct gl_header header;
	uint64_t epoch;
	uint64_t idle_ns;
	uint64_t in_flight_ns;
};

/* GL_STUCK, GL_STEP: of a revoked lease. */
struct gl_epoch {
	struct gl_header header;
	uint64_t epoch;
};

/* GL_RELEASED: what the prefetch of this lease moved and how long it took
 * lets the daemon measure the link. */
struct gl_released {
	struct gl_header header;
	uint64_t epoch;
	uint32_t reason; /* enum gl_release_reason */
	uint32_t flags;  /* enum gl_released_flags */
	uint64_t drain_ns;
	uint64_t prefetch_bytes;
	uint64_t prefetch_ns;
};

/* GL_PROGRESS: gated calls that the process has made since it started. */
struct gl_progress {
	struct gl_header header;
	uint64_t calls;
};

/* GL_RESTORED: what came over the link for this lease, and how long it took. */
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

/* GL_WAITS: what keeps the lease from a client that asks for it. Codes tell
 * reasons apart; to the client only the first has a meaning. */
enum gl_waits_code {
	GL_WAITS_TURN = 0,    /* others are before it; there is no reason */
	GL_WAITS_DRAINED = 1, /* the site has drained a device of the gang */
	GL_WAITS_LOST = 2,    /* a device of the gang is lost, or has another fault */
	GL_WAITS_CROWDED = 3, /* others' memory that cannot be moved leaves no room */
	GL_WAITS_STOPPED = 4  /* memory of a stopped job leaves no room */
};

struct gl_waits {
	struct gl_header header;
	uint32_t code; /* enum gl_waits_code, also of later releases */
	uint32_t zero;
	char reason[240]; /* GL_REASON_BYTES */
};
/* GL_NAME: chosen by the process, at random. */
struct gl_name {
	struct gl_header header;
	uint8_t name[16]; /* GL_NAME_BYTES */
};

struct gl_meet {
	struct gl_header header;
	uint8_t name[16]; /* of the other process */
	uint64_t number;  /* the asker's own, for the answer */
	uint64_t what[2]; /* to be told to the other process: which memory */
};

/* GL_MET: the descriptor is an end of a pair of sockets (SOCK_SEQPACKET). */
enum gl_met_code {
	GL_MET_INTRODUCED = 0, /* to the asker, with its end */
	GL_MET_ASKED = 1,      /* to the other process, with its end */
	GL_MET_NOBODY = 2,     /* to the asker: no process of its job has that name */
	GL_MET_LATER = 3       /* the same, but one may come: ask again */
};

struct gl_met {
	struct gl_header header;
	uint32_t code; /* enum gl_met_code */
	uint32_t zero;
	uint64_t number;
	uint64_t what[2];
};

/* GL_HOST_TAKE, GL_HOST_GIVE. number: the process' own, of no other memory that it asks for;
 * its upper half is the same for all, and chosen at random: it tells programs apart that one
 * process runs one after the other. bytes: whole units of GL_HOST_UNIT. */
#define GL_HOST_UNIT 2097152
struct gl_host {
	struct gl_header header;
	uint64_t number;
	uint64_t bytes;
};

enum gl_host_code {
	GL_HOST_TAKEN = 0,  /* with a descriptor: a file of these bytes, whose pages are there */
	GL_HOST_GIVEN = 1,  /* it is the node's again */
	GL_HOST_FULL = 2,   /* the node's memory for copies is used up, or the job's part of it */
	GL_HOST_FAILED = 3, /* the node cannot make any now */
};

struct gl_host_answer {
	struct gl_header header;
	uint32_t code; /* enum gl_host_code */
	uint32_t zero;
	uint64_t number;
	uint64_t bytes;
};

/* GL_CLAIM. number: for the answer. bytes: what the process would like to have on the device in
 * all, least: what it needs now. Less than before is given back at once. */
struct gl_claim {
	struct gl_header header;
	uint64_t number;
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t bytes;
	uint64_t least;
};

/* Is memory that is what its copy is known for that (GL_WELCOME_CLEAN)? If not: why. */
enum gl_clean {
	GL_CLEAN_UNKNOWN = 0,  /* nothing has left that could be */
	GL_CLEAN_ON = 1,       /* the device has computed a fingerprint of known bytes rightly */
	GL_CLEAN_SITE = 2,     /* the site does not want it */
	GL_CLEAN_DRIVER = 3,   /* the driver lacks functions, or refuses the module or the kernel */
	GL_CLEAN_WRONG = 4,    /* the device's fingerprint of known bytes was wrong */
	GL_CLEAN_NO_RANDOM = 5 /* the kernel has no random keys */
};

/* GL_DETAILS, of one device. left: bytes of swapped memory that have left the device without being
 * copied, since the last message. The others are what of gl_device.fixed is fixed for which reason:
 * shared with other processes; no host memory for it; mapped by the program and known to others, or
 * in a way that cannot be moved; all else (arrays, memory of graphs). */
struct gl_details {
	struct gl_header header;
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t left;
	uint64_t shared;
	uint64_t unhosted;
	uint64_t mapped;
	uint64_t other;
	uint32_t clean; /* enum gl_clean, also of later releases */
	uint32_t zero;
};

enum gl_claim_code {
	GL_CLAIM_GRANTED = 0, /* the process may have `bytes` on the device */
	GL_CLAIM_REFUSED = 1, /* it may not have more than `bytes` */
	GL_CLAIM_WAITS = 2    /* the answer comes when there is room */
};

struct gl_claimed {
	struct gl_header header;
	uint32_t code; /* enum gl_claim_code */
	uint32_t zero;
	uint64_t number;
	uint64_t bytes;
	uint8_t uuid[16];
	char reason[232]; /* a sentence, NUL-terminated UTF-8; empty for the first code */
};
/* cffi:end */

_Static_assert(sizeof(struct gl_header) == 16, "wire layout");
_Static_assert(sizeof(struct gl_device) == 40, "wire layout");
_Static_assert(sizeof(struct gl_memory) == 24 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_hello) == 32 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_welcome) == 32 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_grant) == 56 + 16 * 40, "wire layout");
_Static_assert(sizeof(struct gl_revoke) == 32, "wire layout");
_Static_assert(sizeof(struct gl_contended) == 40, "wire layout");
_Static_assert(sizeof(struct gl_released) == 56, "wire layout");
_Static_assert(sizeof(struct gl_epoch) == 24, "wire layout");
_Static_assert(sizeof(struct gl_progress) == 24, "wire layout");
_Static_assert(sizeof(struct gl_restored) == 40, "wire layout");
_Static_assert(sizeof(struct gl_refused) == 264, "wire layout");
_Static_assert(sizeof(struct gl_name) == 32, "wire layout");
_Static_assert(sizeof(struct gl_meet) == 56, "wire layout");
_Static_assert(sizeof(struct gl_met) == 48, "wire layout");
_Static_assert(sizeof(struct gl_host) == 32, "wire layout");
_Static_assert(sizeof(struct gl_details) == 80, "wire layout");
_Static_assert(sizeof(struct gl_claim) == 56, "wire layout");
_Static_assert(sizeof(struct gl_claimed) == 288, "wire layout");
_Static_assert(sizeof(struct gl_host_answer) == 40, "wire layout");
_Static_assert(sizeof(struct gl_waits) == 264, "wire layout");

static inline struct gl_header message_header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

#endif
