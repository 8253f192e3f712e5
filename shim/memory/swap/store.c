/* store.c: the store that segments go to. */
#include "memory/swap/store.h"

const struct store *swap_store = &pinned_store;
