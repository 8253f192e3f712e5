/* watch.h: how a room calls the rooms above it without knowing them.
 *
 * The room below declares a list with WATCH_LIST(). A file above puts an item into it with
 * WATCH(), and the room below goes through all items with for_each_watch(). The linker puts
 * the list together, so it is complete before anything runs: constructors of other libraries
 * may call the driver before ours have run. The items have the order of the files in
 * shim/meson.build, that of the rooms.
 */
#ifndef GPU_LEASE_WATCH_H
#define GPU_LEASE_WATCH_H

#define WATCH_LIST(list, type)                                                                     \
	typedef __typeof__(type) list##_item;                                                      \
	extern list##_item *const __start_##list[] __attribute__((weak, visibility("hidden")));    \
	extern list##_item *const __stop_##list[] __attribute__((weak, visibility("hidden")))

#define WATCH(list, item)                                                                          \
	static list##_item *const list##_of_this_file __attribute__((used, section(#list))) = (item)

#define for_each_watch(list, at)                                                                   \
	for (list##_item *const *at = __start_##list; at < __stop_##list; at++)

#endif
