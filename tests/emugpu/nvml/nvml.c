/* nvml.c: the emulated libnvidia-ml.so.1: what NVIDIA's nvidia-ml-py asks for, from emugpud.
 *
 */
#include "messages.h"
#include "nvml/events.h"
#include "nvml/faults.h"
#include "nvml/samples.h"
#include "nvml/types.h"
#include "protocol.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HIGHEST_MHZ 1980U /* of the SMs */
#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1, users, n_devices;
static pid_t owner;
static struct emu_device_info info[EMU_MAX_DEVICES];

/* For utilization and throughput since the last question. */
static struct {
	uint64_t busy, at;
} last[EMU_MAX_DEVICES];

enum direction { TRANSMIT, RECEIVE, DIRECTIONS }; /* as the device sees it */

static struct {
	uint64_t bytes, at;
} crossed[EMU_MAX_DEVICES][DIRECTIONS];

static nvml_return result(uint32_t status)
{
	switch (status) {
	case EMU_OK:
		return NVML_SUCCESS;
	case EMU_LOST:
		return NVML_ERROR_GPU_IS_LOST;
	case EMU_INVALID:
		return NVML_ERROR_INVALID_ARGUMENT;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

/* The lock is held. *payload, where asked for, is malloc'ed. */
static nvml_return ask(uint32_t op, uint64_t device, struct emu_reply *reply, void **payload)
{
	struct emu_request q = {.op = op, .arg = {device}};
	void *data = NULL;

	if (payload)
		*payload = NULL;
	if (connection < 0 || owner != getpid())
		return NVML_ERROR_UNINITIALIZED;
	if (!send_all(connection, &q, sizeof(q)) || !recv_all(connection, reply, sizeof(*reply)))
		return NVML_ERROR_UNKNOWN;
	if (reply->payload) {
		data = malloc(reply->payload);
		if (!data || !recv_all(connection, data, reply->payload)) {
			free(data);
			return NVML_ERROR_UNKNOWN;
		}
	}
	if (payload)
		*payload = data;
	else
		free(data);
	return result(reply->status);
}

static nvml_return open_connection(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct emu_request hello = {.op = EMU_HELLO, .arg = {EMU_ROLE_MONITOR}};
	const char *dir = getenv("EMUGPU_DIR");
	struct emu_reply reply;

	if (!dir || snprintf(address.sun_path, sizeof(address.sun_path), "%s/" EMU_SOCKET, dir) >=
	                (int)sizeof(address.sun_path))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	owner = getpid();
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof(address)) ||
	    !send_all(connection, &hello, sizeof(hello)) ||
	    !recv_all(connection, &reply, sizeof(reply)))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	n_devices = (int)reply.r[0];
	for (int i = 0; i < n_devices; i++) {
		void *payload;
		nvml_return status = ask(EMU_DEVICE, (uint64_t)i, &reply, &payload);

		if (!status)
			memcpy(&info[i], payload, sizeof(info[i]));
		free(payload);
		if (status && status != NVML_ERROR_GPU_IS_LOST)
			return status;
	}
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlInit_v2(void)
{
	nvml_return status = NVML_SUCCESS;

	if (nvml_fault_now(NVML_FAULT_ALL) == NVML_FAULT_ERROR)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&lock);
	if (connection < 0 || owner != getpid())
		status = open_connection();
	if (status && connection >= 0) {
		close(connection);
		connection = -1;
	}
	users += !status;
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT nvml_return nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return nvmlInit_v2();
}

EXPORT nvml_return nvmlInit(void)
{
	return nvmlInit_v2();
}

EXPORT nvml_return nvmlShutdown(void)
{
	nvml_return status = users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&lock);
	if (users && !--users) {
		close(connection);
		connection = -1;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT const char *nvmlErrorString(nvml_return status)
{
	switch (status) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT:
		return "Timeout";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
		return "Argument version mismatch";
	default:
		return "Unknown Error";
	}
}

