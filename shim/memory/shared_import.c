/* shared_import.c: memory of other processes of the job that this one has opened.
 *
 * It is mapped once a context and a block, however often it is opened there, and counts
 * for the process that has it. The mappings keep it alive should that process end.
 */
#include "memory/shared.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/swap/swap.h"
#include "work/captures.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 60000 /* the other process may be busy */
#define SIZE_MOST (UINT64_C(1) << 46)
#define ID_BIT 60 /* in numbers of allocations: one of another process */

/* An allocation, and how often it is open. */
struct opened {
	struct opened *next;
	CUdeviceptr at;
	size_t size;
	unsigned long times;
};

struct import {
	struct import *next;
	uint8_t name[GL_NAME_BYTES];
	uint64_t block;
	CUcontext context;
	CUdevice device;
	CUdeviceptr base;
	size_t size, mapped;
	unsigned long number;
	struct opened *opened;
};

static struct import *imports;
static atomic_ulong n_imports; /* so far */
static struct lock lock = LOCK(LOCK_IMPORTS);

bool shared_is(const struct shared_handle *handle)
{
	return !memcmp(handle->mark, SHARED_MARK, sizeof(handle->mark));
}

/* -- what there is; the lock is held ---------------------------------------------------- */

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

/* Once more, or for the first time. */
static CUresult count(struct import *import, uint64_t offset, size_t size, CUdeviceptr *out)
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

/* Once less. True: that was the last of the whole import, which nobody finds any more. */
static bool uncount(struct import *import, struct opened *opened)
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

/* -- mapping, without the lock ------------------------------------------------------------- */

static void drop(struct import *import)
{
	if (import->mapped)
		DRIVER(cuMemUnmap)(import->base, import->mapped);
	if (import->base)
		REAL(cuMemAddressFree)(import->base, import->size);
	while (import->opened) {
		struct opened *o = import->opened;

		import->opened = o->next;
		free(o);
	}
	free(import);
}

static bool is_sound(const struct shared_part *part, const struct shared_part *before)
{
	return !memcmp(part->mark, SHARED_PART_MARK, sizeof(part->mark)) && !part->status &&
	       part->size && part->size <= SIZE_MOST && part->piece && part->piece <= part->size &&
	       part->n && part->n <= SHARED_AT_ONCE &&
	       part->total == (part->size - 1) / part->piece + 1 &&
	       part->first == before->first + before->n && part->n <= part->total - part->first &&
	       (!before->total || (part->total == before->total && part->size == before->size &&
	                           part->piece == before->piece));
}

/* The descriptors that came with a message, at most as many as fit. */
static uint32_t files_of(struct msghdr *message, int files[SHARED_AT_ONCE])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	size_t n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(files, CMSG_DATA(c), n * sizeof(int));
	return (uint32_t)n;
}

