/* deep_binding_odd SCENARIO [LIBRARY]: opens libraries of deep_library.c with RTLD_DEEPBIND as few
 * programs do, and prints in which library they have found cuLaunchKernel. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEP (RTLD_NOW | RTLD_DEEPBIND)
#define ROUNDS 2000

typedef void *find_function(void);

static const char *given; /* LIBRARY */

static void *must(void *found)
{
	if (!found) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return found;
}

static const char *name_of_library(void *function)
{
	Dl_info found;

	return dladdr(must(function), &found) ? strrchr(found.dli_fname, '/') + 1 : "";
}

/* Which library a library has found the function in. */
static const char *found_in(void *library, const char *way)
{
	return name_of_library(((find_function *)must(dlsym(library, way)))());
}

/* Not the last call, since glibc looks whose it is. */
static void *open_deep(void *name)
{
	return must(dlopen(name, DEEP));
}

/* -- the scenarios ----------------------------------------------------------------- */

static void another_is_closed(void)
{
	void *other = must(dlopen("libunrelated.so", RTLD_NOW));
	void *library = must(dlopen("libdeep_at_once.so", DEEP));

	dlclose(other);
	puts(found_in(library, "by_address"));
}

static void another_thread_opens(void)
{
	static char name[] = "libdeep_at_once.so";
	pthread_t thread;
	void *library;

	if (pthread_create(&thread, NULL, open_deep, name) || pthread_join(thread, &library))
		exit(1);
	puts(found_in(must(library), "by_address"));
}

/* LIBRARY: one whose slots are on a page with data of it. */
static void data_beside_slots(void)
{
	void *library = must(dlopen(given, DEEP));
	const char *found = found_in(library, "by_call");

	((find_function *)must(dlsym(library, "by_writing")))();
	puts(found);
}

static void slots_in_constants(void)
{
	puts(found_in(must(dlopen("libdeep_constants.so", DEEP)), "by_constant"));
}

static void *open_and_close(void *name)
{
	for (int i = 0; i < ROUNDS; i++)
		dlclose(must(dlopen(name, DEEP)));
	return NULL;
}

/* Libraries come and go in other threads while this one looks up functions. */
static void others_come_and_go(void)
{
	static char names[2][20] = {"libunrelated.so", "libdeep_lazily.so"};
	void *library = must(dlopen("libouter_at_once.so", DEEP));
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, open_and_close, names[i]))
			exit(1);
	for (int i = 0; i < ROUNDS; i++) {
		void *one = must(dlopen("libdeep_constants.so", DEEP));

		must(dlsym(library, "outer_address"));
		dlclose(one);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	puts(found_in(library, "outer_address"));
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
    {"another is closed", another_is_closed},   {"another thread opens", another_thread_opens},
    {"data beside slots", data_beside_slots},   {"slots in constants", slots_in_constants},
    {"others come and go", others_come_and_go},
};

int main(int argc, char **argv)
{
	given = argc > 2 ? argv[2] : "";
	for (size_t i = 0; argc > 1 && i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, argv[1])) {
			scenarios[i].run();
			return 0;
		}
	return 2;
}