static nvml_return write_text(char *out, unsigned int length, const char *text)
{
	if (connection < 0)
		return NVML_ERROR_UNINITIALIZED;
	if (!out || strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlSystemGetDriverVersion(char *out, unsigned int length)
{
	return write_text(out, length, "0.emulated");
}

EXPORT nvml_return nvmlSystemGetNVMLVersion(char *out, unsigned int length)
{
	return write_text(out, length, "0.emulated");
}

EXPORT nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13020;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (connection < 0)
		return NVML_ERROR_UNINITIALIZED;
	*count = (unsigned)n_devices;
	return NVML_SUCCESS;
}

/* What a test wants to go wrong with a device. */
static nvml_return fault_of(int index)
{
	switch (nvml_fault_now(index)) {
	case NVML_FAULT_LOST:
		return NVML_ERROR_GPU_IS_LOST;
	case NVML_FAULT_ERROR:
		return NVML_ERROR_UNKNOWN;
	default:
		return NVML_SUCCESS;
	}
}

static bool talks_garbage(int index)
{
	return nvml_fault_now(index) == NVML_FAULT_GARBAGE;
}

/* Index of a handle; -1 for what is none. */
static int index_of(nvml_device device)
{
	uintptr_t number = (uintptr_t)device;

	return connection >= 0 && number >= 1 && number <= (uintptr_t)n_devices ? (int)number - 1
	                                                                        : -1;
}

/* A device off the bus has none. */
static nvml_return handle(int index, nvml_device *out)
{
	struct emu_reply r;
	nvml_return status;

	if (connection < 0)
		return NVML_ERROR_UNINITIALIZED;
	if (index < 0 || index >= n_devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	status = fault_of(index);
	if (status)
		return status;
	pthread_mutex_lock(&lock);
	status = ask(EMU_MEM_INFO, (uint64_t)index, &r, NULL);
	pthread_mutex_unlock(&lock);
	if (!status)
		*out = (nvml_device)(uintptr_t)(index + 1);
	return status;
}

EXPORT nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvml_device *out)
{
	return handle((int)index, out);
}

EXPORT nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *out)
{
	for (int i = 0; i < n_devices; i++)
		if (!strcmp(info[i].uuid, uuid))
			return handle(i, out);
	return connection < 0 ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_NOT_FOUND;
}

EXPORT nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *out)
{
	unsigned domain, bus;

	if (sscanf(id, "%x:%x:", &domain, &bus) != 2)
		return NVML_ERROR_INVALID_ARGUMENT;
	return handle((int)bus - 1, out);
}

#define INDEX_OR_RETURN(device)                                                                    \
	int index = index_of(device);                                                              \
	if (index < 0)                                                                             \
	return connection < 0 ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT

EXPORT nvml_return nvmlDeviceGetName(nvml_device device, char *out, unsigned int length)
{
	INDEX_OR_RETURN(device);
	return write_text(out, length, info[index].name);
}

EXPORT nvml_return nvmlDeviceGetUUID(nvml_device device, char *out, unsigned int length)
{
	INDEX_OR_RETURN(device);
	if (talks_garbage(index)) {
		memset(out, 0xff, length - 1);
		out[length - 1] = '\0';
		return NVML_SUCCESS;
	}
	return write_text(out, length, info[index].uuid);
}

