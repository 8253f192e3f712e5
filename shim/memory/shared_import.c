/* shared_import.c: memory of other processes of the job that this process has opened.
 *
 * A block is mapped once in each context, however often it is opened there. It counts against the
 * limit only in the process that allocated it. The mappings keep its memory if that process ends.
 *
 * A lent block moves. The daemon lets no process of a job evict while another one has the lease. So
 * this process has such a block mapped only while it has its lease: it unmaps it before it releases
 * the lease, and maps what the block has become at the same addresses before the gate opens again.
 * A time in between is a turn.
 */
#include "memory/shared.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/shared_map.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/lane.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdlib.h>
#include <string.h>

#define ID_BIT 60 /* set in memory_place.id of opened allocations only */

static struct import *imports;
static atomic_ulong n_imports; /* made so far */
static struct lock lock = LOCK(LOCK_IMPORTS);
static unsigned long turn_now;
static bool restoring; /* lent blocks are to be mapped */
static pthread_cond_t missing = PTHREAD_COND_INITIALIZER;

bool shared_is(const struct shared_handle *handle)
{
	return !memcmp(handle->mark, SHARED_MARK, sizeof(handle->mark));
}

/* -- opened allocations; the caller holds the lock --------------------------------------- */

static struct import *find(const struct shared_handle *handle, CUcontext context)
{
	struct import *i = imports;

	while (i && (i->lost || i->context != context || i->block != handle->block ||
	             memcmp(i->name, handle->name, GL_NAME_BYTES)))
		i = i->next;
	return i;
}

static struct opened *opened_at(CUdeviceptr pointer, struct import **import)
{
	for (*import = imports; *import; *import = (*import)->next)
		for (struct opened *o = (*import)->opened; o; o = o->next)
			if (pointer - o->at < o->size)
				return o;
	return NULL;
}

/* Opens an allocation of the import once more, or for the first time. */
static CUresult open_once(struct import *import, uint64_t offset, size_t size, CUdeviceptr *out)
{
	CUdeviceptr at = import->base + offset;
	struct opened *o = import->opened;

	if (offset >= import->size || !size || size > import->size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	while (o && o->at != at)
		o = o->next;
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*o = (struct opened){import->opened, at, size, 0};
		import->opened = o;
	}
	o->times++;
	*out = at;
	return CUDA_SUCCESS;
}

static void unlink_import(struct import *import)
{
	struct import **at = &imports;

	while (*at != import)
		at = &(*at)->next;
	*at = import->next;
}

/* The import is in no list any more. Returns true if the caller has to drop it. */
static bool leave_to_mapper(struct import *import)
{
	import->dropped = import->mapping;
	return !import->mapping;
}

/* Closes an allocation once. Returns true if nothing of the import is open any more; it is then
 * removed from the list, and the caller drops it. */
static bool close_once(struct import *import, struct opened *opened)
{
	struct opened **at = &import->opened;

	if (--opened->times)
		return false;
	while (*at != opened)
		at = &(*at)->next;
	*at = opened->next;
	free(opened);
	if (import->opened)
		return false;
	unlink_import(import);
	return leave_to_mapper(import);
}

/* -- opening and closing ----------------------------------------------------------------------- */

bool shared_open_again(const struct shared_handle *handle, CUdeviceptr *out)
{
	CUcontext context = NULL;
	struct import *import;
	bool opened;

	REAL(cuCtxGetCurrent)(&context);
	lock_take(&lock);
	import = find(handle, context);
	opened = import && !open_once(import, handle->offset, handle->size, out);
	lock_give(&lock);
	return opened;
}

/* Adds a new import, unless another thread has opened the block meanwhile. Then its mapping is
 * used, and `made` is dropped. */
static CUresult enter(struct import *made, const struct shared_handle *handle, size_t allocation,
                      unsigned long turn, CUdeviceptr *out)
{
	struct import *import;
	CUresult result;

	lock_take(&lock);
	if (made->lent)
		swap_note_use(); /* so that a turn ends with it */
	if (made->lent && (turn != turn_now || !residency_lasts())) {
		lock_give(&lock);
		import_drop(made);
		return CUDA_ERROR_NOT_READY;
	}
	import = find(handle, made->context);
	if (!import) {
		made->number = ++n_imports;
		made->next = imports;
		imports = import = made;
	}
	result = open_once(import, handle->offset, allocation, out);
	if (!import->opened)
		unlink_import(import);
	lock_give(&lock);
	if (import != made || result)
		import_drop(made);
	return result;
}

unsigned long shared_turn(void)
{
	unsigned long turn;

	lock_take(&lock);
	turn = turn_now;
	lock_give(&lock);
	return turn;
}

