/* compiler.h: what a declaration tells the compiler and the linker.
 *
 * All code of this library runs inside a program that knows nothing of it. So it never exits the
 * process, writes to stderr only for a real fault or with GPU_LEASE_DEBUG, preserves errno, and
 * leaves the program's signals alone.
 */
#ifndef GPU_LEASE_COMPILER_H
#define GPU_LEASE_COMPILER_H

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)

#endif
