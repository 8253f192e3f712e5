/* engine.h: the emulated devices, without CUDA's terms: blocks of memory, streams of operations,
 * and three engines for each device (compute, copy in, copy out) whose work takes time. One lock
 * guards everything. It is given up while an engine sleeps for the time that its work takes, and
 * while a kernel computes on a pinned block. */
#ifndef EMUGPU_ENGINE_H
#define EMUGPU_ENGINE_H

#include "protocol.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model {
	char name[64];
	uint64_t memory, block, context_bytes;
	uint64_t link, fault, pageable, bandwidth; /* bytes/s */
	uint64_t peer;                             /* the same for the link between devices; 0:
	                                            * devices are not peers */
	/* Host memory that is registered, and no more, and what a checkpoint and its restore add
	 * for it together (bytes/s); 0: no time. */
	uint64_t pin, unpin, registered;
	double duplex;      /* the part of `link` that each direction gets
	                     * when both are busy */
	uint64_t slice_ns;  /* the slice of a group that nobody has changed, SLICE_US on a card */
	uint64_t switch_ns; /* time lost when the device turns to another context's kernels */
	/* By which part kernels take longer where others have worked all the time; by which part
	 * the clock falls where the device has; and what lately means. 0: by none. */
	double contention, throttle;
	double sm_knee; /* the part of the multiprocessors from which on a kernel that passes over
	                 * memory has all its speed; 1: none */
	uint64_t load_ns;
	unsigned cc_major, cc_minor, multiprocessors;
};

/* The part of the time in which there was work lately, as of then. */
struct load {
	double part;
	uint64_t at;
};

struct frame {
	struct alloc *owner; /* NULL: free */
	uint32_t block;
	uint32_t pins;
	uint64_t used; /* grows with each use: the smallest is the least recently used */
	bool stale;    /* a free one that has bytes of memory that has ended */
};

#define NO_FRAME UINT32_MAX

struct block {
	uint32_t frame; /* NO_FRAME: not on the device */
	bool dirty;     /* written since it was last copied to the host */
	bool written;   /* data has been written to it */
	bool saved;     /* it is in the image of its allocation */
	bool filled;    /* all its words are to be `fill`; block_data() sets them */
	uint32_t fill;
	uint32_t added; /* to each of its words by kernels; block_data() does it */
};

/* Memory of a device. It exists while its pointer, a handle or a mapping of it does. */
struct alloc {
	struct alloc *next;      /* the next one of its context, or of the process's physical
	                          * memory */
	struct context *context; /* the context with which it ends; NULL: none, or that context
	                          * has ended */
	struct process *process; /* the process for which it counts; NULL: that has ended, but
	                          * another one maps it */
	struct device *device;
	enum emu_memory kind;
	struct pool *pool; /* EMU_POOLED: the pool to which it returns when it is freed */
	bool idle;         /* it has been freed and is in its pool */
	uint64_t id;
	uint64_t base, size; /* base 0: it has no address of its own, only those of mappings */
	uint32_t holders, mappings, imports;
	bool exportable; /* EMU_PHYSICAL: it can be exported as a file */
	bool open;       /* EMU_PHYSICAL: RDMA was asked for, which nothing uses here */
	struct {
		bool backed, live, dropped; /* of memory of a graph: it has blocks; it is
		                             * allocated; no graph uses it any more */
		bool unfreed;               /* a launch has left it allocated, or will */
		uint32_t scheduled;         /* launches that will allocate it */
	} graph;                            /* EMU_GRAPH */
	bool managed;
	uint8_t *host;  /* backing of managed memory */
	uint8_t *image; /* of a checkpointed process: the blocks that were on the device */
	bool exported;  /* another process can open it (cuIpcGetMemHandle) */
	uint32_t n_blocks;
	struct block blocks[];
};

/* A pool of device memory, for allocations in stream order. */
struct pool {
	struct pool *next;
	struct device *device;
	uint64_t id, most;
	uint64_t value[EMU_POOL_VALUES];
	bool open_to[EMU_MAX_DEVICES]; /* other devices that may reach its memory */
	bool destroyed;                /* destroyed: it ends with its last allocation */
};

