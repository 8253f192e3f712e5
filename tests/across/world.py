"""A small cluster as a value: daemons, the messages between them, and what really runs where.

What is true (who keeps GPUs, who runs) is noted from the actions alone, so a fault in what a daemon
believes is seen. Each step makes a new world and leaves the old one as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from leased.across.across import Across
from leased.across.actions import (
    Action,
    EndWanted,
    Event,
    Forget,
    Free,
    Held,
    Hold,
    Joined,
    Keep,
    Left,
    Line,
    Ready,
    Received,
    Run,
    Send,
    Stop,
    Stopped,
    Tick,
    Wants,
)
from leased.across.bounds import Bounds
from leased.across.coordinator import Coordinator
from leased.across.member import Member
from leased.across.messages import Message

SCALE = 10
STEPS = 5000  # more than any jobs need that do not try again and again in vain
# As long as they are in proportion, small ones leave fewer steps of time to go through.
SMALL = Bounds(1 * SCALE, 2 * SCALE, 5 * SCALE, 2 * SCALE, 6 * SCALE)
OF_TIME = {
    "since", "run_until", "held_until", "resend_at", "vote", "started", "over_at", "patient_at",
}  # fmt: skip

OTHERS = {"go", "heard", "bounds", "nodes", "gpus"}  # dictionaries, and what never changes
# Of a member or coordinator: all fields, those that are times, and the others.
FIELDS: dict[type, tuple[str, ...]]
FIELDS = {Member: Member.__slots__, Coordinator: Coordinator.__slots__}
ALL = {kind: attrgetter(*fields) for kind, fields in FIELDS.items()}
TIMES = {kind: attrgetter(*sorted(OF_TIME & {*fields})) for kind, fields in FIELDS.items()}
PLAIN = {kind: attrgetter(*sorted({*of} - OF_TIME - OTHERS)) for kind, of in FIELDS.items()}

Jobs = Mapping[str, tuple[str, ...]]
Place = tuple[str, str]  # node, job


class Fault(AssertionError):
    """What must hold does not."""


class Budget(NamedTuple):
    """How much may still go wrong, and how many steps of time there are. late: how many messages
    may arrive after later ones of the same daemon. ends: how often running jobs are to end. steps:
    how many first steps on a node are to begin or to end."""

    late: int = 0
    lost: int = 0
    doubled: int = 0
    crashes: int = 0
    times: int = 0
    ends: int = 0
    steps: int = 0


class Running(NamedTuple):
    """What runs on a node. orphan: its daemon has died since, so nobody could stop it."""

    epoch: int
    stop_by: int | None = None
    orphan: bool = False


def copy_of(old: Any) -> Any:
    """A copy of a member or coordinator."""
    kind = type(old)
    new: Any = object.__new__(kind)
    for name, value in zip(old.__slots__, ALL[kind](old)):
        setattr(new, name, value)
    if kind is Coordinator:
        new.heard, new.go = dict(old.heard), dict(old.go)
    return new


def seen(of: Any, now: int, furthest: int) -> tuple[Any, ...]:
    """What of it decides about what comes next: times as seen from now."""
    kind = type(of)
    times = [max(at - now, -furthest) if at else None for at in TIMES[kind](of)]
    if kind is Member:
        return (*times, *PLAIN[kind](of))
    go = tuple(sorted((node, vote - now) for node, vote in of.go.items()))
    return (*times, go, tuple(sorted(of.heard.items())), *PLAIN[kind](of))


class World:
    """jobs: the nodes of each, of which it has the one GPU. clocks: what they show at the start.
    absent: where no step of a job has begun."""

    def __init__(
        self,
        jobs: Jobs,
        clocks: Mapping[str, int],
        budget: Budget,
        bounds: Bounds,
        absent: Iterable[Place] = (),
    ):
        self.absent = frozenset(absent)
        self.jobs, self.clocks, self.bounds, self.budget = jobs, clocks, bounds, budget
        self.t = 0
        self.first = budget
        self.nodes: dict[str, Across | None] = {n: Across(n, bounds) for n in clocks}
        self.starts = dict.fromkeys(clocks, 1)
        self.flying: tuple[tuple[str, str, Message], ...] = ()  # from, to
        self.answers: tuple[tuple[str, Event, int], ...] = ()  # of a node to its daemon, until when
        self.keeps: frozenset[Place] = frozenset()
        self.runs: dict[Place, Running] = {}
        self.noted: dict[str, dict[str, tuple[tuple[str, ...], int]]] = {n: {} for n in clocks}
        self.ran: frozenset[str] = frozenset()  # jobs that have run on all their nodes

    def copy(self) -> World:
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        new.nodes, new.runs = dict(self.nodes), dict(self.runs)
        return new

    def begin(self) -> None:
        """All jobs are there, and want their GPUs."""
        for job, nodes in self.jobs.items():
            for node in nodes:
                if (node, job) not in self.absent:
                    self.tell(node, Joined(job, nodes, 1))
        for job in self.jobs:
            self.tell(self.there(job)[-1], Wants(job, True))

    def there(self, job: str) -> list[str]:
        """The nodes on which a step of the job is."""
        return [node for node in self.jobs[job] if (node, job) not in self.absent]

    def step_begins(self, node: str, job: str) -> None:
        """It wants its GPU: the job has to run with it."""
        self.absent -= {(node, job)}
        self.ran -= {job}
        self.tell(node, Joined(job, self.jobs[job], 1))
        self.tell(node, Wants(job, True))

    def step_ends(self, node: str, job: str) -> None:
        """What ran of it has ended with it."""
        self.absent |= {(node, job)}
        self.runs.pop((node, job), None)
        ended = (node, Held(job)), (node, Stopped(job))
        self.answers = tuple(answer for answer in self.answers if answer[:2] not in ended)
        self.tell(node, Left(job))
        if job not in self.ran:
            self.tell(self.there(job)[0], Wants(job, True))

    def clock(self, node: str) -> int:
        return self.t + self.clocks[node]

    # -- steps -------------------------------------------------------------------------

    def open(self, node: str) -> Across | None:
        """The daemon of a node, for this world alone to change."""
        old = self.nodes[node]
        if old is None:
            return None
        new = object.__new__(Across)
        new.__dict__.update(old.__dict__)
        new.members = {job: copy_of(member) for job, member in old.members.items()}
        new.coordinators = {job: copy_of(found) for job, found in old.coordinators.items()}
        new.inbox, new.dues, new.touched = [], dict(old.dues), set()
        self.nodes[node] = new
        return new

    def tell(self, node: str, event: Event) -> None:
        daemon = self.open(node)
        if daemon is not None:
            self.do_all(node, daemon.handle(event, self.clock(node)))

    def do_all(self, node: str, actions: list[Action]) -> None:
        """Carry out what a daemon wants, and tell it what follows at once."""
        following = [self.do(node, action) for action in actions]
        for event in following:
            if event is not None:
                self.tell(node, event)

    def do(self, node: str, action: Action) -> Event | None:
        """An action of a daemon is carried out."""
        if isinstance(action, Send):
            self.flying = (*self.flying, (node, action.node, action.message))
            return None
        job = action.job
        if isinstance(action, Line):
            return Ready(job, True)  # every job's turn has come
        if isinstance(action, Hold):
            self.keeps |= {(node, job)}
            self.answer(node, Held(job))
        elif isinstance(action, Run):
            self.runs[node, job] = Running(self.member(node, job).epoch)
            if all((n, job) in self.runs for n in self.there(job)):
                self.ran |= {job}
        elif isinstance(action, Stop):
            by = self.t + self.bounds.drain_ns
            if (node, job) in self.runs:
                self.runs[node, job] = self.runs[node, job]._replace(stop_by=by)
            self.answer(node, Stopped(job))
        elif isinstance(action, Free):
            self.keeps -= {(node, job)}
        elif isinstance(action, Keep):
            self.note(node, {**self.noted[node], job: (action.nodes, action.gpus)})
        elif isinstance(action, Forget):
            self.note(node, {j: of for j, of in self.noted[node].items() if j != job})
        return None

    def note(self, node: str, noted: dict[str, tuple[tuple[str, ...], int]]) -> None:
        self.noted = {**self.noted, node: noted}

    def answer(self, node: str, event: Event) -> None:
        self.answers = (*self.answers, (node, event, self.t + self.bounds.drain_ns))

    def member(self, node: str, job: str) -> Member:
        daemon = self.nodes[node]
        assert daemon is not None
        return daemon.members[job]

    def deliver(self, n: int, keep: bool = False) -> None:
        """A message that is under way arrives; keep: and will do so again."""
        sender, to, message = self.flying[n]
        if not keep:
            self.flying = self.flying[:n] + self.flying[n + 1 :]
        self.tell(to, Received(sender, message))

    def happen(self, n: int) -> None:
        """A node has done what its daemon wanted."""
        node, event, _ = self.answers[n]
        self.answers = self.answers[:n] + self.answers[n + 1 :]
        if isinstance(event, Stopped):
            self.runs.pop((node, event.job), None)
            if event.job not in self.ran:
                self.tell(node, Wants(event.job, True))  # it was stopped before its work was done
        self.tell(node, event)

    def crash(self, node: str) -> None:
        """The daemon dies. Processes run on, and nobody gets GPUs of this node."""
        self.nodes[node] = None
        self.answers = tuple(answer for answer in self.answers if answer[0] != node)
        for place in [place for place in self.runs if place[0] == node]:
            self.runs[place] = Running(self.runs[place].epoch, None, True)

    def start(self, node: str) -> None:
        """Another daemon starts, and the node's steps join it."""
        self.t += 1
        self.starts = {**self.starts, node: self.starts[node] + 1}
        kept = self.noted[node]
        self.keeps = frozenset(p for p in self.keeps if p[0] != node or p[1] in kept)
        daemon = Across(node, self.bounds, self.starts[node] << 16, kept)
        self.nodes[node] = daemon
        self.do_all(node, daemon.start(self.clock(node)))
        for job, nodes in self.jobs.items():
            if node in nodes and (node, job) not in self.absent:
                self.tell(node, Joined(job, nodes, 1))
                if job not in self.ran:
                    self.tell(node, Wants(job, True))

    def next_time(self) -> int | None:
        """When the next daemon has something to do."""
        dues = []
        for node, daemon in self.nodes.items():
            due = daemon.next_deadline() if daemon else None
            if due is not None:
                dues.append(due - self.clocks[node])
        return max(min(dues), self.t + 1) if dues else None

    def pass_time(self, until: int) -> None:
        self.t = until
        for node, daemon in self.nodes.items():
            due = daemon.next_deadline() if daemon else None
            if due is not None and due <= self.clock(node):
                self.tell(node, Tick())

    # -- what must hold -------------------------------------------------------------------

    def check(self) -> None:
        """Fault: half a job runs, a GPU has two jobs, or a job runs in two epochs."""
        for node in self.clocks:
            if sum(place[0] == node for place in self.keeps) > 1:
                raise Fault(f"{node} has promised its GPU twice: {sorted(self.keeps)}")
        for (node, job), running in self.runs.items():
            if running.orphan:
                continue
            if (node, job) not in self.keeps:
                raise Fault(f"{job} runs on {node} without its GPU")
            for other in self.parts(job):
                if (other, job) not in self.keeps:
                    raise Fault(f"{job} runs on {node}, and {other} may give its GPU to others")
                beside = self.runs.get((other, job))
                if beside and not beside.orphan and beside.epoch != running.epoch:
                    raise Fault(f"{job} runs in epochs {running.epoch} and {beside.epoch}")

    def parts(self, job: str) -> list[str]:
        """The nodes whose GPUs the job has to have while it runs: where a step of it is, from when
        its daemon has taken that up."""
        parts = []
        for node in self.there(job):
            daemon = self.nodes[node]
            if daemon is not None and daemon.members[job].gpus:
                parts.append(node)
        return parts

    def key(self) -> object:
        """Two worlds with the same one go on in the same ways."""
        furthest = 2 * self.bounds.hold_ns
        nodes: list[tuple[object, ...]] = []
        for node, daemon in self.nodes.items():
            if daemon is None:
                nodes.append((node,))
                continue
            now = self.clock(node)
            parts: list[Member | Coordinator] = [*daemon.members.values()]
            parts += daemon.coordinators.values()
            nodes.append((node, daemon.latest, *(seen(part, now, furthest) for part in parts)))
        flying = sorted((f, to, self._relative(f, to, m)) for f, to, m in self.flying)
        answers = sorted((n, repr(e), by - self.t) for n, e, by in self.answers)
        runs = sorted((place, r.epoch, r.orphan) for place, r in self.runs.items())
        noted = tuple((node, tuple(sorted(of))) for node, of in self.noted.items())
        what = (tuple(nodes), tuple(flying), tuple(answers), tuple(runs), noted)
        of_jobs = self.keeps, self.ran, self.absent
        return hash((what, *of_jobs, tuple(self.starts.values()), self.budget))

    def _relative(self, sender: str, to: str, message: Message) -> tuple[Any, ...]:
        """Votes are times of the member's clock."""
        whose = to if hasattr(message, "phase") else sender
        vote = message.vote - self.clock(whose) if message.vote else None
        return (*message[:1], type(message).__name__, *message[1:], vote)

    def is_untroubled(self) -> bool:
        """Nothing has gone wrong so far, and no time has passed."""
        no_harm = {"ends": 0, "doubled": 0, "steps": 0}
        return self.budget._replace(**no_harm) == self.first._replace(**no_harm)

    # -- the rest of the story --------------------------------------------------------------

    def finish(self, within: int) -> None:
        """From here on nothing goes wrong. Fault: a job that wants to run does not in that time."""
        until = self.t + within
        for node, daemon in self.nodes.items():
            if daemon is None:
                self.start(node)
        waits: list[str] = []
        for _ in range(STEPS):
            waits = sorted(frozenset(self.jobs) - self.ran)
            if not waits:
                return
            if self.flying:
                self.deliver(0)
            elif self.answers:
                self.happen(0)
            elif (place := self._over()) is not None:
                self.tell(place[0], EndWanted(place[1]))
            else:
                when = self.next_time()
                if when is None or when > until:
                    break
                self.pass_time(when)
            self.check()
        raise Fault(f"{waits} wait for ever")

    def _over(self) -> Place | None:
        """Who has run on all nodes is to let others run."""
        for (node, job), running in self.runs.items():
            told = self.nodes[node] and self.member(node, job).ends
            if job in self.ran and running.stop_by is None and not running.orphan and not told:
                return node, job
        return None


