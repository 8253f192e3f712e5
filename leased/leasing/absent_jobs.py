"""Jobs on several nodes of which no step has begun on this one: it keeps nothing for them.

Other nodes of such a job ask this one as well, each time the job is to run. Its GPUs here are
nobody's concern as long as none of its processes is here: so whatever is asked has been done.
When a step begins here the job runs again only once it has its GPUs here too.
"""

from __future__ import annotations

from leased.across.actions import Action, Event, Held, Hold, Line, Ready, Stop, Stopped

MOST = 256  # as many as there may be tenants
FORGET_NS = 600 * 1_000_000_000  # after the last order; one that is forgotten too soon comes again


class Absent:
    """Their names, and when something was asked of them last (ns)."""

    def __init__(self) -> None:
        self.heard: dict[str, int] = {}

    def __contains__(self, job: str) -> bool:
        return job in self.heard

    def note(self, job: str, now: int) -> list[str]:
        """A daemon asks for the job, which is not here. Returns jobs that are forgotten. With too
        many of them the job is not taken up, and waits until a step of it begins here."""
        old = [name for name, at in self.heard.items() if now - at > FORGET_NS and name != job]
        for name in old:
            del self.heard[name]
        if job in self.heard or (len(self.heard) < MOST and job.isascii() and job.isdecimal()):
            self.heard[job] = now
        return old

    def forget(self, job: str) -> bool:
        """A step of the job begins here. Whether it was one of these."""
        return self.heard.pop(job, None) is not None

    @staticmethod
    def answer(action: Action) -> Event | None:
        """What follows at once from what is to be done for such a job."""
        if isinstance(action, Line):
            return Ready(action.job, True)
        if isinstance(action, Hold):
            return Held(action.job)
        return Stopped(action.job) if isinstance(action, Stop) else None
