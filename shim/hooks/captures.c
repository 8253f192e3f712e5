/* captures.c: the functions that begin and end stream captures. */
#include "work/captures.h"
#include "base/compiler.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "work/drain.h"

/* During the capture it can be asked whether what was submitted before has finished, if it was
 * asked before. Behind a shut gate it was. */
static CUresult begins(CUstream stream)
{
	if (!captures_exist() && gate_now() != GATE_CLOSED)
		poll_idle(gate_settled());
	return capture_begins(stream);
}

/* Tasks wait until there is no capture. */
static void ended(CUstream stream)
{
	capture_ended(stream);
	if (quiet_wanted())
		client_wake();
}

#define BEGIN(name, stream_now, parameters, arguments)                                             \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = begins(stream_now);                                                       \
		if (result)                                                                        \
			return result;                                                             \
		result = real arguments;                                                           \
		if (result)                                                                        \
			ended(stream_now);                                                         \
		return result;                                                                     \
	}

#define BEGIN2(name, parameters, arguments)                                                        \
	BEGIN(name, stream, parameters, arguments)                                                 \
	BEGIN(name##_ptsz, PER_THREAD(stream), parameters, arguments)

/* An end that returns an error may have ended the capture all the same, for instance one that was
 * invalidated. So the driver is asked whether it goes on. */
#define END(name, stream_now, parameters, arguments)                                               \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = real arguments;                                                           \
		if (!result || !capture_goes_on(stream_now))                                       \
			ended(stream_now);                                                         \
		return result;                                                                     \
	}

#define END2(name, parameters, arguments)                                                          \
	END(name, stream, parameters, arguments)                                                   \
	END(name##_ptsz, PER_THREAD(stream), parameters, arguments)

BEGIN2(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN2(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN2(cuStreamBeginCaptureToGraph,
       (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
        size_t n, CUstreamCaptureMode mode),
       (stream, graph, nodes, edges, n, mode))
END2(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
#if CUDA_VERSION >= 13020
BEGIN2(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *params),
       (stream, params))
END2(cuStreamEndCaptureToCig, (CUstream stream), (stream))
#endif
#if CUDA_VERSION >= 13030
BEGIN2(cuStreamBeginRecaptureToGraph,
       (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
        void *data),
       (stream, mode, graph, callback, data))
#endif

/* Destroying a stream ends its capture. */
#define DESTROY(name)                                                                              \
	EXPORT CUresult name(CUstream stream)                                                      \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = real(stream);                                                             \
		if (!result)                                                                       \
			ended(stream);                                                             \
		return result;                                                                     \
	}

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
