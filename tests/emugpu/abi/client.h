/* client.h: inside the emulated libcuda.so.1: objects behind the handles, and the server. */
#ifndef EMUGPU_CUDA_CLIENT_H
#define EMUGPU_CUDA_CLIENT_H

#include "protocol.h"

#include <cuda.h>

#if CUDA_VERSION < 13020 /* an older header; the functions are here all the same */
#define CU_HOST_TASK_SPINWAIT 1
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

struct emu_ctx {
	uint64_t id; /* the server's id; it also stands for the legacy default stream */
	int device;
	bool primary;
	unsigned refs, flags;
	CUresult error;           /* sticky */
	struct emu_ctx *whole;    /* of a green context: the primary context to which it belongs */
	unsigned multiprocessors; /* that it may use; 0: all that the process may */
	uint32_t groups[4], first_channel, n_channels; /* its objects in the kernel: channels.c */
};

/* Memory that a graph and what is instantiated from it allocate. */
struct emu_graph_memory {
	uint64_t pointer;
	unsigned graphs; /* graphs that use it, under emu_lock */
};

/* One recorded operation of a graph. None has a payload. */
struct emu_node {
	struct emu_node *next;
	struct emu_request request;
	struct emu_graph_memory *memory; /* EMU_GRAPH_ALLOC */
	bool freed;                      /* the graph frees it, too */
};

struct emu_graph {
	struct emu_node *first, *last;
	size_t nodes;
	bool auto_free; /* the next launch frees what the last one left allocated */
	struct emu_ctx *ctx;
};

struct emu_capture {
	struct emu_capture *next;
	CUstreamCaptureMode mode;
	pthread_t owner;
	struct emu_stream *origin;
	struct emu_graph *graph;
	unsigned long long id;
	bool invalid;
};

struct emu_stream {
	struct emu_stream *next;
	struct emu_ctx *ctx;
	uint64_t id;
	unsigned flags;
	struct emu_capture *capture;
};

struct emu_event {
	uint64_t id;
	struct emu_ctx *ctx;
	unsigned flags;
	unsigned long long capture; /* the id of the capture in which it was last recorded, or 0 */
};

struct emu_function {
	struct emu_function *next;
	enum emu_kernel kernel;
	struct emu_module *module;
};

struct emu_module {
	struct emu_function *functions;
};

/* client.c */
extern int emu_devices;
extern struct emu_device_info emu_info[EMU_MAX_DEVICES];
extern pthread_mutex_t emu_lock; /* guards the lists of objects */

CUresult emu_initialize(void);
CUresult emu_ready(void); /* has cuInit been called in this process (and not only in its parent)? */
CUresult emu_result(enum emu_status status);
/* Ask and wait. reply may be NULL; *payload, where asked for, is malloc'ed. */
/* A file that stands for the memory, or -1. */
int emu_open_file(uint64_t memory);
CUresult emu_call(const struct emu_request *request, struct emu_reply *reply, void **payload);
/* Ask for arg[2] bytes, and wait until they are there. */
CUresult emu_read(const struct emu_request *request, void *into);
CUresult emu_post(struct emu_request *request, const void *payload);
CUresult emu_start_callbacks(void);
CUresult emu_start_delivery(void);

/* As emu_call, with a payload to send. */
CUresult emu_checkpoint_call(const struct emu_request *request, const void *in,
                             struct emu_reply *reply);
/* One call of the kernel; *payload is malloc'ed, as large as what was sent. */
CUresult emu_kernel_call(uint64_t number, const void *in, uint64_t size, void **payload);

/* kernel.c */
extern int emu_kernel_fd; /* stands for /dev/nvidiactl; -1: it is not open */
void emu_kernel_open(void);

/* mps.c */
extern uint64_t emu_mps_server, emu_mps_percent; /* 0: this process is no client of MPS */
CUresult emu_mps_join(void);
void emu_mps_fault(void);
void emu_mps_in_child(void);

/* channels.c */
void emu_devices_open(void);
void emu_groups_open(struct emu_ctx *ctx);
void emu_groups_close(struct emu_ctx *ctx);

