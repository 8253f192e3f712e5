/* deep_binding.c: libraries that were opened with RTLD_DEEPBIND are bound to our functions.
 *
 * Julia opens all its libraries in this way, those of CUDA among them. Such a library, and the
 * libraries that are loaded for it, find functions in the libraries that they need before they find
 * ours: dlsym in libc, and the driver's functions in libcuda. So we change their slots, in which
 * the loader has put or will put the address of such a function, to our functions (slots.c).
 *
 * We do this when the program looks up a function (dlsym) after it has opened the library, which it
 * has to do before it can call one. The thread that looks it up need not be the one that has opened
 * the library. So the loader's own count of the libraries that it has ever loaded tells what is
 * still to be done: each library that was loaded since the program first used RTLD_DEEPBIND is
 * looked at once. A library that was opened without it is bound to our functions anyway.
 *
 * Calls that a library makes before that, while it is initialised, are not held back; nor are its
 * calls in a program that never looks up a function.
 */
#include "hooks/deep_binding.h"

#include "base/compiler.h"
#include "driver/lookup.h"
#include "driver/slots.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define WORD_BITS 64

/* How many libraries had been loaded when all until then were bound; 0: the program has opened none
 * with RTLD_DEEPBIND. */
static _Atomic(unsigned long long) bound;

/* The loader's list of libraries at a moment: how often one was loaded and unloaded until then. */
struct moment {
	unsigned long long loaded, unloaded;
	size_t length; /* of the list */
};

/* One way through the list. */
struct walk {
	const struct replaced_functions *functions;
	struct moment moment; /* if the list is not as it was then, the walk ends */
	size_t first, at;     /* the first library to look at, and the next one */
	bool changed;         /* the list was another */
	bool sets;            /* slots are set; otherwise, what they need is noted */
	uint64_t needed[MOST_REPLACED / WORD_BITS]; /* numbers of functions */
};

/* -- in the loader's callbacks: its lock is held, so no function may be looked up ----- */

static int take_loaded(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

static int take_moment(struct dl_phdr_info *info, size_t size, void *data)
{
	struct moment *moment = data;

	(void)size;
	moment->loaded = info->dlpi_adds;
	moment->unloaded = info->dlpi_subs;
	moment->length++;
	return 0;
}

static void see_slot(const struct dl_phdr_info *info, const struct slot *slot, void *data)
{
	struct walk *walk = data;
	int number = walk->functions->number(slot->name);
	struct replaced function;

	if (number < 0)
		return;
	if (!walk->sets) {
		walk->needed[number / WORD_BITS] |= UINT64_C(1) << number % WORD_BITS;
		return;
	}
	function = walk->functions->known(number);
	if (function.real && (*slot->place == function.real || slot_is_unbound(info, slot)))
		slot_set(info, slot, function.ours);
}

static int see_library(struct dl_phdr_info *info, size_t size, void *data)
{
	struct walk *walk = data;

	(void)size;
	walk->changed =
	    info->dlpi_adds != walk->moment.loaded || info->dlpi_subs != walk->moment.unloaded;
	if (!walk->changed && walk->at++ >= walk->first)
		slots_of(info, see_slot, walk);
	return walk->changed;
}

/* -- when it is done ---------------------------------------------------------------- */

static unsigned long long loaded_now(void)
{
	unsigned long long loaded = 0;

	dl_iterate_phdr(take_loaded, &loaded);
	return loaded;
}

void deep_binding_begins(void)
{
	unsigned long long none = 0;

	if (!atomic_load(&bound))
		atomic_compare_exchange_strong(&bound, &none, loaded_now());
}

/* A library is in the list before it is relocated. dlsym() waits for threads that load one. */
static void wait_until_loaded(void)
{
	real_dlsym(RTLD_DEFAULT, "dlsym");
}

static bool walk_list(struct walk *walk)
{
	walk->at = 0;
	dl_iterate_phdr(see_library, walk);
	return !walk->changed;
}

static void look_up_needed(const struct walk *walk)
{
	for (int number = 0; number < MOST_REPLACED; number++)
		if (walk->needed[number / WORD_BITS] >> number % WORD_BITS & 1)
			walk->functions->look_up(number);
}

/* New libraries are at the end of the list. There are at most so many of them as have been loaded:
 * some may have gone, and some are in other namespaces. */
static bool bind_new(const struct replaced_functions *functions, unsigned long long loaded)
{
	struct walk walk = {.functions = functions};
	unsigned long long new = loaded - atomic_load(&bound);

	dl_iterate_phdr(take_moment, &walk.moment);
	if (walk.moment.loaded != loaded)
		return false;
	walk.first = new < walk.moment.length ? walk.moment.length - (size_t) new : 0;
	if (!walk_list(&walk))
		return false;
	look_up_needed(&walk);
	walk.sets = true;
	return walk_list(&walk);
}

/* If another thread loads or unloads a library meanwhile, it is done again. */
__attribute__((noinline)) static void follow(const struct replaced_functions *functions)
{
	int saved_errno = errno;
	unsigned long long loaded;

	while (loaded = loaded_now(), loaded != atomic_load(&bound)) {
		wait_until_loaded();
		if (bind_new(functions, loaded))
			atomic_store(&bound, loaded);
	}
	errno = saved_errno;
}

void deep_binding_follow(const struct replaced_functions *functions)
{
	if (!likely(!atomic_load(&bound)))
		follow(functions);
}