EXPORT nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned int *out)
{
	INDEX_OR_RETURN(device);
	*out = (unsigned)index;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceGetMinorNumber(nvml_device device, unsigned int *out)
{
	INDEX_OR_RETURN(device);
	*out = info[index].minor_number;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *out)
{
	INDEX_OR_RETURN(device);
	*out = (struct nvml_pci){.bus = (unsigned)index + 1};
	snprintf(out->legacy, sizeof(out->legacy), "0000:%02X:00.0", (unsigned char)(index + 1));
	snprintf(out->id, sizeof(out->id), "00000000:%02X:00.0", (unsigned char)(index + 1));
	return NVML_SUCCESS;
}

static nvml_return memory(int index, struct emu_reply *reply)
{
	nvml_return status;

	pthread_mutex_lock(&lock);
	status = ask(EMU_MEM_INFO, (uint64_t)index, reply, NULL);
	pthread_mutex_unlock(&lock);
	if (!status && talks_garbage(index))
		reply->r[0] = reply->r[1] = UINT64_MAX;
	return status;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *out)
{
	struct emu_reply r;
	nvml_return status;

	INDEX_OR_RETURN(device);
	status = memory(index, &r);
	if (!status)
		*out =
		    (struct nvml_memory){.total = r.r[1], .free = r.r[0], .used = r.r[1] - r.r[0]};
	return status;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *out)
{
	struct emu_reply r;
	nvml_return status;

	INDEX_OR_RETURN(device);
	if (out->version != MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	status = memory(index, &r);
	if (!status) {
		out->total = r.r[1];
		out->reserved = 0;
		out->free = r.r[0];
		out->used = r.r[1] - r.r[0];
	}
	return status;
}

/* The mode of now, and the one after a reset. */
EXPORT nvml_return nvmlDeviceGetMigMode(nvml_device device, unsigned int *current,
                                        unsigned int *pending)
{
	INDEX_OR_RETURN(device);
	*current = *pending = nvml_fault_now(index) == NVML_FAULT_MIG;
	return NVML_SUCCESS;
}

/* 0: default; 3: one process. */
EXPORT nvml_return nvmlDeviceGetComputeMode(nvml_device device, unsigned int *mode)
{
	INDEX_OR_RETURN(device);
	*mode = nvml_fault_now(index) == NVML_FAULT_EXCLUSIVE ? 3 : 0;
	return NVML_SUCCESS;
}

/* Busy share of the time since the last question, as the real library samples it. */
EXPORT nvml_return nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *out)
{
	struct emu_reply r;
	nvml_return status;

	INDEX_OR_RETURN(device);
	pthread_mutex_lock(&lock);
	status = ask(EMU_UTILIZATION, (uint64_t)index, &r, NULL);
	if (!status) {
		uint64_t busy = r.r[0] - last[index].busy, span = r.r[1] - last[index].at;
		uint64_t percent = last[index].at && span ? busy * 100 / span : 0;

		out->gpu = (unsigned)(percent > 100 ? 100 : percent);
		out->memory = out->gpu;
		last[index].busy = r.r[0];
		last[index].at = r.r[1];
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* Of the SMs, in MHz. */
EXPORT nvml_return nvmlDeviceGetMaxClockInfo(nvml_device device, unsigned int type,
                                             unsigned int *mhz)
{
	INDEX_OR_RETURN(device);
	(void)type;
	*mhz = HIGHEST_MHZ;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceGetClockInfo(nvml_device device, unsigned int type, unsigned int *mhz)
{
	struct emu_reply r;
	nvml_return status;

	INDEX_OR_RETURN(device);
	(void)type;
	pthread_mutex_lock(&lock);
	status = ask(EMU_UTILIZATION, (uint64_t)index, &r, NULL);
	pthread_mutex_unlock(&lock);
	*mhz = nvml_fault_now(index) == NVML_FAULT_SLOW
	           ? HIGHEST_MHZ / 3
	           : (unsigned)(HIGHEST_MHZ * r.r[4] / 1000000);
	return status;
}

/* Errors of memory that could not be corrected. */
EXPORT nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned int type,
                                               unsigned int counter, unsigned long long *count)
{
	INDEX_OR_RETURN(device);
	(void)type;
	(void)counter;
	*count = nvml_fault_now(index) == NVML_FAULT_ECC ? 1 : 0;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned int *corrected,
                                             unsigned int *uncorrected, unsigned int *pending,
                                             unsigned int *failed)
{
	INDEX_OR_RETURN(device);
	*corrected = *uncorrected = *pending = 0;
	*failed = nvml_fault_now(index) == NVML_FAULT_ROWS;
	return NVML_SUCCESS;
}

EXPORT nvml_return nvmlDeviceRegisterEvents(nvml_device device, unsigned long long kinds,
                                            struct emu_nvml_events *set)
{
	INDEX_OR_RETURN(device);
	return events_register(index, kinds, set);
}

/* KB/s over the link since the last question. */
EXPORT nvml_return nvmlDeviceGetPcieThroughput(nvml_device device, unsigned int direction,
                                               unsigned int *out)
{
	struct emu_reply r;
	nvml_return status;

	INDEX_OR_RETURN(device);
	if (direction >= DIRECTIONS)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	status = ask(EMU_UTILIZATION, (uint64_t)index, &r, NULL);
	if (!status) {
		uint64_t bytes = r.r[direction == TRANSMIT ? 3 : 2];
		uint64_t at = crossed[index][direction].at;
		double seconds = (double)(r.r[1] - at) / 1e9;

		*out = at && seconds > 0
		           ? (unsigned)((double)(bytes - crossed[index][direction].bytes) /
		                        seconds / 1000)
		           : 0;
		crossed[index][direction].bytes = bytes;
		crossed[index][direction].at = r.r[1];
	}
	pthread_mutex_unlock(&lock);
	return status;
}

EXPORT nvml_return nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor)
{
	INDEX_OR_RETURN(device);
	*major = (int)info[index].cc_major;
	*minor = (int)info[index].cc_minor;
	return NVML_SUCCESS;
}

/* The processes of a device: malloc'ed list, *n entries. */
static nvml_return processes(int index, struct emu_process_info **list, unsigned int *n)
{
	struct emu_reply r;
	nvml_return status;
	void *payload;

	pthread_mutex_lock(&lock);
	status = ask(EMU_PROCESSES, (uint64_t)index, &r, &payload);
	pthread_mutex_unlock(&lock);
	*list = payload;
	*n = status ? 0 : (unsigned)(r.payload / sizeof(**list));
	if (*n && talks_garbage(index)) {
		(*list)[0].pid = UINT32_MAX;
		(*list)[0].bytes = UINT64_MAX - 1;
	}
	return status;
}

EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned int *count,
                                                           struct nvml_process *out)
{
	struct emu_process_info *list;
	unsigned int n, room = *count;
	nvml_return status;

	INDEX_OR_RETURN(device);
	status = processes(index, &list, &n);
	if (!status) {
		*count = n;
		if (n > room)
			status = NVML_ERROR_INSUFFICIENT_SIZE;
		for (unsigned i = 0; !status && i < n; i++)
			out[i] = (struct nvml_process){list[i].pid, list[i].bytes, ~0U, ~0U};
	}
	free(list);
	return status;
}

/* The oldest form: a process has its pid and its bytes, nothing else. */
EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned int *count,
                                                        struct nvml_process_v1 *out)
{
	struct emu_process_info *list;
	unsigned int n, room = *count;
	nvml_return status;