/* hold.c */
extern int emu_holds;
void emu_point(const char *call);
void emu_undefined(const char *what);     /* of a card; fatal where a test wants to know */
void emu_ends(const struct emu_ctx *ctx); /* a context, now */
void emu_guard_end(void);
void emu_enter(void); /* the thread is in the driver from now on, until emu_leave() */
void emu_leave(void);
/* Called at the start of functions in which tests can hold a thread. */
#define EMU_POINT()                                                                                \
	do {                                                                                       \
		if (__atomic_load_n(&emu_holds, __ATOMIC_RELAXED))                                 \
			emu_point(__func__);                                                       \
	} while (0)

/* context.c */
struct emu_ctx *emu_current(void);
bool emu_alive(CUcontext ctx);
CUresult emu_need_ctx(struct emu_ctx **ctx);
CUresult emu_open_context(struct emu_ctx *ctx, CUdevice device);
CUresult emu_close_context(struct emu_ctx *ctx); /* emu_lock is held */
void emu_green_drop(const struct emu_ctx *ctx);  /* green.c; emu_lock is held */
CUresult emu_record_context(struct emu_ctx *ctx, CUevent event);

/* The context to which memory made in a context belongs: a green context has none. */
static inline struct emu_ctx *emu_owner(struct emu_ctx *ctx)
{
	return ctx->whole ? ctx->whole : ctx;
}

/* A call in the context has returned this: keeps it if it is an error that persists. */
CUresult emu_sticky(struct emu_ctx *ctx, CUresult result);

/* stream.c: takes NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a stream. */
struct target {
	struct emu_ctx *ctx;
	uint64_t id;
	struct emu_stream *stream; /* NULL: the legacy default stream */
};

CUresult emu_target(CUstream stream, struct target *out);
CUresult emu_make_event(struct emu_ctx *ctx, uint64_t id, unsigned flags, CUevent *out);
CUresult emu_create_stream(struct emu_ctx *ctx, unsigned flags, CUstream *out);
void emu_streams_leave(const struct emu_capture *capture); /* emu_lock is held */
void emu_streams_drop(const struct emu_ctx *ctx);          /* it has ended; emu_lock is held */
CUresult emu_submit(CUstream stream, struct emu_request *request, const void *payload);

/* capture.c */
CUresult emu_unsafe_call(void); /* does a capture of this thread or of another one forbid the
                                 * call? */
CUresult emu_capture_forbids_sync(struct emu_ctx *ctx);
CUresult emu_capture_add(struct emu_capture *capture, const struct emu_request *request);
/* graph.c */
CUresult emu_graph_add(struct emu_graph *graph, const struct emu_request *request,
                       struct emu_graph_memory *memory);
void emu_graph_free(struct emu_graph *graph, bool locked); /* locked: emu_lock is held */
CUresult emu_graph_allocate(CUdeviceptr *out, size_t size, const struct target *t);

CUresult emu_capture_legacy(struct emu_ctx *ctx);
void emu_invalidate(struct emu_capture *capture);
struct emu_capture *emu_capture_find(unsigned long long id); /* NULL: it has ended */
void emu_capture_drop(struct emu_capture *capture); /* its stream has ended; emu_lock is held */

/* copy.c: copies between any two places; rows may be empty. */
CUresult emu_copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult emu_copy_by(enum emu_reach how, CUdeviceptr to, CUdeviceptr from, size_t size,
                     CUstream stream);
/* May work of the context access the whole range? */
CUresult emu_check(const struct emu_ctx *ctx, CUdeviceptr pointer, size_t size, unsigned access,
                   enum emu_reach how);
CUresult emu_set(CUdeviceptr to, uint64_t value, uint64_t width, size_t n, CUstream stream);
CUresult emu_wait(CUstream stream); /* as synchronous copies do */

/* memory.c */
CUresult emu_allocate(CUdeviceptr *out, size_t size, enum emu_memory kind);
bool emu_is_device(uint64_t pointer);

/* host.c */
bool emu_is_pinned(const void *host, size_t size); /* all of it? */

static inline CUstream emu_legacy(CUstream stream)
{
	return stream ? stream : CU_STREAM_LEGACY;
}

static inline CUstream emu_per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

#define TRY(expression)                                                                            \
	do {                                                                                       \
		CUresult try_result = (expression);                                                \
		if (try_result)                                                                    \
			return try_result;                                                         \
	} while (0)

#endif
