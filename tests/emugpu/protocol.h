/* protocol.h: the protocol between the emulated driver libraries and emugpud.
 *
 * One stream connection for each thread of a client process, and a first one
 * that lives as long as the process. Requests are served in order on their
 * connection. Requests with EMU_ASYNC get no reply; `sent` counts all of them
 * in the process, so that a later request of another thread is served after
 * everything that was submitted before it.
 */
#ifndef EMUGPU_PROTOCOL_H
#define EMUGPU_PROTOCOL_H

#include <stdint.h>

#define EMU_SOCKET "emugpu.sock"
#define EMU_AWAY "away-" /* followed by the pid of a process that is not to connect now */
#define EMU_MAX_PAYLOAD (UINT64_C(1) << 32)
#define EMU_MAX_DEVICES 16

/* Device pointers are numbers between these; nothing is mapped there in any process. */
#define EMU_FIRST_ADDRESS UINT64_C(0x20000000000)
#define EMU_LAST_ADDRESS UINT64_C(0x400000000000)

enum emu_op {
	EMU_HELLO = 1,  /* arg0 role, arg1 process token, arg2 MPS server or 0, arg3 percent of the
	                 * multiprocessors; payload CUDA_VISIBLE_DEVICES, if it is set,
	                 * with its NUL -> r0 devices; the process counts only those from then on */
	EMU_DEVICE,     /* arg0 device -> payload struct emu_device_info */
	EMU_MEM_INFO,   /* arg0 device -> r0 free, r1 total, r2 used by processes */
	EMU_CTX_CREATE, /* arg0 device, arg1 primary, arg2 its whole or 0, arg3 the multiprocessors
	                 * that it may use, or 0: all -> r0 ctx */
	EMU_CTX_DESTROY,
	EMU_CTX_SYNC,      /* arg0 ctx */
	EMU_STREAM_CREATE, /* arg0 ctx, arg1 non-blocking -> r0 stream */
	EMU_STREAM_DESTROY,
	EMU_STREAM_SYNC,  /* arg0 stream */
	EMU_STREAM_QUERY, /* arg0 stream */
	EMU_EVENT_CREATE, /* arg0 ctx -> r0 event */
	EMU_EVENT_DESTROY,
	EMU_EVENT_SYNC,  /* arg0 event */
	EMU_EVENT_QUERY, /* arg0 event -> r0 recorded ever, r1 time ns */
	EMU_ALLOC,       /* arg0 ctx, arg1 bytes, arg2 enum emu_memory -> r0 pointer */
	EMU_FREE,        /* arg0 ctx, arg1 pointer; waits until the context is idle */
	EMU_RANGE,    /* arg0 pointer -> r0 base, r1 size, r2 enum emu_memory, r3 ctx, r4 device */
	EMU_CHECK,    /* arg0 pointer, arg1 bytes, arg2 access, arg3 ctx, arg4 enum emu_reach:
	               * is this access to all of the range allowed? */
	EMU_HOST_PIN, /* arg0 bytes of the client's that are registered */
	EMU_HOST_UNPIN,  /* arg0 bytes of the client's that are registered no more; waits until all
	                  * work has finished that the process has submitted before */
	EMU_VMM_RESERVE, /* arg0 bytes, arg1 alignment -> r0 address */
	EMU_VMM_UNRESERVE, /* arg0 address, arg1 bytes */
	EMU_VMM_CREATE,    /* arg0 device, arg1 bytes, arg2 exportable, arg3 open -> r0 handle */
	EMU_VMM_RELEASE,   /* arg0 handle */
	EMU_VMM_RETAIN,    /* arg0 pointer -> r0 handle */
	EMU_VMM_DEVICE,    /* arg0 handle -> r0 device, r1 exportable, r2 open */
	EMU_VMM_HOLD,      /* arg0 number in a file: one more handle, perhaps of another process's
	                    * memory */
	EMU_VMM_MAP,       /* arg0 address, arg1 bytes, arg2 handle, arg3 offset */
	EMU_VMM_UNMAP,     /* arg0 address, arg1 bytes */
	EMU_VMM_PROTECT,   /* arg0 address, arg1 bytes, arg2 a bit for each device to change,
	                    * arg3 the access, two bits for each device */
	EMU_VMM_ACCESS,    /* arg0 address, arg1 device -> r0 access */
	EMU_PEER_ENABLE,   /* arg0 ctx, arg1 the other device's ctx -> r0: access was not enabled
	                    * before */
	EMU_PEER_DISABLE,  /* the same -> r0: access was enabled before */
	EMU_GRAPH_RESERVE, /* arg0 device, arg1 bytes -> r0 pointer, for a graph */
	EMU_GRAPH_BACK,    /* arg0 pointer, arg1 enum emu_backing */
	EMU_GRAPH_CANCEL,  /* arg0 pointer: the launch for which it was backed is given up */
	EMU_GRAPH_DROP,    /* arg0 pointer: no graph uses it any more */
	EMU_GRAPH_TRIM,    /* arg0 device */
	EMU_GRAPH_GET,     /* arg0 device, arg1 enum emu_graph_value -> r0 */
	EMU_GRAPH_RESET,   /* arg0 device, arg1 enum emu_graph_value, a high mark */
	EMU_IPC_EXPORT,    /* arg0 pointer -> r0 memory */
	EMU_IPC_OPEN,      /* arg0 ctx, arg1 memory -> r0 pointer; r1: it is this process's own
	                    * memory */
	EMU_IPC_CLOSE,     /* arg0 pointer */
	EMU_POOL_CREATE,   /* arg0 device, arg1 most bytes or 0 -> r0 pool */
	EMU_POOL_DESTROY,  /* arg0 pool */
	EMU_POOL_ALLOC,    /* arg0 ctx, arg1 bytes, arg2 pool -> r0 pointer */
	EMU_POOL_TRIM,     /* arg0 pool, arg1 bytes to keep */
	EMU_POOL_GET,      /* arg0 pool, arg1 enum emu_pool_value -> r0 */
	EMU_POOL_SET,      /* arg0 pool, arg1 enum emu_pool_value, arg2 the new value */
	EMU_POOL_OPEN,     /* arg0 pool, arg1 device, arg2 = 1: the device may reach the
	                    * pool's memory; 0: it may not */
	EMU_POOL_IS_OPEN,  /* arg0 pool, arg1 device -> r0 */
	EMU_RM,            /* arg0 number of an ioctl of rm.h; payload its struct, then its
	                    * parameters -> payload the same, as the kernel leaves them. Served
	                    * at once, whatever was submitted before */
	EMU_CHECKPOINT,    /* arg0 enum emu_checkpoint, arg1 pid, arg2 ms of a lock or 0, or whether
	                    * the process lets go of its connections at a checkpoint; payload of    a
	                    * restore: old and new UUIDs, 16 bytes each -> r0 enum    emu_process_state,
	                    * of a question for it. Served at once */
	EMU_READ,          /* arg0 stream, arg1 pointer, arg2 bytes, arg3 = 1: pinned -> payload */
	EMU_HOST_CALLBACK, /* on a connection of role callback: the client's function has
	                    * returned */
	EMU_PROCESSES,     /* arg0 device -> payload struct emu_process_info[] */
	EMU_UTILIZATION, /* arg0 device -> r0 busy ns ever, r1 now ns, r2 moved in, r3 moved out, r4
	                  * its clock in millionths of the highest */
	EMU_STATS,       /* -> payload JSON */
	EMU_INJECT,      /* arg0 device, arg1 enum emu_fault, arg2 its value */
	EMU_ASYNC = 0x100, /* from here on there is no reply, and arg0 is the stream */
	EMU_LAUNCH,        /* arg1 kernel, arg2.. parameters */
	EMU_WRITE,         /* arg1 pointer, arg2 bytes, arg3 = 1: from pinned memory; payload */
	EMU_COPY,          /* arg1 to, arg2 from, arg3 bytes, arg4 enum emu_reach */
	EMU_SET,           /* arg1 pointer, arg2 value, arg3 width, arg4 count */
	EMU_PREFETCH,      /* arg1 pointer, arg2 bytes, arg3 to device (1) or host (0) */
	EMU_RECORD,        /* arg1 event; arg2 = 1: of the whole context */
	EMU_WAIT,          /* arg1 event */
	EMU_HOST_FUNC,     /* arg1 function, arg2 data, in the client */
	EMU_FREE_ORDERED,  /* arg1 pointer */
	EMU_WRITE_FROM, /* as EMU_WRITE without a payload: it is fetched from arg4, in the client */
	EMU_GRAPH_ALLOC, /* arg1 pointer: from now on the memory may be used */
	EMU_WRITE_VALUE, /* arg1 pointer, arg2 value, arg3 width */
	EMU_WAIT_VALUE,  /* arg1 pointer, arg2 value, arg3 width, arg4 enum emu_condition */
	EMU_READ_TO      /* as EMU_READ, and arg4 address in the client, which gets the bytes */
};

