"""What all jobs together have had of each device since this daemon began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leased.usage.usage import BYTES, COUNT, FIGURES, NS, Usage

# Figures that can be added up, since each second, byte and event counts for one job only.
ADDED = [one for one in FIGURES if one.unit in (NS, BYTES, COUNT) and not one.largest]

ByDevice = Mapping[str, Usage]


class DeviceTotals:
    """Usage of all jobs since this daemon began: what a job had under a previous daemon is left
    out."""

    def __init__(self, uuids: Iterable[str] = ()) -> None:
        self._ended: dict[str, Usage] = {uuid: Usage() for uuid in uuids}
        self._before: dict[int, ByDevice] = {}

    def goes_on(self, job_id: int, usage: ByDevice) -> None:
        """A job goes on that had this usage when the daemon began."""
        self._before[job_id] = usage

    def ends(self, job_id: int, usage: ByDevice) -> None:
        """The job is over; this is its whole usage."""
        self._add(self._ended, usage, self._before.pop(job_id, {}))

    def now(self, running: Mapping[int, ByDevice]) -> dict[str, Usage]:
        """The usage of all jobs by device. running: the whole usage of the jobs that run."""
        sums: dict[str, Usage] = {}
        self._add(sums, self._ended, {})
        for job_id, usage in running.items():
            self._add(sums, usage, self._before.get(job_id, {}))
        return sums

    @staticmethod
    def _add(sums: dict[str, Usage], usage: ByDevice, before: ByDevice) -> None:
        for uuid, used in usage.items():
            whole, had = sums.setdefault(uuid, Usage()), before.get(uuid, Usage())
            for figure in ADDED:
                more = getattr(used, figure.name) - getattr(had, figure.name)
                setattr(whole, figure.name, getattr(whole, figure.name) + max(0, more))
