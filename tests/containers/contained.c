/* contained.c: a GPU job that needs nothing but a C library and the driver's, for small images.
 *
 *     contained DRIVER KERNELS MIB STEPS
 *
 * DRIVER is what dlopen() gets, KERNELS tests/emugpu/kernels.ptx. In each step every word of MIB of
 * memory has 1 added to it, and the GPU is busy for a few milliseconds. It prints "ready" once it
 * has computed, and "right" if all words are what they have to be; else the call that failed.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST 41
#define BUSY_NS UINT64_C(4000000)

/* The driver's functions take integers and pointers only. */
typedef int function(void *, ...);

static void *driver;

static function *find(const char *name)
{
	void *found = dlsym(driver, name);

	if (!found) {
		printf("there is no %s\n", name);
		exit(1);
	}
	return (function *)found;
}

static void check(const char *name, int status)
{
	if (!status)
		return;
	printf("%s: error %d\n", name, status);
	exit(1);
}

#define CALL(name, first, ...) check(#name, find(#name)((void *)(uintptr_t)(first), ##__VA_ARGS__))

static char *read_file(const char *path)
{
	static char text[1 << 16];
	FILE *file = fopen(path, "r");

	if (!file || !fread(text, 1, sizeof(text) - 1, file)) {
		printf("%s cannot be read\n", path);
		exit(1);
	}
	fclose(file);
	return text;
}

static void launch(void *kernel, void **values)
{
	CALL(cuLaunchKernel, kernel, 256, 1, 1, 256, 1, 1, 0, NULL, values, NULL);
}

static void step(void *add, void *spin, uint64_t pointer, uint64_t words)
{
	uint32_t one = 1, times = 1;
	uint64_t busy = BUSY_NS;
	void *added[] = {&pointer, &words, &one, &times}, *spun[] = {&busy};

	launch(add, added);
	launch(spin, spun);
	check("cuCtxSynchronize", find("cuCtxSynchronize")(NULL));
}

static void compare(uint64_t pointer, uint64_t words, uint32_t value)
{
	uint32_t *host = malloc(words * sizeof(*host));

	CALL(cuMemcpyDtoH_v2, host, pointer, words * sizeof(*host));
	for (uint64_t i = 0; i < words; i++)
		if (host[i] != value) {
			printf("word %lu is %u\n", (unsigned long)i, host[i]);
			exit(1);
		}
	free(host);
}

int main(int argc, char **argv)
{
	void *context, *module, *add, *spin;
	uint64_t pointer, words;
	int steps;

	if (argc != 5)
		return 2;
	setvbuf(stdout, NULL, _IONBF, 0);
	driver = dlopen(argv[1], RTLD_NOW);
	if (!driver) {
		printf("%s\n", dlerror());
		return 1;
	}
	words = strtoull(argv[3], NULL, 10) * (1 << 18);
	steps = atoi(argv[4]);
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuCtxSetCurrent, context);
	CALL(cuModuleLoadData, &module, read_file(argv[2]));
	CALL(cuModuleGetFunction, &add, module, "add");
	CALL(cuModuleGetFunction, &spin, module, "spin");
	CALL(cuMemAlloc_v2, &pointer, words * 4);
	CALL(cuMemsetD32_v2, pointer, FIRST, words);
	step(add, spin, pointer, words);
	printf("ready\n");
	for (int i = 1; i < steps; i++)
		step(add, spin, pointer, words);
	compare(pointer, words, (uint32_t)(FIRST + steps));
	printf("right\n");
	return 0;
}