/* False: the other one has ended, refuses, or is silent. */
static bool receive(int end, struct shared_part *part, int files[SHARED_AT_ONCE], uint32_t *n)
{
	union {
		char space[CMSG_SPACE(SHARED_AT_ONCE * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec data = {part, sizeof(*part)};
	struct msghdr message = {.msg_iov = &data,
	                         .msg_iovlen = 1,
	                         .msg_control = control.space,
	                         .msg_controllen = sizeof(control.space)};
	struct pollfd readable = {end, POLLIN, 0};
	ssize_t got;

	*n = 0;
	if (poll(&readable, 1, ANSWER_MS) <= 0)
		return false;
	got = recvmsg(end, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return false;
	*n = files_of(&message, files);
	return got == (ssize_t)sizeof(*part);
}

static CUresult map_one(struct import *import, int file, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	result = REAL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)file,
	                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result)
		return result;
	result = DRIVER(cuMemMap)(import->base + import->mapped, size, 0, handle, 0);
	DRIVER(cuMemRelease)(handle); /* the mapping keeps the memory */
	if (!result)
		import->mapped += size;
	return result;
}

static CUresult map_part(struct import *import, const struct shared_part *part, const int *files)
{
	CUresult result = CUDA_SUCCESS;

	if (!import->base) {
		result = REAL(cuMemAddressReserve)(&import->base, part->size, 0, 0, 0);
		if (result)
			return result;
		import->size = part->size;
	}
	for (uint32_t i = 0; i < part->n && !result; i++) {
		size_t left = import->size - import->mapped;

		result = map_one(import, files[i], left < part->piece ? left : part->piece);
	}
	return result;
}

/* All of the block, in as many parts as it comes. *first: what was said of it. */
static CUresult map_all(struct import *import, int end, struct shared_part *first)
{
	struct shared_part part = {0}, before = {0};
	CUresult result = CUDA_SUCCESS;
	int files[SHARED_AT_ONCE];
	uint32_t n;

	do {
		if (!receive(end, &part, files, &n) || !is_sound(&part, &before) || n != part.n)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (map_part(import, &part, files))
			result = CUDA_ERROR_MAP_FAILED;
		while (n)
			close(files[--n]);
		before = part;
	} while (!result && part.first + part.n < part.total);
	*first = part;
	return result;
}

/* The memory's device as this process counts them; below 0: it does not see it. */
static CUdevice device_with(const uint8_t uuid[GL_UUID_BYTES])
{
	int n = 0;

	if (!REAL(cuDeviceGetCount) || REAL(cuDeviceGetCount)(&n))
		return -1;
	for (CUdevice d = 0; d < n && d < MAX_DEVICES; d++)
		if (device_uuid(d) && !memcmp(device_uuid(d), uuid, GL_UUID_BYTES))
			return d;
	return -1;
}

/* For the device of the context, and for the memory's own. */
static CUresult allow(struct import *import, const uint8_t uuid[GL_UUID_BYTES])
{
	CUdevice current, own = device_with(uuid);
	uint64_t devices;

	CUresult result = REAL(cuCtxGetDevice)(&current);

	if (result)
		return result;
	import->device = own >= 0 ? own : current;
	devices = UINT64_C(1) << current | UINT64_C(1) << import->device;
	return segments_allow(import->base, import->size, devices) ? CUDA_ERROR_MAP_FAILED
	                                                           : CUDA_SUCCESS;
}

static CUresult make(const struct shared_handle *handle, int end, struct import **out,
                     size_t *allocation)
{
	struct import *import = calloc(1, sizeof(*import));
	struct shared_part part;
	CUresult result;

	if (!import)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(import->name, handle->name, sizeof(import->name));
	import->block = handle->block;
	REAL(cuCtxGetCurrent)(&import->context);
	result = map_all(import, end, &part);
	if (!result)
		result = allow(import, part.uuid);
	if (result) {
		drop(import);
		return result;
	}
	*allocation = part.allocation;
	*out = import;
	return CUDA_SUCCESS;
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
	opened = import && !count(import, handle->offset, handle->size, out);
	lock_give(&lock);
	return opened;
}

/* Another thread may have opened it meanwhile: then its mapping is the one. */
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
	result = count(import, handle->offset, allocation, out);
	if (!import->opened)
		unlink_import(import);
	lock_give(&lock);
	if (import != made || result)
		drop(made);
	return result;
}

CUresult shared_open(const struct shared_handle *handle, int end, CUdeviceptr *out)
{
	CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct import *import;
	size_t allocation;
	CUresult result = make(handle, end, &import, &allocation);

	if (!result)
		result = enter(import, handle, allocation, out);
	captures_mode(mode);
	return result;
}

/* The driver waits for nobody who unmaps, but cuIpcCloseMemHandle for the context's work. */
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
	if (!swap_wait_for(context, result))
		return true;
	lock_take(&lock);
	opened = opened_at(pointer, &import);
	*result = opened && opened->at == pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (!*result && uncount(import, opened))
		last = import;
	lock_give(&lock);
	if (last)
		drop(last);
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

/* A context takes what it has opened along. */
void shared_context_gone(CUcontext context)
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
		drop(import);
	}
}

static void in_child(void)
{
	lock_after_fork(&lock);
	imports = NULL; /* the parent's */
}
FORK_WATCH(in_child);
