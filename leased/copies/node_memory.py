"""Host memory of the node for copies (memory:swap): requested by clients, made, and freed.

A process keeps it until it gives it back or ends, even if its connection ends: the copy may be the
only one of its data. When the process has ended, the pages are freed at once, even if another
process has kept a descriptor or a mapping of them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from _gpulease import lib

from leased.api import answers
from leased.base.errors import Refused
from leased.copies.keeper_link import KeeperLink
from leased.copies.pool import LARGEST, PIECES, Job, Key, Pool
from leased.copies.unfreed import NOBODY as NOBODYS
from leased.copies.unfreed import Owner
from leased.processes import procfs
from leased.processes.charged_user import NOBODY
from leased.processes.identity import ProcessId, process_id, still_there
from leased.wire import client_messages, daemon_messages

log = logging.getLogger("gpu-leased")

UNIT = int(lib.GL_HOST_UNIT)
# As long as there are too few of these, it cannot be told whether a process has ended.
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
WATCH_AGAIN_S = 1.0
# Between two looks whether a process has read what it was sent: the first pause, and the longest.
UNREAD_S, UNREAD_MOST_S = 0.01, 1.0
EXEC_S = 1.0  # so long after a connection has ended the process may be another program's


class Asker(Protocol):
    """A process, as its connection shows it."""

    sock: socket.socket
    process: ProcessId | None

    @property
    def open(self) -> bool: ...
    def send(self, message: bytes) -> None: ...
    def takes_file(self) -> bool: ...
    def send_file(self, message: bytes, descriptor: int) -> bool: ...
    def say(self, words: str) -> None: ...


class NodeMemory:
    """budget: how many bytes the site allows, huge: of its huge pages, as its configuration says
    now."""

    def __init__(
        self,
        link: KeeperLink,
        loop: asyncio.AbstractEventLoop,
        budget: Callable[[], int],
        huge: Callable[[], bool] = lambda: False,
    ):
        self.huge = huge
        self.link = link
        self.loop = loop
        self.budget = budget
        self.pool = Pool()
        # By job: bytes that may have to leave its devices; see claims.py.
        self.needs: Callable[[], Counter[int]] = Counter
        self.ends: dict[ProcessId, int] = {}  # a pidfd of each process that has some
        # Processes that have some and could not be watched yet, for lack of descriptors.
        self.unwatched: set[ProcessId] = set()
        # Of each where its stack was when it last asked for some, which is another place
        # after an exec; None: not known.
        self.stacks: dict[ProcessId, int | None] = {}
        # Those of which the log says that they get none. They ask for many pieces, one by one.
        self.told: weakref.WeakSet[Asker] = weakref.WeakSet()
        # Of each process the memory whose descriptor waits until it has read what it was sent.
        self.unsent: dict[Asker, list[Key]] = {}
        self.users: dict[int, int] = {}  # of jobs that have some
        self.taken_over = False  # what was made for a daemon before this one is known
        self.given_early: set[Key] = set()  # given back, or refused, before that
        self.unfreed: dict[Owner, int] = {}  # bytes that were given back and are not free
        self.unfreed_known = False
        link.found = self._found
        link.unfreed = self._found_unfreed

    @property
    def offered(self) -> bool:
        """Whether processes that connect now are told to request it."""
        return self.link.connected and self.budget() > 0

    def status(self) -> answers.NodeMemory:
        """The figures that status shows, in bytes."""
        return {
            "kept": self.link.connected,
            "budget_bytes": self.budget(),
            "taken_bytes": self.pool.total,
            "unfreed_bytes": sum(self.unfreed.values()) if self.unfreed_known else None,
            "left_bytes": self.left(),
        }

    def left(self, job_id: int | None = None) -> int:
        """Bytes that no job has or may need. For a job, bytes that it may need itself are
        included."""
        needs, held = self.needs(), self.pool.of_job
        counts = Counter({job: max(needs[job], held[job]) for job in {*needs, *held}})
        if job_id is not None:
            counts[job_id] = held[job_id]
        return self.budget() - sum(counts.values()) - sum(self.unfreed.values())

    def _unfreed_of(self, job: Job) -> int:
        """Bytes that jobs of its user have given back, and not let go of."""
        return sum(size for (_, user), size in self.unfreed.items() if user == job.uid)

    def of_job(self, job_id: int) -> int:
        """Bytes that the processes of the job have."""
        return self.pool.of_job.get(job_id, 0)

    # -- requests of processes --------------------------------------------------------------

    def take(self, asker: Asker, job: Job, message: client_messages.HostTake) -> None:
        """A process requests memory."""
        number, size = message.number, message.bytes
        if asker.process is None or not 0 < size <= LARGEST or size % UNIT:
            asker.send(daemon_messages.host(lib.GL_HOST_FAILED, number, size))
            return
        key = Key(job.number, asker.process, number)
        if key not in self.pool.bytes:
            for left in self.pool.of_other_programs(key):
                self._end(left)
            try:
                self.pool.check(key, size, self.left(job.number), job.most - self._unfreed_of(job))
                self._watch(asker)
            except Refused as why:
                self._say_why(asker, str(why))
                asker.send(daemon_messages.host(lib.GL_HOST_FULL, number, size))
                return
            self.pool.add(key, size)
            self.users[job.number] = job.uid
            self.given_early.discard(key)
        self._make(asker, key)

    def _make(self, asker: Asker, key: Key) -> None:
        counted = self.pool.bytes[key]  # whatever is said when it is asked for again
        self.link.make(
            *(key.name, counted, self.huge()),
            lambda fd, why: self._made(asker, key, fd, why),
            user=self.users.get(key.job_id, NOBODY),
        )

    def _made(self, asker: Asker, key: Key, descriptor: int | None, why: str) -> None:
        size = self.pool.bytes.get(key, 0)
        if descriptor is None:
            self._note_given(key)
            self._forget(key)
            self._say_why(asker, why)
            asker.send(daemon_messages.host(lib.GL_HOST_FAILED, key.number, size))
            return
        self.told.discard(asker)
        try:
            taken = daemon_messages.host(lib.GL_HOST_TAKEN, key.number, size)
            sent = asker.send_file(taken, descriptor)
        finally:
            os.close(descriptor)
        if not sent:
            self._send_later(asker, key, UNREAD_S)

    def _send_later(self, asker: Asker, key: Key, pause: float) -> None:
        """The process has not read what it was sent before. The keeper has the file."""
        waits = self.unsent.setdefault(asker, [])
        if not waits:
            self.loop.call_later(pause, self._look_whether_read, asker, pause)
        waits.append(key)

    def _look_whether_read(self, asker: Asker, pause: float) -> None:
        keys = [key for key in self.unsent.pop(asker, []) if key in self.pool.bytes]
        if not asker.open:
            return
        if asker.takes_file():
            for key in keys:
                self._make(asker, key)
            return
        for key in keys:
            self._send_later(asker, key, min(2 * pause, UNREAD_MOST_S))

    def _say_why(self, asker: Asker, why: str) -> None:
        """Log why the process gets no memory, once until it gets some again."""
        if asker not in self.told:
            self.told.add(asker)
            asker.say(f"gets no host memory for copies: {why}")

    def give(self, asker: Asker, job_id: int, message: client_messages.HostGive) -> None:
        """A process has unmapped memory, which is freed."""
        if asker.process is not None:
            key = Key(job_id, asker.process, message.number)
            self._note_given(key)
            self._end(key)
        asker.send(daemon_messages.host(lib.GL_HOST_GIVEN, message.number, 0))

    def _note_given(self, key: Key) -> None:
        """The process does not have this memory, whatever the keeper will say that it has."""
        if not self.taken_over and len(self.given_early) < PIECES:
            self.given_early.add(key)

    def _found_unfreed(self, told: dict[Owner, int] | None) -> None:
        found = told or {}
        self.unfreed_known = told is not None
        for owner in found.keys() - self.unfreed.keys() - {NOBODYS}:
            log.warning(
                "job %d: %d MiB of the host memory for copies that it has given back are not free, "
                "since something still refers to them: they count as its own, and its user's",
                *(owner[0], found[owner] >> 20),
            )
        self.unfreed = found

    # -- the end -------------------------------------------------------------------------

    def _end(self, key: Key) -> None:
        if key in self.pool.bytes:
            self._forget(key)
            self.link.end(key.name)

    def _forget(self, key: Key) -> None:
        self.pool.remove(key)
        if key.job_id not in self.pool.of_job:
            self.users.pop(key.job_id, None)
        if key.process not in self.pool.of_process:
            self._unwatch(key.process)

    def _watch(self, asker: Asker) -> None:
        """Watch for the end of the process. Refused: it cannot be watched."""
        process = asker.process
        if process is None:
            return
        if process in self.ends:
            self.stacks[process] = _stack(process)
            return
        try:
            pidfd = _pidfd(process)
        except OSError as fault:
            raise Refused(f"gpu-leased cannot watch for its end: {fault.strerror}") from None
        if pidfd is None or not still_there(asker.sock, process):
            if pidfd is not None:
                os.close(pidfd)
            raise Refused("the process has ended")
        self._watch_by(process, pidfd)

    def _watch_by(self, process: ProcessId, pidfd: int) -> None:
        self.ends[process] = pidfd
        self.stacks[process] = _stack(process)
        self.loop.add_reader(pidfd, self.process_ended, process)

    def _watch_again(self) -> None:
        """Watch the processes that could not be watched before. Those that have ended meanwhile
        have no memory any more."""
        for process in list(self.unwatched):
            try:
                pidfd = _pidfd(process)
            except OSError:
                continue
            self.unwatched.discard(process)
            if pidfd is None:
                self.process_ended(process)
            else:
                self._watch_by(process, pidfd)
        if self.unwatched:
            self.loop.call_later(WATCH_AGAIN_S, self._watch_again)

    def _watch_later(self, process: ProcessId) -> None:
        if not self.unwatched:
            self.loop.call_later(WATCH_AGAIN_S, self._watch_again)
        self.unwatched.add(process)

    def _unwatch(self, process: ProcessId) -> None:
        self.unwatched.discard(process)
        pidfd = self.ends.pop(process, None)
        self.stacks.pop(process, None)
        if pidfd is not None:
            self.loop.remove_reader(pidfd)
            os.close(pidfd)

    def process_ended(self, process: ProcessId) -> None:
        """The process has ended with all its threads, and so have its mappings: free its memory."""
        for key in self.pool.of(process):
            self._end(key)
        self._unwatch(process)

    def connection_ended(self, process: ProcessId) -> None:
        """The process may have executed another program, which has nothing mapped and may never
        connect."""
        if process in self.ends:
            self.loop.call_later(EXEC_S, self._look_for_exec, process)

    def _look_for_exec(self, process: ProcessId) -> None:
        before, now = self.stacks.get(process), _stack(process)
        if before is None or now is None or before == now:
            return
        for key in self.pool.of(process):
            self._end(key)

    # -- a new keeper, or a new daemon -----------------------------------------------------

    def _found(self, files: dict[str, int]) -> None:
        """The keeper has these files. At first, those that are not known here were made for a
        previous daemon. Later they were given back, and the keeper has not heard that."""
        for name, size in files.items():
            key = Key.of(name)
            if key is None or self._is_nobodys(key):
                self.link.end(name)
            else:
                self._adopt(key, size)
        self.taken_over = True
        self.given_early.clear()

    def _is_nobodys(self, key: Key) -> bool:
        return key not in self.pool.bytes and (self.taken_over or key in self.given_early)

    def _adopt(self, key: Key, size: int) -> None:
        """It counts as what it is, also where it has been asked for again in another size."""
        if self.pool.bytes.get(key) == size:
            return
        if key.process not in self.ends and not self._may_live(key.process):
            self.link.end(key.name)
            return
        self.pool.remove(key)
        self.pool.add(key, size)

    def _may_live(self, process: ProcessId) -> bool:
        """Watch the process. False: it has ended. While it cannot be told, it lives: to free the
        memory of one that does would be to lose its data."""
        try:
            pidfd = _pidfd(process)
        except OSError:
            self._watch_later(process)
            return True
        if pidfd is not None:
            self._watch_by(process, pidfd)
        return pidfd is not None

    def close(self) -> None:
        self.unwatched.clear()
        for process in list(self.ends):
            self._unwatch(process)
        self.link.close()


def _stack(process: ProcessId) -> int | None:
    return procfs.stack(process.pid, process.start)


def _pidfd(process: ProcessId) -> int | None:
    """A pidfd of this process; None: it has ended. OSError: that cannot be told now."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as fault:
        if fault.errno in SCARCE:
            raise
        return None
    found = process_id(process.pid)
    if found == process:
        return pidfd
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = found is not None or bool(poll.poll(0))
    os.close(pidfd)
    if not ended:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return None
