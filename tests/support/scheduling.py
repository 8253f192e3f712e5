"""Gives each worker of pytest-xdist whole groups of tests, in the order of tests/support/parallel.

pytest-xdist's own `--dist loadgroup` reads a group from the end of a test's name, where its
workers write it. Not every pytest lets them: from version 9.2 on the name stays as it is, each
test becomes a group of its own, and tests that share a machine's one thing run at once.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from tests.support import parallel
from tests.support.together import zip_strict


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's classes are untyped
    """Hands out the groups that tests/support/parallel names."""

    def schedule(self) -> None:
        """Find each test's group once all workers have told the tests that they found."""
        collected = next(iter(self.registered_collections.values()))
        files = [parallel.file_of(nodeid) for nodeid in collected]
        numbers = parallel.numbered(files)
        self._groups = {
            nodeid: parallel.group(file, number)
            for nodeid, file, number in zip_strict(collected, files, numbers)
        }
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test; called by pytest-xdist."""
        return self._groups[nodeid]