enum emu_role {
	EMU_ROLE_PROCESS = 1,
	EMU_ROLE_THREAD,
	EMU_ROLE_CALLBACK, /* the server asks for host functions: struct emu_reply, r0, r1 */
	EMU_ROLE_MONITOR,
	EMU_ROLE_DELIVERY, /* the server sends bytes for host memory or, r1, asks for so many: r0 */
	EMU_ROLE_FILE /* a file that stands for physical memory, arg[4]: it keeps the memory alive,
	               * and what can be read from it is struct emu_file */
};

/* How memory was allocated. Only managed memory leaves the device. */
enum emu_memory {
	EMU_PLAIN = 0,
	EMU_MANAGED = 1,
	EMU_PHYSICAL,
	EMU_ARRAY,
	EMU_POOLED,
	EMU_IMPORTED,
	EMU_GRAPH
};

/* Kinds of access to a range, as bits. */
#define EMU_READABLE 1
#define EMU_WRITABLE 2

/* How an operation reaches memory. A kernel, a set and a stream's write of a word reach what the
 * device of their context may reach. A copy reaches memory of any device, except mappings and
 * pools; a copy that names the contexts of both sides reaches these too. */
enum emu_reach { EMU_BY_KERNEL, EMU_BY_COPY, EMU_BY_PEER_COPY };

