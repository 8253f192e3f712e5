"""A record that a test makes, event by event, of an arbiter of its own."""

from __future__ import annotations

from leased import policy
from leased.core.actions import Grant
from leased.core.arbiter import Arbiter
from leased.core.events import Event, Released, WorkMeasured
from leased.record import lines
from leased.record.lines import Header, Outcome, Start
from leased.sim import history
from leased.sim.history import History
from leased.sim.jobs import GIB, S

GPU = "GPU-0"


class Script:
    """An arbiter of one GPU of 16 GiB, or of several. Times are seconds."""

    def __init__(self, *gpus: str) -> None:
        self.arbiter = Arbiter(dict.fromkeys(gpus or (GPU,), 16 * GIB), policy.make)
        start = Start.of(self.arbiter)
        self.record = [lines.header_line(Header("test", 1_000_000.0, start))]
        self.epochs: dict[int, int] = {}

    def at(self, seconds: float, *events: Event) -> None:
        now = round(seconds * S)
        for event in events:
            actions = tuple(self.arbiter.handle(event, now))
            for action in actions:
                if isinstance(action, Grant):
                    self.epochs[action.tenant] = action.epoch
            self.record.append(lines.entry_line(now, event, Outcome(actions)))

    def release(self, seconds: float, job: int) -> None:
        self.at(seconds, Released(job, self.epochs[job]))

    def look(self, seconds: float, percent: int, gpu: str = GPU) -> None:
        """What NVML says of the half second before."""
        self.at(seconds, WorkMeasured(gpu, S // 2, percent, None))

    def looks(self, since: float, *percents: int) -> None:
        """One after the other, the first half a second after `since`."""
        for n, percent in enumerate(percents, 1):
            self.look(since + n / 2, percent)

    def history(self) -> History:
        return history.of(self.record, [])
