/* version.c: which release this file is of, for `gpu-leasectl check`, which reads the file. */

__attribute__((used)) static const char version[] = "gpu-lease plugin " GPU_LEASE_VERSION;