/* The condition of EMU_WAIT_VALUE, with CUDA's numbers. */
enum emu_condition { EMU_GEQ, EMU_EQ, EMU_AND, EMU_NOR };

/* In the order of CUDA's attributes of pools, from CU_MEMPOOL_ATTR_RELEASE_THRESHOLD on. */
enum emu_pool_value {
	EMU_POOL_THRESHOLD,
	EMU_POOL_RESERVED,
	EMU_POOL_RESERVED_HIGH,
	EMU_POOL_USED,
	EMU_POOL_USED_HIGH,
	EMU_POOL_VALUES
};

/* What memory of a graph is backed for. Memory that the graph does not free itself can be backed
 * for another launch once it has been freed. */
enum emu_backing { EMU_FOR_UPLOAD, EMU_FOR_LAUNCH, EMU_FOR_UNFREED };

/* In the order of CUDA's attributes. */
enum emu_graph_value {
	EMU_GRAPH_USED,
	EMU_GRAPH_USED_HIGH,
	EMU_GRAPH_RESERVED,
	EMU_GRAPH_RESERVED_HIGH,
	EMU_GRAPH_VALUES
};

/* lost: the device is off the bus. ecc: contexts whose work runs now are broken, later ones are
 * not. repaired: a lost device is back, as after a reset; the contexts that it had stay broken.
 * Of controls of channel groups: all are unknown; the next one that changes something fails; stops
 * never return, and do not stop; compute groups have the slice `value` (in us) whatever is set;
 * contexts have `value` compute channels from now on; all of that is over.
 * Of process checkpoints: the next lock, checkpoint, restore or unlock of a process whose first
 * device this is fails, or the `value`-th from now on.
 * No fault, but as seldom: kernels that only spin, and are there now, are over once they run. */
