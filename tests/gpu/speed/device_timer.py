"""The device's own clock around a part of a program, whatever its framework: driver events."""

from __future__ import annotations

import ctypes


class DeviceTimer:
    """Two events on the legacy default stream of the first device's primary context.

    Made after the framework has set itself up, in the thread that submits its work.
    """

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.events = [ctypes.c_void_p() for _ in range(2)]
        for event in self.events:
            self._call("cuEventCreate", ctypes.byref(event), 0)

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise RuntimeError(f"{name} failed: error {result} of the driver")

    def begin(self) -> None:
        self._call("cuEventRecord", self.events[0], None)

    def end(self) -> None:
        self._call("cuEventRecord", self.events[1], None)

    def seconds(self) -> float:
        """From begin() to end() on the device."""
        ms = ctypes.c_float()
        self._call("cuEventSynchronize", self.events[1])
        self._call("cuEventElapsedTime", ctypes.byref(ms), *self.events)
        return ms.value / 1e3
