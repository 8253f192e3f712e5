"""How much of the node's host memory for copies each process has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from leased.base.errors import Refused
from leased.processes.identity import ProcessId

LARGEST = 1 << 30  # bytes of one piece of memory
PIECES = 16_384  # of the node: each is a descriptor of the keeper's
PIECES_OF_A_JOB = 4096
# A job needs few pieces, mostly of 256 MiB. One that has more of them, which may be small, gets
# none of the last ones of the node: a few such jobs would take all that others need.
FEW, LAST = 64, 8192
PROGRAM = 32  # a key's number has this many bits below those that tell a process' programs apart


@dataclass(frozen=True)
class Key:
    """The key of one piece of memory: its process, its job, and the number that it chose."""

    job_id: int
    process: ProcessId
    number: int

    @property
    def name(self) -> str:
        """The name by which the keeper knows this memory."""
        return f"{self.job_id}.{self.process.pid}.{self.process.start}.{self.number}"

    @classmethod
    def of(cls, name: str) -> Key | None:
        """The key for a name that the keeper uses; None: it is not such a name."""
        parts = name.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        job, pid, start, number = map(int, parts)
        return cls(job, ProcessId(pid, start), number)


@dataclass(frozen=True)
class Job:
    """A job that asks for memory. uid: its user. most: bytes that it may have in all."""

    number: int
    uid: int
    most: int


class Pool:
    """All memory for copies, also what is being made."""

    def __init__(self) -> None:
        self.bytes: dict[Key, int] = {}
        self.of_job: Counter[int] = Counter()
        self.of_process: dict[ProcessId, set[Key]] = {}
        self.pieces: Counter[int] = Counter()
        self.total = 0

    def check(self, key: Key, size: int, left: int, most: int) -> None:
        """Refused: the process may not have `size` more bytes. left: bytes of the node that its job
        may still take. most: bytes that the job may have in all."""
        if size > left:
            raise Refused(
                f"only {max(0, left) >> 20} MiB for copies are left on this node",
                "raise limits.swap_host for more",
            )
        if self.of_job[key.job_id] + size > most:
            raise Refused(
                f"job {key.job_id} has as much host memory already as it may have on its GPUs, or "
                "something still refers to memory that jobs of its user have given back"
            )
        has = self.pieces[key.job_id]
        if has >= PIECES_OF_A_JOB or len(self.bytes) >= PIECES - (LAST if has >= FEW else 0):
            raise Refused(f"job {key.job_id} or all jobs have host memory in too many pieces")

    def add(self, key: Key, size: int) -> None:
        self.bytes[key] = size
        self.of_process.setdefault(key.process, set()).add(key)
        self.of_job[key.job_id] += size
        self.pieces[key.job_id] += 1
        self.total += size

    def remove(self, key: Key) -> bool:
        """Remove this memory; False: the pool does not have it."""
        size = self.bytes.pop(key, None)
        if size is None:
            return False
        keys = self.of_process[key.process]
        keys.discard(key)
        if not keys:
            del self.of_process[key.process]
        self.of_job[key.job_id] -= size
        self.pieces[key.job_id] -= 1
        if not self.pieces[key.job_id]:
            del self.pieces[key.job_id], self.of_job[key.job_id]
        self.total -= size
        return True

    def of(self, process: ProcessId) -> Iterator[Key]:
        """The memory that the process has."""
        yield from tuple(self.of_process.get(process, ()))

    def of_other_programs(self, key: Key) -> Iterator[Key]:
        """Memory of a program that this process ran before an exec: it is no longer mapped."""
        program = key.number >> PROGRAM
        yield from (k for k in self.of(key.process) if k.number >> PROGRAM != program)
