/* watch.h: how a room calls the rooms above it without knowing them.
 *
 * The lower room declares a list with WATCH_LIST(). A file of a higher room adds an item with
 * WATCH(), and the lower room iterates over the items with for_each_watch(). The linker assembles
 * the list, so it is complete before any code runs. That matters because constructors of other
 * libraries may call the driver before ours have run. The items are in the order of the files in
 * shim/meson.build, which is that of the rooms.
 */
#ifndef GPU_LEASE_WATCH_H
#define GPU_LEASE_WATCH_H

#define WATCH_LIST(list, type)                                                                     \
	typedef __typeof__(type) list##_item;                                                      \
	extern list##_item *const __start_##list[] __attribute__((weak, visibility("hidden")));    \
	extern list##_item *const __stop_##list[] __attribute__((weak, visibility("hidden")))

#define WATCH(list, item)                                                                          \
	static list##_item *const list##_of_this_file __attribute__((used, section(#list))) = (item)

#define for_each_watch(list, item)                                                                 \
	for (list##_item *const *item = __start_##list; item < __stop_##list; item++)

#endif
