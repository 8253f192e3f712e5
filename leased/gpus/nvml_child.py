"""Asks NVML, in a process of its own: NVML may hang, crash, or keep an old driver from unloading.

The daemon starts it and ends it, see nvml.py. A line of JSON asks, a line of JSON answers.
Each device is asked in a thread of its own, so one that hangs is told from those that do not.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from leased.gpus.silence import SILENT

MOST = 64  # devices of a node
MOST_PROCESSES = 65_536  # of a device
MOST_XIDS = 64  # of a device, at a look
PR_SET_PDEATHSIG = 1

Answer = dict[str, Any]
Call = Callable[[], Answer]


class Worker:
    """Asks one device. A call that hangs keeps its thread; then the device does not answer."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Call, queue.SimpleQueue[Answer]]] = queue.SimpleQueue()
        self.busy = False
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            call, answers = self.calls.get()
            try:
                answer = call()
            except Exception as fault:  # also garbage that the binding cannot decode
                answer = {"fault": _words(fault)}
            self.busy = False
            answers.put(answer)

    def begin(self, call: Call) -> queue.SimpleQueue[Answer] | None:
        """Where the answer will be; None: an earlier call has not come back."""
        if self.busy:
            return None
        self.busy = True
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.calls.put((call, answers))
        return answers


workers: dict[str, Worker] = collections.defaultdict(Worker)


def ask_each(calls: Iterable[tuple[str, Call]], patience_s: float) -> list[Answer]:
    """What each device answers, all asked at once; a fault for one that does not in time."""
    until = time.monotonic() + patience_s
    begun = [workers[name].begin(call) for name, call in calls]
    found: list[Answer] = []
    for answers in begun:
        try:
            if answers is None:
                raise queue.Empty
            found.append(answers.get(timeout=max(0.0, until - time.monotonic())))
        except queue.Empty:
            found.append({"fault": SILENT})
    return found


def _words(fault: Exception) -> str:
    return str(fault) if isinstance(fault, pynvml.NVMLError) else f"{type(fault).__name__}: {fault}"


# -- one device ------------------------------------------------------------------


def _memory(handle: Any) -> int:
    """Total less what the driver keeps for itself, which no process can ever have."""
    with contextlib.suppress(pynvml.NVMLError):
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return int(info.total - info.reserved)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


def _modes(handle: Any) -> Answer:
    """Modes of a device in which jobs cannot share it."""
    mig = exclusive = False
    with contextlib.suppress(pynvml.NVMLError):
        mig = bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    with contextlib.suppress(pynvml.NVMLError):
        mode = pynvml.nvmlDeviceGetComputeMode(handle)
        exclusive = mode != pynvml.NVML_COMPUTEMODE_DEFAULT
    return {"mig": mig, "exclusive": exclusive}


def describe(number: int) -> Answer:
    """What a device is, by its number in NVML's order."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    found: Answer = {
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "minor": pynvml.nvmlDeviceGetMinorNumber(handle),
        "memory": _memory(handle),
    }
    with contextlib.suppress(pynvml.NVMLError):
        found["generation"] = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        found["lanes"] = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    with contextlib.suppress(pynvml.NVMLError):
        found["pci"] = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return found | _modes(handle)


# By device: the time of the last sample of work that was looked at (us).
sampled: dict[str, int] = {}


def _work_by_pid(uuid: str, handle: Any) -> dict[int, int]:
    """Percents of the device's time in which processes had work, summed over the samples since
    the last look. NVMLError: it does not say, or there is no sample."""
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle, sampled.get(uuid, 0))
    work: dict[int, int] = {}
    for sample in samples:
        if sample.timeStamp > sampled.get(uuid, 0):  # the driver's buffer has older ones too
            work[sample.pid] = work.get(sample.pid, 0) + sample.smUtil
    sampled[uuid] = max([sampled.get(uuid, 0), *(sample.timeStamp for sample in samples)])
    return work


# By device: the events that NVML keeps for us; None: it has none of this device.
events: dict[str, Any] = {}


def _listen(uuid: str, handle: Any) -> None:
    """From now on. NVMLError: the device has no such events."""
    events[uuid], made = None, pynvml.nvmlEventSetCreate()
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, made)
    except pynvml.NVMLError:
        pynvml.nvmlEventSetFree(made)
        raise
    events[uuid] = made


def _xids(uuid: str, handle: Any) -> list[int]:
    """The device's errors since the last look, which is not waited for. NVMLError: not known."""
    if uuid not in events:
        _listen(uuid, handle)
    found: list[int] = []
    while events[uuid] is not None and len(found) < MOST_XIDS:
        try:
            found.append(int(pynvml.nvmlEventSetWait_v2(events[uuid], 0).eventData))
        except pynvml.NVMLError:  # there are no more, or the device is lost since then
            break
    return found


