"""What the adversary does: jobs, and what happens to them from outside."""

from __future__ import annotations

from dataclasses import dataclass

CAPACITY = 100  # GiB of a device


@dataclass(frozen=True, repr=False)
class Job:
    """A job with one process. Times in ms; size and fixed: GiB on each of its devices.

    It computes for `busy`, then needs the GPU again after `pause`. drain: until what it has
    submitted is finished; delay: of every message, either way; speed: GiB/s of its memory. request,
    limit: parts of its devices' time; it has them unless the arbiter refuses that. job_class:
    online, offline or none. chain: what it is a part of; "": of none. ordered: others order its
    leases, see ordering.py.
    """

    gang: tuple[int, ...]
    lock: str = "on"
    quantum: int = 1000
    swaps: bool = False
    size: int = 0
    fixed: int = 0
    opens: int = 0
    busy: int = 500
    pause: int = 100
    drain: int = 1
    delay: int = 0
    speed: int = 10
    request: float = 0.0
    limit: float = 1.0
    job_class: str = "none"
    ordered: bool = False
    chain: str = ""

    def __repr__(self) -> str:
        """What is not as usual."""
        usual = Job(self.gang)
        odd = [f"{k}={v!r}" for k, v in vars(self).items() if v != getattr(usual, k)]
        return f"Job({', '.join([repr(self.gang), *odd])})"


@dataclass(frozen=True)
class Poke:
    """At `at` ms something is done to a job, or to a device: number `who`."""

    at: int
    what: str
    who: int
    amount: int = 0


@dataclass(frozen=True)
class Scenario:
    devices: int
    seconds: int
    jobs: tuple[Job, ...]
    pokes: tuple[Poke, ...] = ()

    def __str__(self) -> str:
        jobs = "".join(f"    {job!r},\n" for job in self.jobs)
        pokes = "".join(f"    {poke!r},\n" for poke in self.pokes)
        return f"Scenario({self.devices}, {self.seconds}, (\n{jobs}), (\n{pokes}))"


# Of jobs, and of devices; "policy" only where a scenario has reloads, as it makes the bound longer.
OF_JOB = (
    *("stop", "freeze", "thaw", "die", "close", "size", "fixed", "hang", "finish", "widen"),
    *("park", "unpark", "suspend"),
)
LIE = "lie"  # see lying.py
SIGNAL = "signal"  # a process handles one, see signalling.py
ABOUT_JOBS = (*OF_JOB, LIE, SIGNAL)
WORK = "work"  # of a device, see measuring.py
OF_DEVICE = ("lock", "quantum", "drain", "resume", "channels", "room", "policy")
LOCKS = ("on", "off", "auto", "none")
