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

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n,
                                   CUjit_option *options, void **values)
{
	(void)n;
	(void)options;
	(void)values;
	return cuModuleLoadData(out, image);
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

EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit,
                                  void **jit_values, unsigned int n_jit, CUlibraryOption *options,
                                  void **values, unsigned int n)
{
	struct emu_module *module;

	(void)jit;
	(void)jit_values;
	(void)n_jit;
	(void)options;
	(void)values;
	(void)n;
	TRY(emu_ready());
	TRY(load(code, &module));
	*out = (CUlibrary)module;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload((CUmodule)library);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
	return cuModuleGetFunction((CUfunction *)out, (CUmodule)library, name);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
	TRY(emu_ready());
	*out = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetModule(CUmodule *out, CUfunction function)
{
	TRY(emu_ready());
	*out = (CUmodule)((struct emu_function *)function)->module;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction function)
{
	TRY(emu_ready());
	*name = emu_kernel_table[((struct emu_function *)function)->kernel].name;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	const struct emu_kernel_info *info =
	    &emu_kernel_table[((struct emu_function *)function)->kernel];
	size_t at = 0;

	TRY(emu_ready());
	if (index >= (size_t)info->n_params)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < index; i++)
		at += info->param_size[i];
	*offset = at;
	if (size)
		*size = info->param_size[index];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	(void)function;
	TRY(emu_ready());
	if (attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	(void)function;
	(void)value;
	TRY(emu_ready());
	return attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                            int block_size, size_t shared)
{
	(void)function;
	(void)shared;
	TRY(emu_ready());
	if (block_size <= 0 || block_size > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = 2048 / block_size;
	return CUDA_SUCCESS;
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

EXPORT CUresult cuLaunchCooperativeKernel(LAUNCH_PARAMETERS)
{
	(void)shared;
	return launch(f, DIMS, emu_legacy(stream), params, NULL);
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_PARAMETERS)
{
	(void)shared;
	return launch(f, DIMS, emu_per_thread(stream), params, NULL);
}

static CUresult launch_config(const CUlaunchConfig *c, CUfunction f, CUstream stream, void **params,
                              void **extra)
{
	return launch(f,
	              (unsigned int[6]){c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
	                                c->blockDimY, c->blockDimZ},
	              stream, params, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	return launch_config(c, f, emu_legacy(c->hStream), params, extra);
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params,
                                      void **extra)
{
	return launch_config(c, f, emu_per_thread(c->hStream), params, extra);
}
