/* compiler.h: what a declaration tells the compiler and the linker.
 *
 * Everything in this library runs inside a stranger's program: no exit, no output but on a
 * real fault or with GPU_LEASE_DEBUG, errno kept, signals left alone.
 */
#ifndef GPU_LEASE_COMPILER_H
#define GPU_LEASE_COMPILER_H

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)

#endif