/* Handles of a process to another process's physical memory. */
struct import {
	struct import *next;
	struct alloc *alloc;
	uint32_t holders;
};

/* A file that stands for physical memory, whichever processes have it open. */
struct export
{
	struct export *next;
	struct alloc *alloc;
};

/* Addresses that a process has reserved for mappings. */
struct reservation {
	struct reservation *next;
	uint64_t base, size;
};

enum access { ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

/* A mapping: memory at an address that is not its own. */
struct mapping {
	struct mapping *next;
	struct alloc *alloc;
	uint64_t base, size, offset;     /* offset: of the mapping in the memory */
	uint8_t access[EMU_MAX_DEVICES]; /* by device, its access as bits of enum access */
	struct context *context;         /* of another process's memory: the context with which
	                                  * the mapping ends */
	uint32_t opened;                 /* so often */
};

/* The memory that a pointer points to. */
struct range {
	struct alloc *alloc;
	struct mapping *mapping; /* NULL: the pointer is to the memory's own address */
	uint64_t base, size;     /* of the allocation or the mapping */
	uint64_t offset;         /* of the pointer in the memory */
	uint64_t bytes;          /* from the pointer to the end of the range */
};

/* The device of a context reaches what another device's context has allocated. */
struct peering {
	struct peering *next;
	struct context *from, *to;
};

struct op {
	struct op *next;
	enum emu_op kind;
	struct stream *stream;
	uint64_t seq;
	uint64_t arg[8];
	uint8_t *data;      /* EMU_WRITE: the bytes to write; EMU_READ: the bytes for the reply;
	                     * EMU_READ_TO, EMU_WRITE_FROM: a window of them, which is made when it is
	                     * first needed */
	uint64_t window;    /* where in the operation's bytes `data` begins */
	uint64_t done;      /* progress in bytes */
	uint64_t delivered; /* EMU_READ_TO: bytes that the client has received; EMU_WRITE_FROM:
	                     * bytes that have arrived here */
	uint64_t result;    /* EMU_CHECKSUM: the sum so far */
	struct fingerprint *fingerprint; /* EMU_FINGERPRINT so far */
	struct event *event;
	uint64_t generation;
	const struct alloc *pins; /* the memory on a block of which it computes now */
	bool running;
	struct channel *channel; /* in which it waits; NULL: it needs none */
	struct op *behind;       /* the next one in its channel */
	uint64_t owed;           /* ns that what is computed of it still takes */
	bool computed;           /* all of it */
	bool *finished;          /* set when the operation has ended; a thread waits for that */
};

enum engine_kind { ENGINE_COMPUTE, ENGINE_IN, ENGINE_OUT, ENGINE_HOST, N_ENGINES };
/* Host functions of several processes run at the same time, since they may wait for each other. */
#define MORE_HOST_ENGINES 3

/* A queue of a context's work for one engine, in the order in which it was submitted: what waits at
 * its head holds up what is behind it, of whatever stream. */
struct channel {
	struct op *first, *last;
	uint32_t length, streams; /* operations in it; streams that use it */
	bool stopped;             /* off the hardware: nothing of it runs */
	bool busy;                /* an engine works on its first operation */
};

/* The channels of a context for one engine. */
#define N_GROUPS 4 /* by enum engine_kind, and one for which there is no work */
#define MAX_CHANNELS 64
#define COPY_CHANNELS 4
#define COMPUTE_CHANNELS 8
#define SLICE_US 2048 /* of a compute group, as a card's driver makes it */
#define COPY_SLICE_US 1024

struct group {
	uint64_t number, slice_us; /* on a card */
	uint32_t n_channels;
	struct channel channels[MAX_CHANNELS];
};

struct stream {
	struct stream *next;
	struct context *context;
	uint64_t id;
	bool non_blocking, legacy;
	struct op *first, *last;
	uint32_t length;
	struct channel *channels[ENGINE_HOST]; /* for each engine, from its first operation on */
	struct channel *latest;                /* in which its latest operation was */
};

struct event {
	struct event *next;
	struct context *context;
	uint64_t id;
	/* How far the work has come behind which it was recorded: generations of records. */
	uint64_t issued, completed;
	uint64_t time_ns;
	uint32_t waiting; /* operations that refer to this event */
	bool destroyed;
};

struct context {
	struct context *next;
	struct process *process;
	struct device *device;
	uint64_t id;
	bool primary;
	struct context *whole;  /* of a green context: the primary context to which it belongs;
	                         * else NULL */
	struct stream *streams; /* the first one is the legacy default stream */
	struct event *events;
	struct alloc *allocs;
	uint64_t last_seq;      /* of its operations; they are numbered over all contexts */
	struct alloc *overhead; /* what the context itself takes of the device */
	struct group groups[N_GROUPS];
	uint32_t running;      /* operations that an engine is working on */
	struct load load;      /* its kernels */
	double part;           /* of the multiprocessors that it may use */
	uint64_t rests_until;  /* it has had its part of them (MPS) until then */
	enum emu_status error; /* sticky */
};

/* What a process moved and ran; kept after its end. */
struct account {
	struct account *next;
	uint32_t pid;
	bool alive;
	uint64_t faulted_in, copied_in, moved_out, kernels, busy_ns;
	uint64_t registered; /* host memory of its that was so at its last checkpoint */
	uint64_t cut_short;  /* operations that were unfinished when the process ended */
};

struct process {
	struct process *next;
	uint32_t pid;
	uint64_t token;
	uint64_t received; /* asynchronous requests served */
	uint64_t mps;      /* the MPS server of which it is a client; 0: of none */
	uint64_t percent;  /* of the multiprocessors that it has then */
	uint32_t uid;
	enum emu_process_state state; /* locked, its requests wait */
	bool locking;                 /* they wait already, and work is finishing */
	bool away;  /* it has let go of its connections, and may be restored by CRIU */
	bool stuck; /* a restore has found no room: as with driver 580, no later one works */
	uint32_t connections;
	int callback_fd;       /* connection that runs host functions, or -1 */
	bool in_host_function; /* one at a time */
	int delivery_fd;       /* the connection that exchanges bytes of host memory, or -1 */
	bool delivering;       /* an engine uses it */
	struct context *contexts;
	struct alloc *allocs; /* memory that belongs to no context: physical and pooled memory */
	struct pool *pools;
	uint64_t graph_memory[EMU_MAX_DEVICES][EMU_GRAPH_VALUES];
	struct rm_object *objects;
	struct reservation *reservations;
	struct mapping *mappings;
	struct import *imports;
	uint64_t registered; /* bytes of its host memory */
	struct peering *peerings;
	struct account *account;
	uint32_t visible[EMU_MAX_DEVICES], n_visible; /* devices as the process counts them */
	bool dead;
	pthread_cond_t changed; /* one of its operations ended, or something was freed */
	pthread_cond_t ends;    /* dead has become true */
	bool stirred;           /* to be handled at the next opportunity */
	uint32_t watchers; /* waiters for what is computed, not only for the end of operations */
};

struct device {
	const struct model *model;
	uint32_t index;
	struct emu_device_info info;
	uint8_t *memory;
	struct frame *frames;
	uint32_t n_frames;
	uint64_t stamp;
	struct account *accounts;
	enum emu_status error;
	bool oom_once;
	struct {
		bool unknown, once, stop_hangs;
		uint64_t slice_us; /* 0: as it is set */
		uint32_t channels; /* 0: COMPUTE_CHANNELS */
	} controls;                /* how they misbehave: enum emu_fault */
	uint32_t
	    checkpoint_fails[EMU_CPS]; /* the so-manieth call from now on fails; 0: none does */
	uint64_t in_until, out_until;  /* each direction of the link is busy until then */
	uint64_t busy_ns, in_bytes, out_bytes;
	struct load load;    /* kernels of all contexts */
	uint64_t peer_bytes; /* bytes of other devices that it has reached or copied directly */
	struct engine {
		struct device *device;
		enum engine_kind kind;
		uint64_t until;      /* simulated time up to which the engine is busy */
		bool waited;         /* since when it has had nothing to do */
		struct op *op;       /* for which it lets time pass */
		bool contended;      /* meanwhile another group has had work for it */
		uint64_t slice_left; /* ns of the slice of the context that it served last */
		uint64_t last_id;    /* the context that it served last; the next one in order is
		                      * served next */
		uint64_t last_mps;   /* the MPS server of that one; 0: none */
		pthread_cond_t work; /* it has to look for an operation */
		pthread_t thread;
	} engines[N_ENGINES + MORE_HOST_ENGINES];
};

struct emulator {
	pthread_mutex_t lock;
	struct device devices[EMU_MAX_DEVICES];
	uint32_t n_devices;
	uint8_t node; /* devices of two nodes have different UUIDs */
	struct process *processes;
	struct account *accounts;
	struct export *exports;
	uint64_t next_id, next_pointer, next_seq;
	int trace; /* descriptor of the trace file, or -1 */
};

extern struct emulator emulator;

uint64_t now_ns(void);

/* exec.c: finishes operations that take no time and wakes all who work or wait, after something
 * rare. The lock is held. */
void changed(void);
/* The same after something that concerns one process. */
void process_changed(struct process *process);
/* Gives up the lock until something of the process has changed. */
void wait_change(struct process *process);

/* model.c: returns 0, or -1 with a sentence in `error`. */
int model_load(const char *path, struct model *model, char *error, size_t size);

/* load.c; the lock is held. */
void load_add(struct context *context, uint64_t from, uint64_t to); /* it had the device */
/* What work of the context takes that alone takes `ns`. */
uint64_t load_slows(const struct context *context, uint64_t ns, uint64_t now);
double clock_part(const struct device *device, uint64_t now); /* of the highest */

/* memory.c; the lock is held. */
enum emu_status alloc_create(struct context *context, uint64_t size, enum emu_memory kind,
                             struct alloc **out);
enum emu_status alloc_loose(struct process *process, struct device *device, uint64_t size,
                            enum emu_memory kind, struct alloc **out);
void alloc_free(struct alloc *alloc);            /* its pointer or its last handle does not exist
                                                  * any more */
uint64_t alloc_save(struct alloc *alloc);        /* its blocks leave for its image; returns bytes */
uint64_t alloc_saved(const struct alloc *alloc); /* bytes in its image */
void alloc_load(struct alloc *alloc);   /* they come to its device, which has room for them */
void alloc_settle(struct alloc *alloc); /* ends the memory if nothing refers to it any
                                         * more */
enum emu_status alloc_back(struct alloc *alloc); /* gives it all its blocks, or none */
void alloc_unback(struct alloc *alloc);
bool alloc_pinned(const struct alloc *alloc);
bool range_at(const struct process *process, uint64_t pointer, struct range *out);
struct alloc *alloc_find(const struct process *process,
                         uint64_t pointer); /* finds it by its own address */
uint64_t blocks_of(const struct device *device, uint64_t size);
uint64_t take_addresses(uint64_t size, uint64_t alignment);
/* Its bytes, with all that is still to be done to them. */
uint8_t *block_data(struct alloc *alloc, uint32_t index);
/* Where to write bytes from an offset on. What they replace is not done before. */
uint8_t *block_target(struct alloc *alloc, uint32_t index, uint64_t offset, uint64_t bytes);
/* Copies bytes of it. */
void block_read(struct alloc *alloc, uint32_t index, uint64_t offset, uint64_t bytes, uint8_t *to);
/* Sets all its words, or adds to them, when somebody reads them: most programs of the tests do so
 * many times before they look. */
void block_fill(struct alloc *alloc, uint32_t index, uint32_t word);
void block_add(struct alloc *alloc, uint32_t index, uint32_t value);
/* Make a block resident; *moved_in and *moved_out get the bytes that crossed the link. */
enum emu_status block_restore(struct alloc *alloc, uint32_t index, uint64_t *moved_in,
                              uint64_t *moved_out);
void block_evict(struct alloc *alloc, uint32_t index, uint64_t *moved_out);
uint64_t device_free_bytes(const struct device *device);
/* What NVML says of a process: a card leaves managed memory out. */
uint64_t process_plain(const struct process *process, const struct device *device);

/* checkpoint.c: all that a process has on devices; the lock is held. */
bool checkpoint_possible(const struct process *process);
uint64_t checkpoint_save(struct process *process); /* returns bytes */
/* to: by device, the device that takes its place. Returns false if one has too little room. */
bool checkpoint_fits(const struct process *process, const uint32_t to[EMU_MAX_DEVICES]);
uint64_t checkpoint_load(struct process *process, const uint32_t to[EMU_MAX_DEVICES]);
void rm_move(struct process *process, const uint32_t to[EMU_MAX_DEVICES]); /* requests_rm.c */

/* vmm.c: physical memory at reserved addresses; the lock is held. */
uint64_t vmm_reserve(struct process *process, uint64_t size, uint64_t alignment);
enum emu_status vmm_unreserve(struct process *process, uint64_t base, uint64_t size);
struct alloc *vmm_find(const struct process *process, uint64_t id);
/* The memory that a file stands for, or NULL; and a file more, or one less. */
struct alloc *vmm_find_exported(uint64_t id);
struct export *vmm_export(uint64_t id); /* NULL: there is no such memory, or it has no files */
void vmm_unexport(struct export *export);
bool vmm_hold(struct process *process, struct alloc *alloc); /* false: no host memory */
bool vmm_release(struct process *process, uint64_t id);      /* false: the process has no such
                                                              * handle */
enum emu_status vmm_map(struct process *process, uint64_t base, uint64_t size, struct alloc *alloc,
                        uint64_t offset);
/* EMU_NOT_READY: a kernel is working on it; try again later. */
enum emu_status vmm_unmap(struct process *process, uint64_t base, uint64_t size);
/* change: a byte for each device, KEEP_ACCESS or bits of enum access. */
#define KEEP_ACCESS 0xFF
enum emu_status vmm_protect(struct process *process, uint64_t base, uint64_t size,
                            const uint8_t *change);
void mapping_remove(struct process *process, struct mapping *mapping);
void vmm_close(struct process *process);

/* graph.c: memory of graphs; the lock is held. */
enum emu_status graph_reserve(struct process *process, struct device *device, uint64_t size,
                              struct alloc **out);
enum emu_status graph_back(struct alloc *alloc, enum emu_backing what_for);
void graph_cancel(struct alloc *alloc);
void graph_allocated(struct alloc *alloc);
void graph_freed(struct alloc *alloc);
void graph_drop(struct alloc *alloc);
void graph_forget(struct alloc *alloc); /* the memory ends */
void graph_trim(struct process *process, const struct device *device);
void graphs_close(struct process *process, const struct device *device);

/* peer.c: devices that reach each other's memory; the lock is held. */
bool peer_enable(struct context *context, struct context *peer); /* false: access was enabled
                                                                  * already */
bool peer_disable(const struct context *context, const struct context *peer);
void peer_leave(const struct context *context); /* it ends */
/* What a device may do with memory by itself, as bits of enum access. */
unsigned device_access(const struct process *process, const struct device *device,
                       const struct range *range);
/* The access that work of a context has to memory. */
unsigned context_access(const struct context *context, enum emu_reach how,
                        const struct range *range);

/* ipc.c: plain memory of another process; the lock is held. */
struct alloc *ipc_find(uint64_t id);
struct mapping *ipc_open(struct context *context, struct alloc *alloc);
void ipc_leave(struct context *context); /* it ends */

/* pool.c; the lock is held. */
struct pool *pool_create(struct process *process, struct device *device, uint64_t most);
struct pool *pool_find(const struct process *process, uint64_t id);
void pool_destroy(struct process *process, struct pool *pool);
enum emu_status pool_alloc(struct context *context, struct pool *pool, uint64_t size,
                           struct alloc **out);
void pool_free(struct alloc *alloc);
/* The memory ends, and no longer counts for its pool. */
void pool_forget(struct alloc *alloc);
bool pool_trim(struct process *process, struct pool *pool, uint64_t keep);
void pools_synchronized(struct process *process); /* frees what each pool keeps beyond its
                                                   * threshold */
/* Returns true if memory of the device was given back. */
bool pools_yield(struct process *process, const struct device *device);
void pools_close(struct process *process, const struct device *device); /* NULL: of all */

/* kernels.c: compute on words [first, first + n) of a range that starts at base. */
uint32_t add_value(const uint64_t *arg); /* what EMU_ADD adds to each word, in all rounds */
void add_words(uint32_t *words, uint64_t n, uint32_t value);
void kernel_block(enum emu_kernel kernel, const uint64_t *arg, uint32_t *words, uint64_t first,
                  uint64_t n, uint64_t *result);

/* fingerprint.c: the kernel of that name. Each 64 tiles make a value of 16 bytes. */
#define FINGERPRINT_TILE 4096
struct fingerprint;
struct fingerprint *fingerprint_begin(const uint8_t *keys, uint64_t tiles); /* NULL: no memory */
void fingerprint_tiles(struct fingerprint *f, const uint8_t *bytes, uint64_t tiles);
/* All values, at the end; *size: their bytes. They exist until free() is called for `f`. */
const uint8_t *fingerprint_values(struct fingerprint *f, uint64_t *size);

/* work.c: one operation, one slice of it; the lock is held. Returns ns it takes. */
uint64_t work_slice(struct engine *engine, struct op *op, bool *finished);
/* EMU_READ_TO, EMU_WRITE_FROM: how many of their bytes `data` has at once, which are a few more
 * than the link takes in a slice. Others: 0. */
uint64_t window_size(const struct op *op);

/* Operations that take no time: writing a word of device memory, and waiting for one. */
void value_write(struct op *op);
bool value_waits(const struct op *op);

void op_fail(struct op *op, enum emu_status status);

/* groups.c: the lock is held. */
void groups_create(struct context *context);
uint64_t group_slice_ns(const struct context *context);   /* of its compute group, here */
uint64_t card_ns(const struct model *model, uint64_t us); /* what takes so long on a card */
bool channel_on(const struct op *op); /* no stop keeps the operation from going on */
bool channel_ready(const struct op *op);
bool stream_on(const struct stream *stream); /* no stop keeps its next mark from being set */
void channel_enter(struct op *op);
void channel_leave(const struct op *op);
void channels_forget(const struct stream *stream); /* it ends */
void engines_look(struct device *device); /* something that concerns running work has changed */
void slice_end(struct context *context);

/* exec.c */
enum engine_kind op_engine(const struct op *op);
int device_start(struct device *device, const struct model *model, uint32_t index);
/* whole: of a green context, which takes no memory, its primary context; else NULL.
 * multiprocessors: that it may use; 0: all that its process may. */
struct context *context_create(struct process *process, struct device *device, bool primary,
                               struct context *whole, uint64_t multiprocessors,
                               enum emu_status *status);
bool context_includes(const struct context *context, const struct context *other);
/* Nothing of it goes on: its work that runs ends at once. */
void context_fail(struct context *context, enum emu_status status);
void context_destroy(struct context *context);
struct stream *stream_create(struct context *context, bool non_blocking);
void stream_destroy(struct stream *stream);
void op_submit(struct stream *stream, struct op *op);
bool stream_idle(const struct stream *stream, uint64_t seq);
bool context_idle(const struct context *context, uint64_t seq);
bool process_idle(const struct process *process, uint64_t seq);
struct stream *stream_find(struct process *process, uint64_t id);
struct context *context_find(struct process *process, uint64_t id);
struct event *event_find(struct process *process, uint64_t id);
struct event *event_create(struct context *context);          /* NULL: no host memory */
void event_reached(struct event *event, uint64_t generation); /* called when the work behind a
                                                               * record has finished */
void event_release(struct event *event);
/* emugpud.c: runs a function in the client, and gives up the lock meanwhile. */
void host_function(struct process *process, uint64_t function, uint64_t data);
/* The same, to write the client's memory and to read it. EMU_BAD_ADDRESS: it has no such memory.
 * EMU_INVALID: it ends. */
enum emu_status host_deliver(struct process *process, uint64_t address, const uint8_t *data,
                             uint64_t size);
enum emu_status host_fetch(struct process *process, uint64_t address, uint8_t *data, uint64_t size);

#endif