def _of_memory(handle: Any) -> Answer:
    """How many errors could not be corrected since the driver was loaded, and whether bad rows
    could not be replaced."""
    found: Answer = {}
    with contextlib.suppress(pynvml.NVMLError):
        found["lost_bits"] = pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    with contextlib.suppress(pynvml.NVMLError):
        found["lost_rows"] = bool(pynvml.nvmlDeviceGetRemappedRows(handle)[3])
    return found


def look(uuid: str) -> Answer:
    """Who is on a device now: bytes by pid without managed memory, how busy it is, whose work that
    was since the look before, what energy it has taken in mJ, its SM clock and the highest in MHz,
    its errors since the look before, and what is wrong with its memory."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    with contextlib.suppress(pynvml.NVMLError):  # a display server, say; some are of both kinds
        running += pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    sizes = {p.pid: p.usedGpuMemory or 0 for p in running}
    found: Answer = {"processes": [[*entry] for entry in list(sizes.items())[:MOST_PROCESSES]]}
    with contextlib.suppress(pynvml.NVMLError):
        found["busy"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
        found["work"] = list(_work_by_pid(uuid, handle).items())[:MOST_PROCESSES]
    with contextlib.suppress(pynvml.NVMLError):  # since the driver was loaded; Volta and later
        found["energy"] = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    with contextlib.suppress(pynvml.NVMLError):
        found["clock"] = [
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        ]
    with contextlib.suppress(pynvml.NVMLError):
        found["xids"] = _xids(uuid, handle)
    return found | _of_memory(handle) | _modes(handle)


# -- requests --------------------------------------------------------------------


@functools.cache
def driver() -> str:
    """Open NVML, once. NVMLError: it does not start."""
    pynvml.nvmlInit()
    return str(pynvml.nvmlSystemGetDriverVersion())


def answer(request: Answer) -> Answer:
    """What NVML says to {"op": "describe"} or {"op": "look", "uuids": [...]}.

    Both with "each_s": a device that has not answered after so many seconds is silent.
    """
    try:
        found: Answer = {"driver": driver()}
        if request["op"] == "look":
            uuids = list(request["uuids"])
            calls = [(uuid, functools.partial(look, uuid)) for uuid in uuids]
            return found | {"devices": dict(zip(uuids, ask_each(calls, request["each_s"])))}
        count = pynvml.nvmlDeviceGetCount()
        numbered = [(f"#{n}", functools.partial(describe, n)) for n in range(min(count, MOST))]
        return found | {"devices": ask_each(numbered, request["each_s"])}
    except pynvml.NVMLError as fault:
        return {"fault": f"NVML does not start: {fault}"}


def main() -> None:
    """Serve requests on standard input until it ends, or the daemon does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for whoever asks
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(ConnectionError):  # a daemon that is killed resets the connection
        for line in sys.stdin.buffer:
            said = json.dumps(answer(json.loads(line)), default=str)
            sys.stdout.buffer.write(said.encode() + b"\n")
            sys.stdout.buffer.flush()
    os._exit(0)  # threads that hang in the driver are not waited for
