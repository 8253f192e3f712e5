/* batch.c: the emulated libcuda: batches of copies and prefetches, and copies with attributes.
 */
#include "abi/client.h"

#define NO_OPERATION SIZE_MAX /* the fault is not that of one operation of the batch */

/* Batches are refused on the legacy default stream. */
static CUresult check_stream(CUstream stream)
{
	TRY(emu_ready());
	return stream == CU_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool order_known(CUmemcpySrcAccessOrder order)
{
	return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
	       order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* Does each entry name the first operation to which it applies? */
static bool indices_right(const size_t *indices, size_t n, size_t count)
{
	if (!indices || !n || n > count || indices[0])
		return false;
	for (size_t i = 1; i < n; i++)
		if (indices[i] <= indices[i - 1] || indices[i] >= count)
			return false;
	return true;
}

struct batch {
	const CUdeviceptr *to, *from;
	const size_t *sizes;
	size_t count;
	const CUmemcpyAttributes *attributes;
	const size_t *indices;
	size_t n_attributes;
};

static CUresult copy_batch(const struct batch *b, size_t *failed, CUstream stream)
{
	*failed = NO_OPERATION;
	TRY(check_stream(stream));
	if (!b->to || !b->from || !b->sizes || !b->attributes ||
	    !indices_right(b->indices, b->n_attributes, b->count))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < b->n_attributes; i++)
		if (!order_known(b->attributes[i].srcAccessOrder))
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < b->count; i++) {
		*failed = i;
		TRY(emu_copy(b->to[i], b->from[i], b->sizes[i], stream));
	}
	*failed = NO_OPERATION;
	return CUDA_SUCCESS;
}

#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
#define BATCH                                                                                      \
	CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attr, \
	    size_t *indices, size_t n
#define AS_BATCH ((struct batch){to, from, sizes, count, attr, indices, n})

CUresult cuMemcpyBatchAsync(BATCH, size_t *failed, CUstream stream);
EXPORT CUresult cuMemcpyBatchAsync(BATCH, size_t *failed, CUstream stream)
{
	return failed ? copy_batch(&AS_BATCH, failed, emu_legacy(stream))
	              : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyBatchAsync_ptsz(BATCH, size_t *failed, CUstream stream);
EXPORT CUresult cuMemcpyBatchAsync_ptsz(BATCH, size_t *failed, CUstream stream)
{
	return failed ? copy_batch(&AS_BATCH, failed, emu_per_thread(stream))
	              : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemcpyBatchAsync_v2(BATCH, CUstream stream)
{
	size_t failed;

	return copy_batch(&AS_BATCH, &failed, emu_legacy(stream));
}

EXPORT CUresult cuMemcpyBatchAsync_v2_ptsz(BATCH, CUstream stream)
{
	size_t failed;

	return copy_batch(&AS_BATCH, &failed, emu_per_thread(stream));
}

/* One side of a box in elements of so many bytes. */
static CUresult side_of(const CUmemcpy3DOperand *o, const CUextent3D *e, size_t element,
                        struct emu_side *out)
{
	struct emu_extent bytes = {e->width * element, e->height, e->depth};
	size_t row, rows;

	if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return emu_array_side(o->op.array.array, o->op.array.offset.x * element,
		                      o->op.array.offset.y, o->op.array.offset.z, bytes, out);
	if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_ERROR_INVALID_VALUE;
	row = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;
	rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height;
	if (row < e->width || rows < e->height)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct emu_side){o->op.ptr.ptr, row * element, row * element * rows};
	return CUDA_SUCCESS;
}

static size_t element_of(const CUmemcpy3DOperand *o)
{
	return o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? emu_array_element(o->op.array.array) : 0;
}

static CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP *o, CUstream stream)
{
	size_t to = element_of(&o->dst), from = element_of(&o->src);
	size_t element = to ? to : from ? from : 1;
	struct emu_side to_side, from_side;

	if (!o->extent.width || !o->extent.height || !o->extent.depth ||
	    !order_known(o->srcAccessOrder) || (to && from && to != from))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(side_of(&o->dst, &o->extent, element, &to_side));
	TRY(side_of(&o->src, &o->extent, element, &from_side));
	return emu_copy_box(
	    &to_side, &from_side,
	    (struct emu_extent){o->extent.width * element, o->extent.height, o->extent.depth},
	    EMU_BY_COPY, stream);
}

