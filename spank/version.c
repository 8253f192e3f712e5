/* version.c: the release of the plugin, as a text that `gpu-leasectl check` finds in its file. */

__attribute__((used)) static const char version[] = "gpu-lease plugin " GPU_LEASE_VERSION;
