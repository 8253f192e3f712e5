"""How busy NVML says that devices are."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import pynvml


def busy(uuids: Collection[str]) -> dict[str, int | None]:
    """Percent of the last moment (a sixth of a second to a second, by the kind of card) in which
    each device computed; None: NVML does not say. NVML has been started."""
    found: dict[str, int | None] = dict.fromkeys(uuids)
    for uuid in uuids:
        with contextlib.suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            found[uuid] = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return found
