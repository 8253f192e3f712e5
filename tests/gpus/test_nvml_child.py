"""What NVML is asked about a device."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from leased.base import children
from leased.gpus import nvml_child
from leased.gpus.nvml import CHILD


def listed(*processes: tuple[int, int | None]) -> Any:
    return lambda _: [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes]


def unknown(*_: object) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda _: None)
    for name in ("UtilizationRates", "MigMode", "ComputeMode"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", unknown)
    compute = listed((10, 5), (11, None))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", compute)


@pytest.mark.parametrize(
    ("graphics", "there"),
    [
        (listed((12, 7), (10, 5)), [[10, 5], [11, 0], [12, 7]]),  # a display server; one of both
        (listed(), [[10, 5], [11, 0]]),
        (unknown, [[10, 5], [11, 0]]),
    ],
)
def test_all_that_have_memory_there_are_seen(
    monkeypatch: pytest.MonkeyPatch, graphics: Any, there: list[list[int]]
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGraphicsRunningProcesses", graphics)
    assert nvml_child.look("GPU-0")["processes"] == there


def test_an_xid_is_told_where_the_device_is_lost_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(events: list[int], _: int) -> Any:
        if not events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(eventData=events.pop(0))

    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", wait)
    monkeypatch.setitem(nvml_child.events, "GPU-0", [13, 79])
    assert nvml_child.look("GPU-0")["xids"] == [13, 79]


def test_it_ends_quietly_with_a_daemon_that_is_killed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            children.python(CHILD),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
        )
    ours.sendall(b'{"op": "describe"}\n')
    assert select.select([ours], [], [], 60)[0]
    ours.close()  # with an answer that nobody has read, which resets the connection
    assert child.communicate(timeout=60)[1] == b""


ASKS_AGAIN_AND_AGAIN = """
import threading
from leased.gpus import nvml_child
for _ in range(20):
    answers = nvml_child.ask_each([("one", lambda: {"n": 1}), ("two", lambda: {"n": 2})], 10.0)
    assert answers == [{"n": 1}, {"n": 2}], answers
print(threading.active_count())
"""


def test_each_device_has_one_thread_however_often_it_is_asked() -> None:
    """In a process of its own, which ends with its threads."""
    command = [sys.executable, "-c", ASKS_AGAIN_AND_AGAIN]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert int(said) == 3
