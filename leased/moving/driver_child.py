"""Asks the driver to checkpoint other processes, in a process of its own: a call may take seconds,
or hang, and the driver's library has no place in the daemon.

driver.py starts it. A line of JSON asks, a line of JSON answers. It makes no context on any GPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from ctypes import byref
from typing import Any

STATES = ("running", "locked", "checkpointed", "failed")
INVALID_VALUE = 1
MAP_SINCE = 13000  # the driver whose restore takes a map of GPUs: 580

Answer = dict[str, Any]


class Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class Pair(ctypes.Structure):
    """CUcheckpointGpuPair."""

    _fields_ = (("old", Uuid), ("new", Uuid))


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs."""

    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved", ctypes.c_uint * 15))


class RestoreArgs(ctypes.Structure):
    """CUcheckpointRestoreArgs."""

    _fields_ = (
        ("pairs", ctypes.POINTER(Pair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 13),
    )


class Fault(Exception):
    """The driver does not do it; the text says what it answered."""


class Library:
    """libcuda. OSError, AttributeError: there is none, or it is too old."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def result(self, name: str, *values: Any) -> int:
        return int(getattr(self._library, name)(*values))

    def call(self, name: str, *values: Any) -> None:
        """Fault: it fails."""
        self.check(name, self.result(name, *values))

    def check(self, name: str, result: int) -> None:
        if not result:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(result, byref(text))
        word = (text.value or b"CUDA_ERROR").decode(errors="replace")
        raise Fault(f"{name} answers {word} ({result})")

    def uuids(self) -> list[bytes]:
        """Of all GPUs, in the driver's order."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", byref(count))
        uuids = [Uuid() for _ in range(count.value)]
        for device, uuid in enumerate(uuids):
            self.call("cuDeviceGetUuid_v2", byref(uuid), device)
        return [bytes(uuid.bytes) for uuid in uuids]


class Driver(Library):
    """What it can be asked for."""

    def begin(self, _: Answer) -> Answer:
        """What there is to know before a job is touched."""
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", byref(version))
        return {
            "has_map": version.value >= MAP_SINCE,
            "uuids": [uuid.hex() for uuid in self.uuids()],
        }

    def state(self, asked: Answer) -> Answer:
        state = ctypes.c_int(-1)
        self.call("cuCheckpointProcessGetState", int(asked["pid"]), byref(state))
        return {"state": STATES[state.value] if state.value in range(len(STATES)) else "failed"}

    def lock(self, asked: Answer) -> Answer:
        args = LockArgs(int(asked["patience_ms"]))
        self.call("cuCheckpointProcessLock", int(asked["pid"]), byref(args))
        return {}

    def checkpoint(self, asked: Answer) -> Answer:
        self.call("cuCheckpointProcessCheckpoint", int(asked["pid"]), None)
        return {}

    def restore(self, asked: Answer) -> Answer:
        """exchange: the two GPUs that take each other's place; none: as it was. before: the GPUs of
        the machine on which it was checkpointed, if that is not this one: `exchange` is then the
        GPU there, and the one here. The driver wants all GPUs that the process could open in the
        map, and says nothing of what it misses."""
        pid, exchange = int(asked["pid"]), [bytes.fromhex(text) for text in asked["exchange"]]
        before = [bytes.fromhex(text) for text in asked.get("before", ())]
        result = INVALID_VALUE
        for pairs in self._maps(exchange, before) if exchange else ((Pair * 0)(),):
            args = RestoreArgs(pairs, len(pairs))
            result = self.result("cuCheckpointProcessRestore", pid, byref(args))
            if result != INVALID_VALUE:
                break
        self.check("cuCheckpointProcessRestore", result)
        return {}

    def _maps(self, exchange: list[bytes], before: list[bytes]) -> list[ctypes.Array[Pair]]:
        """Of all GPUs, of the two, and of the old one alone."""
        one, other = exchange
        onto = {one: other, other: one}
        every = self.uuids()
        if before:
            rest = [uuid for uuid in every if uuid != other]
            onto = {one: other, **dict(zip((u for u in before if u != one), rest))}
            every = [uuid for uuid in before if uuid in onto]
        found = []
        for olds in (every, [one, other], [one]):
            pairs = (Pair * len(olds))()
            for pair, old in zip(pairs, olds):
                pair.old.bytes[:], pair.new.bytes[:] = old, onto.get(old, old)
            found.append(pairs)
        return found

    def unlock(self, asked: Answer) -> Answer:
        self.call("cuCheckpointProcessUnlock", int(asked["pid"]), None)
        return {}


def main() -> None:
    """Answer until the input ends, or nobody listens any more."""
    driver: Driver | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            driver = driver or Driver()
            answer: Callable[[Answer], Answer] = getattr(driver, asked["op"])
            said = answer(asked)
        except (Fault, OSError, AttributeError) as fault:
            said = {"fault": str(fault)}
        try:
            os.write(1, json.dumps(said).encode() + b"\n")
        except BrokenPipeError:
            return
