/* stops_work.c: work that a test stops in mid-kernel, and a wrapper of libcuda's ioctl. */
#include "stops_work.h"

#include "../../emugpu/import_table.h"
#include "../../emugpu/rm.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define STEP UINT32_C(2654435761) /* from one word to the next, as the kernel fills them */
#define VALUE 7
#define ADDED 5

/* -- kernels ------------------------------------------------------------------------------- */

void work_load(CUmodule *module)
{
	static char text[1 << 16];
	FILE *file = fopen(KERNELS, "re");

	if (!file || !fread(text, 1, sizeof(text) - 1, file))
		fail("no kernels", 0);
	fclose(file);
	OK(cuModuleLoadData(module, text));
}

static void launch(const struct work *work, const char *name, CUstream stream, void **parameters)
{
	CUfunction function;

	OK(cuModuleGetFunction(&function, work->module, name));
	OK(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
}

void work_spin(const struct work *work, CUstream stream, int ms)
{
	uint64_t ns = (uint64_t)ms * 1000000;

	launch(work, "spin", stream, (void *[]){&ns});
}

void work_add(struct work *work, CUstream stream)
{
	uint64_t n = WORK_BYTES / 4;
	uint32_t value = ADDED, rounds = 1;

	launch(work, "add", stream, (void *[]){&work->memory, &n, &value, &rounds});
	work->added++;
}

void work_prepare(struct work *work)
{
	uint64_t n = WORK_BYTES / 4;
	uint32_t value = VALUE;

	work_load(&work->module);
	OK(cuMemAlloc(&work->memory, WORK_BYTES));
	OK(cuStreamCreate(&work->stream, CU_STREAM_NON_BLOCKING));
	launch(work, "fill", work->stream, (void *[]){&work->memory, &n, &value});
	OK(cuStreamSynchronize(work->stream));
}

void work_begin(struct work *work, int ms)
{
	work_spin(work, work->stream, ms);
	work_add(work, work->stream);
}

void work_check(struct work *work)
{
	uint32_t *words = malloc(WORK_BYTES);

	OK(cuStreamSynchronize(work->stream));
	OK(cuMemcpyDtoH(words, work->memory, WORK_BYTES));
	for (uint32_t i = 0; i < WORK_BYTES / 4; i++)
		if (words[i] != VALUE + ADDED * work->added + i * STEP)
			fail("a word is wrong", (int)i);
	free(words);
}

/* -- the wrapper --------------------------------------------------------------------------- */

static __typeof__(&ioctl) before;
static unsigned int hidden;
static atomic_int calls;

/* On a card too, the size of a call's struct is a part of its number. */
static int wrapper(int fd, unsigned long request, ...)
{
	va_list rest;
	struct rm_alloc *alloc;

	va_start(rest, request);
	alloc = va_arg(rest, void *);
	va_end(rest);
	atomic_fetch_add(&calls, 1);
	if (_IOC_TYPE(request) == 'F' && _IOC_NR(request) == RM_ALLOC && alloc->class == hidden)
		request = _IOC(_IOC_READ | _IOC_WRITE, 'F', RM_ALLOC, sizeof(*alloc) + 8);
	return before(fd, request, alloc);
}

void wrap_ioctl(unsigned int hidden_class)
{
	hidden = hidden_class;
	before = (__typeof__(&ioctl))(uintptr_t)import_replace((const void *)(uintptr_t)emugpu_hold,
	                                                       "ioctl", (void *)(uintptr_t)wrapper);
	if (!before)
		fail("libcuda has no entry for ioctl", 0);
}

int wrapped_calls(void)
{
	return atomic_load(&calls);
}
