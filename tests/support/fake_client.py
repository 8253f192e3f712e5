"""A process of a job as its connection shows it to the daemon, for tests that speak for it."""

from __future__ import annotations

from leased.chains.shares import Part
from leased.classes.pulse import Work
from leased.leasing.tenant import Busy, Restart
from leased.processes.identity import ProcessId
from leased.slices.job import Runs
from leased.wire import client_messages, header
from leased.wire.device_bytes import DeviceBytes


class FakeClient:
    """told: the types of the messages that it was sent."""

    def __init__(self, pid: int):
        self.pid = pid
        self.process = ProcessId(pid, 0)
        self.wants = self.restoring = self.keeper = self.stopped = False
        self.moves = self.saves = self.carries = True
        self.saved_at: int | None = None
        self.ready = True
        self.arriving = ""
        self.held = self.passed = 0
        self.borrows = False
        self.memory: dict[str, DeviceBytes] = {}
        self.details: dict[str, client_messages.Details] = {}
        self.runs: dict[str, Runs] = {}
        self.part: Part | None = None
        self.restart: Restart | None = None
        self.channels: client_messages.Channels | None = None
        self.calls: tuple[int, int] | None = None
        self.progress = client_messages.Progress(0)
        self.work: Work | None = None
        self.rests = False
        self.progress_at: int | None = None
        self.busy: Busy | None = None
        self.told: list[int] = []

    def has_opener(self) -> bool:
        return True

    def close(self) -> None:
        raise AssertionError("a client whose process runs is closed")

    def send(self, message: bytes) -> None:
        self.told.append(header.check_header(message))

    def send_file(self, message: bytes, _: int) -> bool:
        self.send(message)
        return True
