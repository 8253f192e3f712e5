/* events.h: events of the emulated NVML. */
#ifndef EMUGPU_NVML_EVENTS_H
#define EMUGPU_NVML_EVENTS_H

#include "nvml/types.h"

#include <stdbool.h>
#include <stdint.h>

struct emu_nvml_events;

/* The set hears of these kinds of events of a device from now on. */
nvml_return events_register(int index, unsigned long long kinds, struct emu_nvml_events *set);

#endif
