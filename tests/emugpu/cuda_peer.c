/* cuda_peer.c: the emulated libcuda: copies between contexts and devices. */
#include "cuda_client.h"

/* They wait for what both contexts were given before, as no stream here does. */
static CUresult wait_for(CUcontext handle)
{
	struct emu_request q = {.op = EMU_CTX_SYNC};

	if (!emu_alive(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	q.arg[0] = ((struct emu_ctx *)handle)->id;
	return emu_call(&q, NULL, NULL);
}

static CUresult copy(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                     size_t size, CUstream stream)
{
	TRY(emu_ready());
	if (!emu_alive(to_ctx) || !emu_alive(from_ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!emu_is_device(to) || !emu_is_device(from))
		return CUDA_ERROR_INVALID_VALUE;
	return emu_copy(to, from, size, stream);
}

static CUresult copy_now(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                         size_t size, CUstream stream)
{
	TRY(emu_ready());
	TRY(emu_unsafe_call());
	TRY(wait_for(to_ctx));
	TRY(wait_for(from_ctx));
	TRY(copy(to, to_ctx, from, from_ctx, size, stream));
	return emu_wait(stream);
}

#define PEERS CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t size

EXPORT CUresult cuMemcpyPeer(PEERS)
{
	return copy_now(to, to_ctx, from, from_ctx, size, CU_STREAM_LEGACY);
}

EXPORT CUresult cuMemcpyPeer_ptds(PEERS)
{
	return copy_now(to, to_ctx, from, from_ctx, size, CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuMemcpyPeerAsync(PEERS, CUstream stream)
{
	return copy(to, to_ctx, from, from_ctx, size, emu_legacy(stream));
}

EXPORT CUresult cuMemcpyPeerAsync_ptsz(PEERS, CUstream stream)
{
	return copy(to, to_ctx, from, from_ctx, size, emu_per_thread(stream));
}

static CUresult check(CUmemorytype type, CUcontext ctx)
{
	return type == CU_MEMORYTYPE_DEVICE && !emu_alive(ctx) ? CUDA_ERROR_INVALID_CONTEXT
	                                                       : CUDA_SUCCESS;
}

/* The same as a copy without peers, with contexts where that has reserved fields. */
static CUresult copy3d(const CUDA_MEMCPY3D_PEER *c, CUstream stream)
{
	_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER) &&
	                   offsetof(CUDA_MEMCPY3D, srcPitch) ==
	                       offsetof(CUDA_MEMCPY3D_PEER, srcPitch) &&
	                   offsetof(CUDA_MEMCPY3D, Depth) == offsetof(CUDA_MEMCPY3D_PEER, Depth),
	               "the structs of 3D copies differ");
	TRY(emu_ready());
	TRY(check(c->dstMemoryType, c->dstContext));
	TRY(check(c->srcMemoryType, c->srcContext));
	return emu_copy3d((const CUDA_MEMCPY3D *)c, stream);
}

static CUresult copy3d_now(const CUDA_MEMCPY3D_PEER *c, CUstream stream)
{
	TRY(emu_ready());
	TRY(emu_unsafe_call());
	if (c->dstMemoryType == CU_MEMORYTYPE_DEVICE)
		TRY(wait_for(c->dstContext));
	if (c->srcMemoryType == CU_MEMORYTYPE_DEVICE)
		TRY(wait_for(c->srcContext));
	TRY(copy3d(c, stream));
	return emu_wait(stream);
}

EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *c)
{
	return copy3d_now(c, CU_STREAM_LEGACY);
}

EXPORT CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *c)
{
	return copy3d_now(c, CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream stream)
{
	return copy3d(c, emu_legacy(stream));
}

EXPORT CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *c, CUstream stream)
{
	return copy3d(c, emu_per_thread(stream));
}
