/* musl_program.c: what a program of an image with musl does, under the interposer.
 *
 * It uses the loader, a thread and a child, then the driver's library if there is one. It prints a
 * line for each.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int initialise(unsigned flags);
typedef int retain(void **context, int device);
typedef int set_current(void *context);
typedef int allocate(void **pointer, size_t size);

static void *run(void *argument)
{
	return argument;
}

static void use_system(void)
{
	pthread_t thread;
	int status = -1;

	printf("symbols %d %d\n", dlsym(RTLD_DEFAULT, "malloc") != NULL,
	       dlsym(RTLD_NEXT, "malloc") != NULL);
	printf("no symbol %d\n", dlsym(RTLD_DEFAULT, "cuNothingOfThatName") != NULL);
	printf("thread %d\n",
	       pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL));
	fflush(stdout);
	if (!fork())
		_exit(3);
	wait(&status);
	printf("child %d\n", WEXITSTATUS(status));
}

static void use_driver(void *driver)
{
	initialise *init = (initialise *)dlsym(driver, "cuInit");
	retain *primary = (retain *)dlsym(driver, "cuDevicePrimaryCtxRetain");
	set_current *enter = (set_current *)dlsym(driver, "cuCtxSetCurrent");
	allocate *alloc = (allocate *)dlsym(driver, "cuMemAlloc_v2");
	void *context = NULL, *pointer;

	printf("init %d\n", init(0) || primary(&context, 0) || enter(context));
	printf("allocate %d\n", alloc(&pointer, 4096));
	printf("allocate %d\n", alloc(&pointer, 4096));
}

int main(void)
{
	void *driver;

	use_system();
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (driver)
		use_driver(driver);
	return 0;
}