CUresult shared_open(const struct shared_handle *handle, int end, unsigned long turn, bool *lent,
                     CUdeviceptr *out)
{
	CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct import *import;
	size_t allocation;
	CUresult result = import_map(handle, end, &import, &allocation);

	if (!result) {
		*lent = import->lent;
		result = enter(import, handle, allocation, turn, out);
	}
	captures_mode(mode);
	return result;
}

/* Waits for the context's work before it unmaps, as cuIpcCloseMemHandle does; cuMemUnmap does not.
 */
bool shared_close(CUdeviceptr pointer, CUresult *result)
{
	struct import *import, *last = NULL;
	struct opened *opened;
	CUcontext context = NULL;
	bool found;

	lock_take(&lock);
	opened = opened_at(pointer, &import);
	found = opened && opened->at == pointer;
	if (found)
		context = import->context;
	lock_give(&lock);
	if (!found)
		return false;
	*result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!swap_wait_for_work(context, result))
		return true;
	lock_take(&lock);
	opened = opened_at(pointer, &import);
	*result = opened && opened->at == pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!*result && close_once(import, opened))
		last = import;
	lock_give(&lock);
	if (last)
		import_drop(last);
	return true;
}

bool shared_find(CUdeviceptr pointer, struct memory_place *out)
{
	struct import *import;
	struct opened *opened;

	if (!atomic_load(&n_imports))
		return false;
	lock_take(&lock);
	opened = opened_at(pointer, &import);
	if (opened)
		*out = (struct memory_place){.base = opened->at,
		                             .size = opened->size,
		                             .device = import->device,
		                             .context = import->context,
		                             .id = UINT64_C(1) << ID_BIT | import->number << 24 |
		                                   (opened->at - import->base) >> 9};
	lock_give(&lock);
	return opened;
}

/* A context has ended, and with it what was opened in it. */
static void context_gone(CUcontext context)
{
	struct import *gone = NULL;

	lock_take(&lock);
	for (struct import **at = &imports; *at;) {
		struct import *import = *at;

		if (import->context != context) {
			at = &import->next;
			continue;
		}
		*at = import->next;
		if (!leave_to_mapper(import))
			continue;
		import->next = gone;
		gone = import;
	}
	lock_give(&lock);
	while (gone) {
		struct import *import = gone;

		gone = import->next;
		import_drop(import);
	}
}
CONTEXT_WATCH(NULL, context_gone);

/* -- lent blocks ------------------------------------------------------------------------- */

static bool is_missing(const struct import *import)
{
	return import->lent && !import->lost && (import->mapping || !import->mapped);
}

void shared_restore(void)
{
	lock_take(&lock);
	restoring = true;
	pthread_cond_broadcast(&missing);
	lock_give(&lock);
}

bool shared_restored(void)
{
	struct import *import = NULL;

	if (!atomic_load(&n_imports))
		return true;
	lock_take(&lock);
	for (import = imports; import && !is_missing(import); import = import->next)
		;
	if (!import)
		restoring = false;
	lock_give(&lock);
	return !import;
}

/* What is being mapped now, its mapper unmaps when it sees that the turn is over. */
void shared_let_go(void)
{
	lock_take(&lock);
	turn_now++;
	restoring = false;
	for (struct import *import = imports; import; import = import->next)
		if (import->lent && !import->mapping)
			import_unmap(import);
	lock_give(&lock);
}

static struct import *next_missing(void)
{
	struct import *import = restoring ? imports : NULL;

	while (import && (import->mapping || !is_missing(import)))
		import = import->next;
	return import;
}

struct import *shared_next(struct shared_handle *handle, unsigned long *turn)
{
	struct import *import;

	lock_take(&lock);
	while (!(import = next_missing()))
		lock_wait(&lock, &missing);
	import->mapping = true;
	*turn = turn_now;
	*handle = (struct shared_handle){
	    .mark = SHARED_MARK, .block = import->block, .offset = import->offset};
	memcpy(handle->name, import->name, sizeof(handle->name));
	lock_give(&lock);
	return import;
}

/* The process that has it has ended, so its bytes are lost. */
static void lose(struct import *import)
{
	import->lost = true;
	complain("a buffer of this job's chain is lost: it was away from the GPU when the process "
	         "that kept it (gpu-lease-chain) ended; start the chain again");
}

void shared_map_again(struct import *import, unsigned long turn, int end)
{
	CUresult result = end < 0 ? CUDA_ERROR_INVALID_VALUE : import_map_again(import, end);
	bool dropped;

	lock_take(&lock);
	import->mapping = false;
	dropped = import->dropped;
	if (!dropped && turn != turn_now)
		import_unmap(import);
	else if (!dropped && result)
		lose(import);
	lock_give(&lock);
	if (dropped)
		import_drop(import);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	pthread_cond_init(&missing, NULL);
	restoring = false;
	imports = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