def steps(world: World) -> Iterator[World]:
    """All worlds that may come next."""
    budget = world.budget
    for n in range(len(world.flying)):
        yield from _of_message(world, n)
    for n in range(len(world.answers)):
        new = world.copy()
        new.happen(n)
        yield new
    for (node, job), running in world.runs.items() if budget.ends else ():
        if not running.orphan and running.stop_by is None and not world.member(node, job).ends:
            new = world.copy()
            new.budget = budget._replace(ends=budget.ends - 1)
            new.tell(node, EndWanted(job))
            yield new
    if budget.steps:
        yield from _of_steps(world)
    for node, daemon in world.nodes.items():
        if daemon is None or budget.crashes:
            new = world.copy()
            if daemon is None:
                new.start(node)
            else:
                new.budget = budget._replace(crashes=budget.crashes - 1)
                new.crash(node)
            yield new
    when = world.next_time()
    if budget.times and when is not None and all(when <= by for _, _, by in world.answers):
        new = world.copy()
        new.budget = budget._replace(times=budget.times - 1)
        new.pass_time(when)
        yield new


def _of_steps(world: World) -> Iterator[World]:
    """A step begins or ends on a node, though not on a job's first one."""
    for job, nodes in world.jobs.items():
        for node in nodes[1:]:
            new = world.copy()
            new.budget = world.budget._replace(steps=world.budget.steps - 1)
            if (node, job) in world.absent:
                new.step_begins(node, job)
            else:
                new.step_ends(node, job)
            yield new


def _of_message(world: World, n: int) -> Iterator[World]:
    budget, to = world.budget, world.flying[n][1]
    passes = any(flying[:2] == world.flying[n][:2] for flying in world.flying[:n])
    if passes and not budget.late:
        return
    new = world.copy()
    new.budget = budget = budget._replace(late=budget.late - passes)
    new.deliver(n)
    yield new
    if budget.doubled and world.nodes[to] is not None:
        new = world.copy()
        new.budget = budget._replace(doubled=budget.doubled - 1)
        new.deliver(n, keep=True)
        yield new
    if budget.lost and world.nodes[to] is not None:
        new = world.copy()
        new.budget = budget._replace(lost=budget.lost - 1)
        new.flying = world.flying[:n] + world.flying[n + 1 :]
        yield new