enum emu_fault {
	EMU_FAULT_LOST = 1,
	EMU_FAULT_OOM_ONCE = 2,
	EMU_FAULT_ECC = 3,
	EMU_FAULT_REPAIRED = 4,
	EMU_FAULT_CONTROLS_UNKNOWN = 5,
	EMU_FAULT_CONTROL_ONCE = 6,
	EMU_FAULT_STOP_HANGS = 7,
	EMU_FAULT_OWN_SLICE = 8,
	EMU_FAULT_CHANNELS = 9,
	EMU_FAULT_CONTROLS_WORK = 10,
	EMU_FAULT_LOCK = 11, /* in the order of enum emu_checkpoint */
	EMU_FAULT_SAVE = 12,
	EMU_FAULT_RESTORE = 13,
	EMU_FAULT_UNLOCK = 14,
	EMU_FAULT_SPINS_END = 15
};

/* What is done to a process, by another one or by itself, in the order of cuda.h. */
enum emu_checkpoint {
	EMU_CP_STATE,
	EMU_CP_LOCK,
	EMU_CP_SAVE,
	EMU_CP_RESTORE,
	EMU_CP_UNLOCK,
	EMU_CPS
};

/* With CUDA's numbers. */
enum emu_process_state { EMU_RUNNING, EMU_LOCKED, EMU_CHECKPOINTED };

/* Results; the libraries turn them into CUresult or nvmlReturn_t. */
enum emu_status {
	EMU_OK = 0,
	EMU_INVALID,
	EMU_OOM,
	EMU_NOT_READY,
	EMU_BAD_ADDRESS, /* sticky for the context */
	EMU_LOST,        /* sticky for the device */
	EMU_ECC,         /* sticky for the context */
	EMU_NOT_SUPPORTED,
	EMU_ILLEGAL_STATE,
	EMU_OS /* what a card's driver calls an error of the operating system */
};

struct emu_request {
	uint32_t op;
	uint32_t zero;
	uint64_t payload; /* bytes that follow */
	uint64_t sent;    /* asynchronous requests that the process had sent before this one */
	uint64_t arg[8];
};

#define EMU_FILE_MARK "EMUVMM1"

struct emu_file {
	char mark[8];
	uint64_t id; /* the server's number of the memory */
};

struct emu_reply {
	uint32_t status; /* enum emu_status */
	uint32_t zero;
	uint64_t payload;
	uint64_t r[5];
};

struct emu_device_info {
	char name[64];
	char uuid[48]; /* GPU-xxxxxxxx-... */
	uint8_t uuid_bytes[16];
	uint64_t memory;
	uint64_t context_bytes;
	uint32_t cc_major, cc_minor, multiprocessors, minor_number;
	uint32_t clock_mhz, memory_clock_mhz, bus_width, peers;
	uint32_t compute_channels, zero; /* of a context */
};

struct emu_process_info {
	uint32_t pid, zero;
	uint64_t bytes; /* contexts and plain memory, no managed memory */
	uint64_t busy_ns;
};

/* The built-in kernels; the order is the number that EMU_LAUNCH carries. */
enum emu_kernel {
	EMU_FILL,
	EMU_ADD,
	EMU_CHECKSUM,
	EMU_SPIN,
	EMU_EMPTY,
	EMU_FINGERPRINT, /* see engine/fingerprint.c; its last parameter is the payload */
	EMU_KERNELS
};
#define EMU_FINGERPRINT_KEYS 248 /* bytes */

struct emu_kernel_info {
	const char *name;
	int n_params;
	uint8_t param_size[4];
};

static const struct emu_kernel_info emu_kernel_table[EMU_KERNELS] = {
    [EMU_FILL] = {"fill", 3, {8, 8, 4, 0}},
    [EMU_ADD] = {"add", 4, {8, 8, 4, 4}},
    [EMU_CHECKSUM] = {"checksum", 3, {8, 8, 8, 0}},
    [EMU_SPIN] = {"spin", 1, {8, 0, 0, 0}},
    [EMU_EMPTY] = {"empty", 0, {0, 0, 0, 0}},
    [EMU_FINGERPRINT] = {"gpu_lease_fingerprint", 4, {8, 8, 8, EMU_FINGERPRINT_KEYS}},
};

#endif
