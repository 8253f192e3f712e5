/* kinds.c: the table of the kinds of memory, and what concerns all of them. */
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/kind.h"
#include "memory/shared.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <string.h>

const struct memory_kind *const memory_kinds[N_MEMORY_KINDS] = {
#define KIND(name) [MEMORY_##name] = &name##_memory,
    MEMORY_KINDS(KIND)
#undef KIND
};

const struct memory_kind *memory_kind_on(CUdevice device)
{
	size_t i = 0;

	while (i < N_MEMORY_KINDS - 1 && !memory_kinds[i]->serves(device))
		i++;
	return memory_kinds[i];
}

CUresult memory_allocate(const struct memory_kind *kind, CUdeviceptr *out, size_t size,
                         CUdevice device, CUmemoryPool pool)
{
	CUresult result;

	if (!kind->limits_itself)
		TRY(limit_take(device, size));
	result = kind->allocate(out, size, device);
	if (!result)
		memory_add(*out, size, device, kind, pool);
	else if (!kind->limits_itself)
		limit_give(device, size);
	return result;
}

CUresult memory_note(CUresult result, CUdeviceptr base, size_t size, CUdevice device,
                     const struct memory_kind *kind)
{
	if (result)
		limit_give(device, size);
	else
		memory_add(base, size, device, kind, NULL);
	return result;
}

bool memory_locate(CUdeviceptr pointer, struct memory_place *out)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (memory_kinds[i]->find && memory_kinds[i]->find(pointer, out))
			return true;
	return shared_find(pointer, out);
}

uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES])
{
	uint32_t n = 0;

	for (int d = 0; d < MAX_DEVICES && n < GL_MAX_DEVICES; d++) {
		if (!device_known(d))
			continue;
		out[n] = (struct gl_device){0};
		memcpy(out[n].uuid, device_uuid(d), GL_UUID_BYTES);
		for (size_t i = 0; i < N_MEMORY_KINDS; i++)
			if (memory_kinds[i]->report)
				memory_kinds[i]->report(d, &out[n]);
		n++;
	}
	return n;
}

void memory_reclaim(bool wait)
{
	free_blocks_trim(NULL, 0, wait);
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (memory_kinds[i]->reclaim)
			memory_kinds[i]->reclaim(wait);
}

void memory_in_context(CUcontext context, void (*work)(CUcontext context))
{
	CUstreamCaptureMode mode;
	CUcontext old;

	if (REAL(cuCtxPushCurrent_v2)(context))
		return;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	work(context);
	captures_mode(mode);
	REAL(cuCtxPopCurrent_v2)(&old);
}

static void context_ends(CUcontext context)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (context && memory_kinds[i]->context_ends)
			memory_kinds[i]->context_ends(context);
}

static void context_gone(CUcontext context)
{
	free_blocks_forget(context);
	memory_forget(context);
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (memory_kinds[i]->context_gone)
			memory_kinds[i]->context_gone(context);
	shared_context_gone(context);
}
CONTEXT_WATCH(context_ends, context_gone);
