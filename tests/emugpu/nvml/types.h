/* types.h: the few types of NVML that the emulated one needs.
 *
 * NVIDIA's header is not needed to build: the structs are declared here, and
 * tests read them back through nvidia-ml-py, which has its own declarations.
 */
#ifndef EMUGPU_NVML_TYPES_H
#define EMUGPU_NVML_TYPES_H

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999
} nvml_return;

typedef struct emu_nvml_device *nvml_device; /* index + 1 as a pointer */

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

/* How NVML writes the version of a struct: its size, and the number above. */
#define MEMORY_V2 ((unsigned int)sizeof(struct nvml_memory_v2) | 2U << 24)

struct nvml_pci {
	char legacy[16];
	unsigned int domain, bus, device, pci_device, pci_subsystem;
	char id[32];
};

struct nvml_utilization {
	unsigned int gpu, memory;
};

struct nvml_process_v1 {
	unsigned int pid;
	unsigned long long used;
};

struct nvml_process {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
};

struct nvml_sample {
	unsigned int pid;
	unsigned long long timestamp;
	unsigned int sm, memory, encoder, decoder;
};

#endif