static CUresult copy3d_batch(size_t n, const CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                             unsigned long long flags, CUstream stream)
{
	*failed = NO_OPERATION;
	TRY(check_stream(stream));
	if (!n || !list || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++) {
		*failed = i;
		TRY(copy_operation(&list[i], stream));
	}
	*failed = NO_OPERATION;
	return CUDA_SUCCESS;
}

#define BATCH3D size_t n, CUDA_MEMCPY3D_BATCH_OP *list

CUresult cuMemcpy3DBatchAsync(BATCH3D, size_t *failed, unsigned long long flags, CUstream stream);
EXPORT CUresult cuMemcpy3DBatchAsync(BATCH3D, size_t *failed, unsigned long long flags,
                                     CUstream stream)
{
	return failed ? copy3d_batch(n, list, failed, flags, emu_legacy(stream))
	              : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DBatchAsync_ptsz(BATCH3D, size_t *failed, unsigned long long flags,
                                   CUstream stream);
EXPORT CUresult cuMemcpy3DBatchAsync_ptsz(BATCH3D, size_t *failed, unsigned long long flags,
                                          CUstream stream)
{
	return failed ? copy3d_batch(n, list, failed, flags, emu_per_thread(stream))
	              : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemcpy3DBatchAsync_v2(BATCH3D, unsigned long long flags, CUstream stream)
{
	size_t failed;

	return copy3d_batch(n, list, &failed, flags, emu_legacy(stream));
}

EXPORT CUresult cuMemcpy3DBatchAsync_v2_ptsz(BATCH3D, unsigned long long flags, CUstream stream)
{
	size_t failed;

	return copy3d_batch(n, list, &failed, flags, emu_per_thread(stream));
}

static CUresult copy_with(CUdeviceptr to, CUdeviceptr from, size_t size,
                          const CUmemcpyAttributes *attributes, CUstream stream)
{
	TRY(emu_ready());
	if (!attributes || !order_known(attributes->srcAccessOrder))
		return CUDA_ERROR_INVALID_VALUE;
	return emu_copy(to, from, size, stream);
}

EXPORT CUresult cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t size,
                                            CUmemcpyAttributes *attributes, CUstream stream)
{
	return copy_with(to, from, size, attributes, emu_legacy(stream));
}

EXPORT CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size,
                                                 CUmemcpyAttributes *attributes, CUstream stream)
{
	return copy_with(to, from, size, attributes, emu_per_thread(stream));
}

static CUresult copy3d_with(const CUDA_MEMCPY3D_BATCH_OP *o, unsigned long long flags,
                            CUstream stream)
{
	TRY(emu_ready());
	return flags || !o ? CUDA_ERROR_INVALID_VALUE : copy_operation(o, stream);
}

EXPORT CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *o, unsigned long long flags,
                                              CUstream stream)
{
	return copy3d_with(o, flags, emu_legacy(stream));
}

EXPORT CUresult cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *o,
                                                   unsigned long long flags, CUstream stream)
{
	return copy3d_with(o, flags, emu_per_thread(stream));
}

struct prefetches {
	const CUdeviceptr *pointers;
	const size_t *sizes;
	size_t count;
	const CUmemLocation *places;
	const size_t *indices;
	size_t n_places;
	unsigned long long flags;
};

static CUresult prefetch_batch(const struct prefetches *p, CUstream stream)
{
	size_t place = 0;

	TRY(check_stream(stream));
	if (p->flags || !p->pointers || !p->sizes || !p->places ||
	    !indices_right(p->indices, p->n_places, p->count))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < p->count; i++) {
		if (place + 1 < p->n_places && p->indices[place + 1] == i)
			place++;
		TRY(emu_prefetch(p->pointers[i], p->sizes[i], p->places[place], stream));
	}
	return CUDA_SUCCESS;
}

#define PREFETCHES                                                                                 \
	CUdeviceptr *pointers, size_t *sizes, size_t count, CUmemLocation *places,                 \
	    size_t *indices, size_t n, unsigned long long flags, CUstream stream
#define AS_PREFETCHES (&(struct prefetches){pointers, sizes, count, places, indices, n, flags})

EXPORT CUresult cuMemPrefetchBatchAsync(PREFETCHES)
{
	return prefetch_batch(AS_PREFETCHES, emu_legacy(stream));
}

EXPORT CUresult cuMemPrefetchBatchAsync_ptsz(PREFETCHES)
{
	return prefetch_batch(AS_PREFETCHES, emu_per_thread(stream));
}
