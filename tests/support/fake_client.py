"""A process of a job as its connection shows it to the daemon, for tests that speak for it."""

from __future__ import annotations

from leased.leasing.tenant import Client
from leased.processes.identity import ProcessId
from leased.wire import header


class FakeClient(Client):
    """told: the types of the messages that it was sent."""

    def __init__(self, pid: int):
        self.forget()
        self.pid, self.process = pid, ProcessId(pid, 0)
        self.moves = self.saves = self.carries = True
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
