/* deep_binding.h: libraries that were opened with RTLD_DEEPBIND. */
#ifndef GPU_LEASE_DEEP_BINDING_H
#define GPU_LEASE_DEEP_BINDING_H

/* A function, and ours that stands in its place; {NULL, NULL}: none of ours does. */
struct replaced {
	void *real, *ours;
};

/* The functions that we replace, each of which has a number. */
#define MOST_REPLACED 1024
struct replaced_functions {
	/* The number of the function of this name; -1: we replace none. It looks up nothing. */
	int (*number)(const char *name);
	void (*look_up)(int number);
	/* real is NULL until it has been looked up. */
	struct replaced (*known)(int number);
};

/* Before a library is opened with RTLD_DEEPBIND. */
void deep_binding_begins(void);
/* Before a function is looked up: the libraries that have been opened so are bound to our
 * functions. */
void deep_binding_follow(const struct replaced_functions *functions);

#endif
