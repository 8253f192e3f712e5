/* kinds.c: the table of all kinds of memory, and functions that call all of them. */
#include "memory/kinds.h"

#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/limit.h"
#include "memory/ranges.h"
#include "memory/reclaim.h"
#include "memory/shared.h"
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
	CUresult result = kind->limits_itself ? CUDA_SUCCESS : limit_take(device, size);

	if (result)
		return result;
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

uint32_t memory_details(struct gl_details out[GL_MAX_DEVICES])
{
	uint32_t n = 0;

	for (int d = 0; d < MAX_DEVICES && n < GL_MAX_DEVICES; d++) {
		if (!device_known(d))
			continue;
		out[n] = (struct gl_details){.header = message_header(GL_DETAILS, sizeof(out[n]))};
		memcpy(out[n].uuid, device_uuid(d), GL_UUID_BYTES);
		for (size_t i = 0; i < N_MEMORY_KINDS; i++)
			if (memory_kinds[i]->explain)
				memory_kinds[i]->explain(d, &out[n]);
		n++;
	}
	return n;
}

static void reclaim(bool wait)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (memory_kinds[i]->reclaim)
			memory_kinds[i]->reclaim(wait);
}
RECLAIM_WATCH(reclaim);

static void context_ends(CUcontext context)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (context && memory_kinds[i]->context_ends)
			memory_kinds[i]->context_ends(context);
}

static void context_gone(CUcontext context)
{
	memory_forget(context);
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (memory_kinds[i]->context_gone)
			memory_kinds[i]->context_gone(context);
}
CONTEXT_WATCH(context_ends, context_gone);
