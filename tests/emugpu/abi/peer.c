/* peer.c: the emulated libcuda: devices that reach each other, and copies between contexts. */
#include "abi/client.h"

static CUresult check_device(CUdevice device)
{
	TRY(emu_ready());
	return device >= 0 && device < emu_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* No device is its own peer. */
static bool peers(CUdevice device, CUdevice peer)
{
	return device != peer && emu_info[device].peers;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	TRY(check_device(device));
	TRY(check_device(peer));
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	*can = peers(device, peer);
	return CUDA_SUCCESS;
}

/* The answers are those of devices with an NVLink. */
EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                        CUdevice device, CUdevice peer)
{
	TRY(check_device(device));
	TRY(check_device(peer));
	if (device == peer)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
	case 5: /* only some of the atomics are native: older headers have no name for it */
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*value = peers(device, peer);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* The current context and the other one, if both exist. */
static CUresult both(CUcontext handle, struct emu_ctx **ctx, struct emu_ctx **peer)
{
	TRY(emu_need_ctx(ctx));
	*peer = (struct emu_ctx *)handle;
	if (!handle)
		return CUDA_ERROR_INVALID_CONTEXT;
	return emu_alive(handle) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult change(enum emu_op op, struct emu_ctx *ctx, struct emu_ctx *peer, bool *changed)
{
	struct emu_request q = {.op = op, .arg = {emu_owner(ctx)->id, emu_owner(peer)->id}};
	struct emu_reply r;

	TRY(emu_call(&q, &r, NULL));
	*changed = r.r[0];
	return CUDA_SUCCESS;
}

/* This opens memory in one direction only, and not mappings at reserved addresses. */
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct emu_ctx *ctx, *peer;
	bool changed;

	TRY(both(handle, &ctx, &peer));
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!peers(ctx->device, peer->device))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	TRY(change(EMU_PEER_ENABLE, ctx, peer, &changed));
	return changed ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	struct emu_ctx *ctx, *peer;
	bool changed;

	TRY(both(handle, &ctx, &peer));
	TRY(change(EMU_PEER_DISABLE, ctx, peer, &changed));
	return changed ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* These copies wait for all work that was submitted to either context before. */
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
	return emu_copy_by(EMU_BY_PEER_COPY, to, from, size, stream);
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
