/* store.c: says which store is in use. */
#include "memory/swap/store.h"

const struct store *swap_store = &pinned_store;
