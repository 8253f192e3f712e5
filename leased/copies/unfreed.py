"""Pages of memory for copies that were given back and are not free.

When a file gives up its pages the kernel frees them, unless something else refers to them: a pipe
or a socket into which a process has spliced them, or a device that reads them. Such pages are in no
file any more, but are still charged to the keeper. So after each end of a file the keeper compares
what it is charged for with what is in files. What more is unfreed than before counts as of the job
whose file has ended.

A process can also make holes into its own file, and fill them again with pages that its own cgroup
is charged for. Then there are more unfreed pages at a time when no file ends. Nobody can tell
whose they are until that file ends: fewer pages of the keeper's leave it than were made for it.
While there are such pages no memory is made during the end of a file, so that this can be told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from leased.copies.memory_file import MemoryFile
from leased.copies.own_cgroup import Charge

MIB = 1 << 20
# The kernel counts some pages late, up to 64 of each processor. So much is not taken for unfreed.
SLACK_LEAST = 16 * MIB
SLACK = SLACK_LEAST + MIB * (os.cpu_count() or 1)
NOISE = 4 * MIB

# A job and its user. The user of NOBODY is none, and its job has no number.
Owner = tuple[int, int]
NOBODY: Owner = (0, -1)

Quiet = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass
class Unfreed:
    """look: what is charged now; None: that is not known. by_owner: unfreed bytes; of NOBODY: it is
    not known whose they are. known: whether the last look told. Used by one thread."""

    look: Callable[[], Charge | None]
    known: bool = False
    by_owner: dict[Owner, int] = field(default_factory=dict)

    def end(self, owner: Owner, file: MemoryFile, quiet: Quiet) -> None:
        """Free the pages of a file of the owner, and see whether they are free. quiet: a context in
        which no memory is made."""
        exact = self.by_owner.get(NOBODY, 0) > NOISE
        with quiet() if exact else contextlib.nullcontext():
            before = self.look()
            file.end()
            after = self.look()
        self.known = after is not None
        if before is None or after is None:
            return
        more = after.unlisted - before.unlisted
        if exact and file.charged:
            had_left = file.bytes - (before.listed - after.listed)
            more += max(0, min(had_left, self.by_owner[NOBODY]))
        self.by_owner[owner] = self.by_owner.get(owner, 0) + min(more, file.bytes)
        self._settle(after.unlisted)

    def see(self) -> None:
        """See what is unfreed by now."""
        now = self.look()
        self.known = now is not None
        if now is not None:
            self._settle(now.unlisted)

    def _settle(self, unlisted: int) -> None:
        """What is unfreed in all is certain; of all owners together it is no more than that."""
        total = max(0, unlisted - SLACK)
        known = {who: size for who, size in self.by_owner.items() if who != NOBODY and size > 0}
        most = max(total, sum(known.values()))
        known = {who: size * total // most for who, size in known.items()} if total else {}
        self.by_owner = known | {NOBODY: total - sum(known.values())}

    def report(self) -> dict[Owner, int] | None:
        """Whole MiB, in bytes; None: it is not known."""
        if not self.known:
            return None
        return {who: size // MIB * MIB for who, size in self.by_owner.items() if size >= MIB}
