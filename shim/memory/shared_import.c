/* shared_import.c: memory of other processes of the job that this process has opened.
 *
 * A block is mapped once in each context, however often it is opened there. It counts against the
 * limit only in the process that allocated it. The mappings keep its memory if that process ends.
 */
#include "memory/shared.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/shared_map.h"
#include "memory/swap/deferred_free.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdlib.h>
#include <string.h>

#define ID_BIT 60 /* set in memory_place.id of opened allocations only */

static struct import *imports;
static atomic_ulong n_imports; /* made so far */
static struct lock lock = LOCK(LOCK_IMPORTS);

bool shared_is(const struct shared_handle *handle)
{
	return !memcmp(handle->mark, SHARED_MARK, sizeof(handle->mark));
}

/* -- opened allocations; the caller holds the lock --------------------------------------- */

static struct import *find(const struct shared_handle *handle, CUcontext context)
{
	struct import *i = imports;

	while (i && (i->context != context || i->block != handle->block ||
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

/* Closes an allocation once. Returns true if nothing of the import is open any more; it is then
 * removed from the list. */
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
	return true;
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
                      CUdeviceptr *out)
{
	struct import *import;
	CUresult result;

	lock_take(&lock);
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

CUresult shared_open(const struct shared_handle *handle, int end, CUdeviceptr *out)
{
	CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct import *import;
	size_t allocation;
	CUresult result = import_map(handle, end, &import, &allocation);

	if (!result)
		result = enter(import, handle, allocation, out);
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

static void in_child(void)
{
	lock_after_fork(&lock);
	imports = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