	INDEX_OR_RETURN(device);
	status = processes(index, &list, &n);
	if (!status) {
		*count = n;
		if (n > room)
			status = NVML_ERROR_INSUFFICIENT_SIZE;
		for (unsigned i = 0; !status && i < n; i++)
			out[i] = (struct nvml_process_v1){list[i].pid, list[i].bytes};
	}
	free(list);
	return status;
}

EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned int *count,
                                                           struct nvml_process *out)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

EXPORT nvml_return nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned int *count,
                                                            struct nvml_process *out)
{
	INDEX_OR_RETURN(device);
	(void)out;
	*count = 0;
	return NVML_SUCCESS;
}

/* How much of the time since it was last asked a process kept the device busy, in percent. The time
 * that the caller names is not looked at. */
EXPORT nvml_return nvmlDeviceGetProcessUtilization(nvml_device device, struct nvml_sample *out,
                                                   unsigned int *count, unsigned long long since)
{
	struct emu_process_info *list;
	unsigned int n, room = *count;
	nvml_return status;
	struct emu_reply r;

	(void)since;
	INDEX_OR_RETURN(device);
	status = processes(index, &list, &n);
	pthread_mutex_lock(&lock);
	if (!status)
		status = ask(EMU_UTILIZATION, (uint64_t)index, &r, NULL);
	if (!status && (!out || n > room)) {
		*count = n;
		status = NVML_ERROR_INSUFFICIENT_SIZE;
	} else if (!status) {
		status = samples_take(index, list, n, r.r[1], out, count);
	}
	pthread_mutex_unlock(&lock);
	free(list);
	return status;
}
