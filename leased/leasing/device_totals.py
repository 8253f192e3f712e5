"""What all jobs together have had of each device since this daemon began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leased.core.usage import BYTES, COUNT, FIGURES, NS, Usage

# Those that can be added up: each second, byte and event is of one job.
ADDED = [one for one in FIGURES if one.unit in (NS, BYTES, COUNT) and not one.largest]

ByDevice = Mapping[str, Usage]


class DeviceTotals:
    """Of jobs that have ended, and of those that run without what they had had before."""

    def __init__(self, uuids: Iterable[str] = ()) -> None:
        self._ended: dict[str, Usage] = {uuid: Usage() for uuid in uuids}
        self._before: dict[int, ByDevice] = {}

    def goes_on(self, job_id: int, usage: ByDevice) -> None:
        """A daemon before this one has counted so much of the job."""
        self._before[job_id] = usage

    def ends(self, job_id: int, usage: ByDevice) -> None:
        """The job is over; it has had so much in all."""
        self._add(self._ended, usage, self._before.pop(job_id, {}))

    def now(self, running: Mapping[int, ByDevice]) -> dict[str, Usage]:
        """By device. running: what the jobs that run have had in all."""
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
