/* fake_streams.c: the fake driver's copies, pinned memory, streams and events. */
#include "fake_functions.h"
#include "fake_objects.h"
#include "fake_rooms.h"

#include "memory/swap/lane.h"

#include <string.h>

void *fake_pinned(void)
{
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (fake_objects[i].what == FAKE_PINNED)
			return (void *)fake_objects[i].base;
	return NULL;
}

/* A copy of registered host memory must not cross from one registration to the next. */
static void stays_within(const void *host, size_t size)
{
	uintptr_t at = (uintptr_t)host;
	bool begins, all;

	LOCKED(begins = fake_within(FAKE_PINNED, at, 1); all = fake_within(FAKE_PINNED, at, size));
	if (begins && !all)
		fake_dies("a copy leaves what is registered together");
}

FAKE(cuMemcpyDtoHAsync_v2)(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	stays_within(to, size);
	fake_driver.copies_asked++;
	if (fake_driver.refuse_copies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(to, (void *)(uintptr_t)from, size);
	fake_driver.copied_out += size;
	return CUDA_SUCCESS;
}

FAKE(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	(void)stream;
	stays_within(from, size);
	memcpy((void *)(uintptr_t)to, from, size);
	return CUDA_SUCCESS;
}

FAKE(cuMemHostRegister_v2)(void *at, size_t size, unsigned int flags)
{
	(void)flags;
	if (fake_driver.refuse_pinning ||
	    (fake_driver.pinned_most && fake_driver.pinned + size > fake_driver.pinned_most))
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(fake_add(FAKE_PINNED, at, size, -1); fake_driver.pinned += size);
	fake_driver.pinned_mode = fake_driver.mode;
	return CUDA_SUCCESS;
}

/* The driver waits for all work of the process. */
FAKE(cuMemHostUnregister)(void *at)
{
	if (!fake_rooms.waits && (residency_now() || fake_rooms.stopped || fake_driver.hold_events))
		fake_dies("host memory is unregistered while work is not over");
	LOCKED(fake_unpin(at, "what is unregistered is not registered"));
	return CUDA_SUCCESS;
}

/* Streams and events are numbers of their device: 1 is of the first one. */
static void *number(void)
{
	CUdevice device = fake_current_device();

	return (void *)(uintptr_t)(1 + (device < 0 ? 0 : device));
}

static bool is_held(const void *stream_or_event)
{
	return fake_driver.hold_events &&
	       !(fake_driver.goes_on & 1u << ((uintptr_t)stream_or_event - 1));
}

FAKE(cuStreamCreate)(CUstream *stream, unsigned int flags)
{
	(void)flags;
	if (fake_driver.refuse_streams)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*stream = number();
	LOCKED(fake_driver.streams++);
	return CUDA_SUCCESS;
}

static void must_not_wait(const void *stream_or_event)
{
	if (is_held(stream_or_event))
		fake_dies("somebody waits for an event that does not happen");
}

FAKE(cuStreamDestroy_v2)(CUstream stream)
{
	(void)stream;
	LOCKED(fake_driver.streams--);
	return CUDA_SUCCESS;
}

FAKE(cuStreamSynchronize)(CUstream stream)
{
	must_not_wait(stream);
	return CUDA_SUCCESS;
}

FAKE(cuStreamQuery)(CUstream stream)
{
	return is_held(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE(cuEventCreate)(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = number();
	LOCKED(fake_driver.events++);
	return CUDA_SUCCESS;
}

FAKE(cuEventDestroy_v2)(CUevent event)
{
	(void)event;
	LOCKED(fake_driver.events--);
	return CUDA_SUCCESS;
}

FAKE(cuEventRecord)(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	return CUDA_SUCCESS;
}

FAKE(cuEventQuery)(CUevent event)
{
	return is_held(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE(cuEventSynchronize)(CUevent event)
{
	must_not_wait(event);
	return CUDA_SUCCESS;
}
