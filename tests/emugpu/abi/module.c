/* module.c: the emulated libcuda: modules of built-in kernels, and their launch.
 *
 * A module is PTX text. The emulator takes the `.entry` names out of it and has
 * a kernel of its own for each of them; any other name is refused, because
 * nothing here can run PTX.
 */
#include "abi/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int kernel_by_name(const char *name, size_t length)
{
	for (int i = 0; i < EMU_KERNELS; i++)
		if (strlen(emu_kernel_table[i].name) == length &&
		    !strncmp(emu_kernel_table[i].name, name, length))
			return i;
	return -1;
}

static void free_module(struct emu_module *module)
{
	while (module->functions) {
		struct emu_function *function = module->functions;

		module->functions = function->next;
		free(function);
	}
	free(module);
}

static CUresult load(const char *image, struct emu_module **out)
{
	struct emu_module *module = calloc(1, sizeof(*module));
	const char *at = image;

	if (!module || !image || !strstr(image, ".version")) {
		free(module);
		return module ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	while ((at = strstr(at, ".entry"))) {
		struct emu_function *function = calloc(1, sizeof(*function));
		size_t length;
		int kernel;

		at += strlen(".entry");
		at += strspn(at, " \t\n");
		length = strcspn(at, " \t\n(");
		kernel = kernel_by_name(at, length);
		if (!function || kernel < 0) {
			fprintf(stderr, "emulated libcuda: no built-in kernel '%.*s'\n",
			        (int)length, at);
			free(function);
			free_module(module);
			return CUDA_ERROR_INVALID_PTX;
		}
		*function =
		    (struct emu_function){module->functions, (enum emu_kernel)kernel, module};
		module->functions = function;
	}
	*out = module;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	struct emu_module *module;
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	TRY(load(image, &module));
	*out = (CUmodule)module;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	TRY(emu_ready());
	free_module((struct emu_module *)module);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	TRY(emu_ready());
	for (struct emu_function *f = ((struct emu_module *)module)->functions; f; f = f->next) {
		if (!strcmp(emu_kernel_table[f->kernel].name, name)) {
			*out = (CUfunction)f;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

/* Parameters come one by one, or packed with their natural alignment. One that is larger than
 * a word goes along as the payload. */
static CUresult read_params(const struct emu_kernel_info *info, void **params, void **extra,
                            uint64_t *out, const void **payload)
{
	const char *packed = NULL;
	size_t offset = 0;

	for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2)
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			packed = extra[i + 1];
	if (info->n_params && !params && !packed)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < info->n_params; i++) {
		size_t size = info->param_size[i], unit = size < 8 ? size : 8;
		const void *at;

		offset = (offset + unit - 1) / unit * unit;
		at = params ? params[i] : packed + offset;
		out[i] = 0;
		if (size > 8)
			*payload = at;
		else
			memcpy(&out[i], at, size);
		offset += size;
	}
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, const unsigned int dims[6], CUstream stream,
                       void **params, void **extra)
{
	const struct emu_function *function = (struct emu_function *)handle;
	struct emu_request q = {.op = EMU_LAUNCH};
	const void *payload = NULL;

	TRY(emu_ready());
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < 6; i++)
		if (!dims[i])
			return CUDA_ERROR_INVALID_VALUE;
	if (dims[3] * dims[4] * dims[5] > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[1] = function->kernel;
	TRY(read_params(&emu_kernel_table[function->kernel], params, extra, &q.arg[2], &payload));
	q.payload = payload ? EMU_FINGERPRINT_KEYS : 0;
	return emu_submit(stream, &q, payload);
}

#define LAUNCH_PARAMETERS                                                                          \
	CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,          \
	    unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params
#define DIMS ((unsigned int[6]){gx, gy, gz, bx, by, bz})

EXPORT CUresult cuLaunchKernel(LAUNCH_PARAMETERS, void **extra)
{
	(void)shared;
	return launch(f, DIMS, emu_legacy(stream), params, extra);
}

EXPORT CUresult cuLaunchKernel_ptsz(LAUNCH_PARAMETERS, void **extra)
{
	(void)shared;
	return launch(f, DIMS, emu_per_thread(stream), params, extra);
}
