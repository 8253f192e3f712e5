"""One node's side of all jobs on several nodes: events and times in, actions out, like the arbiter.

Of two jobs that want the same GPU the one with the lower stamp goes first: where the other one
gathers or runs in the meantime it gives way. A stamp is higher than any that the coordinator's node
has heard of, so it says who began to wait first without any clock, and no two jobs wait for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from leased.across.actions import (
    Action,
    EndWanted,
    Event,
    Held,
    Joined,
    Left,
    Ready,
    Received,
    Send,
    Stopped,
    Tick,
    Wants,
)
from leased.across.bounds import Bounds
from leased.across.coordinator import Coordinator
from leased.across.member import Member
from leased.across.messages import LAST_EPOCH, Message, Order, Phase, Report, State

REST, RUNNING, HOLD = State.REST, State.RUNNING, Phase.HOLD  # enumerations are slow to look up
HAS = State.HELD, State.RUNNING
Kept = Mapping[str, tuple[tuple[str, ...], int]]
MOST_ABSENT = 256  # jobs without a step here that are known at once, as many as there are tenants


class Across:
    """node: this one's name. first_epoch: higher than any epoch that this node has begun before.

    kept: what daemons before this one were told to Keep and not to Forget: nodes and GPUs by job.
    """

    def __init__(self, node: str, bounds: Bounds, first_epoch: int = 1, kept: Kept | None = None):
        self.node, self.bounds, self.first_epoch = node, bounds, first_epoch
        self.members: dict[str, Member] = {}
        self.coordinators: dict[str, Coordinator] = {}
        self.latest = 0  # the highest stamp that has been heard of
        self.inbox: list[Message] = []  # for this node, of this node
        self.busy: list[Member] = []  # those that may have GPUs
        self.ways: list[tuple[Any, ...]] = []  # what reports have last depended on
        self.gather: list[Member] = []  # those that are to hold, the oldest first
        self.dues: dict[str, int] = {}  # by job, when a Tick is due for it
        self.touched: set[str] = set()  # jobs whose due may be another one
        self.kept = dict(kept or {})

    def start(self, now: int) -> list[Action]:
        """To be called once, first: what the daemon before this one had promised is kept."""
        done: list[Action] = []
        self.touched.update(self.kept)
        for job, (nodes, gpus) in self.kept.items():
            self.members[job] = Member(job, nodes, gpus, self.bounds)
            self._coordinate(job, nodes)
            done += self.members[job].restart(now)
            if job in self.coordinators:
                self.coordinators[job].restart(now)
        self.kept = {}
        return done + self._settle(now)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. now: ns of a clock of this node that never
        steps back."""
        done = APPLY[type(event)](self, event, now)
        heard = isinstance(event, Received) and isinstance(event.message, Report)
        return done + self._settle(now, moved=not heard)

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        return min(self.dues.values(), default=None)

    def _note_dues(self) -> None:
        for job in self.touched:
            member, coordinator = self.members.get(job), self.coordinators.get(job)
            dues = [part.due() for part in (member, coordinator) if part]
            if member and self._must_repeat(member):
                dues.append(member.resend_at)
            self.dues.pop(job, None)
            if known := [due for due in dues if due is not None]:
                self.dues[job] = min(known)
        self.touched.clear()

    def missing(self, job: str) -> list[str]:
        """The nodes whose daemons the job waits for; known on its first node alone."""
        coordinator = self.coordinators.get(job)
        return coordinator.missing() if coordinator and not coordinator.is_idle() else []

    # -- events ----------------------------------------------------------------------

    def join(self, event: Joined, now: int) -> list[Action]:
        """A step of the job begins here. The job may have been known before: by what was promised
        to it, or as one that its first node asks for."""
        job, nodes = event.job, event.nodes
        self.touched.add(job)
        if job not in self.members or self.members[job].nodes[0] != nodes[0]:
            self.members[job] = Member(job, nodes, 0, self.bounds)
            self.members[job].begin(now)
        self._coordinate(job, nodes)
        return self.members[job].come(nodes, event.gpus)

    def _coordinate(self, job: str, nodes: tuple[str, ...]) -> None:
        if nodes[0] == self.node and job not in self.coordinators:
            self.coordinators[job] = Coordinator(job, nodes, self.bounds, self.first_epoch)

    def leave(self, event: Left, now: int) -> list[Action]:
        """Nothing of the job is here any more. Its coordinator asks once more what there is; and if
        that was here, its other nodes keep nothing for it either."""
        self.touched.add(event.job)
        member = self.members.pop(event.job, None)
        coordinator = self.coordinators.pop(event.job, None)
        if member is None:
            return []
        freed = member.free()
        if coordinator is None:
            none = Report(event.job, 0, 0, State.REST, latest=self.latest)
            return [*freed, Send(member.nodes[0], none)]
        coordinator.leave(now)
        if coordinator.epoch <= LAST_EPOCH:
            self.first_epoch = max(self.first_epoch, coordinator.epoch + 1)
        others = [node for node in coordinator.nodes if node != self.node]
        return freed + [Send(node, coordinator.order(node)) for node in others]

    def local(self, event: Wants | Ready | Held | Stopped | EndWanted, _: int) -> list[Action]:
        """Something has happened to the job on this node."""
        self.touched.add(event.job)
        member = self.members.get(event.job)
        if member is None:
            return []
        if isinstance(event, Wants):
            member.changed = member.changed or member.wants != event.wants
            member.wants = event.wants
        elif isinstance(event, Ready):
            return member.turn_comes(event.ready)
        elif isinstance(event, Held):
            return member.held()
        elif isinstance(event, Stopped):
            return member.stopped()
        else:
            member.changed = member.changed or not member.ends
            member.ends = True
        return []

    def receive(self, event: Received, now: int) -> list[Action]:
        """Another daemon has said something. What is not of a daemon of the job is ignored."""
        message = event.message
        self.touched.add(message.job)
        if isinstance(message, Order):
            return self._obey(event.node, message, now)
        return self._hear(event.node, message, now)

    def _obey(self, node: str, order: Order, now: int) -> list[Action]:
        self.latest = max(self.latest, order.stamp)
        member = self.members.get(order.job)
        if member and node != member.nodes[0] and member.is_absent() and member.state == REST:
            member = None  # the job runs again elsewhere, and where it began before does not say so
        if member is None and order.phase == Phase.REST and order.stamp and self._has_room():
            member = self.members[order.job] = Member(order.job, (node, self.node), 0, self.bounds)
        if member is None:
            none = Report(order.job, order.epoch, order.round, State.REST, latest=self.latest)
            return [Send(node, none)]
        if node != member.nodes[0]:
            return []
        return member.follow(order, now)

    def _has_room(self) -> bool:
        """One more job without a step here can be remembered. Otherwise it waits for a step."""
        absent = [member for member in self.members.values() if member.is_absent()]
        for member in absent if len(absent) >= MOST_ABSENT else ():
            if member.state == State.REST:
                del self.members[member.job]
        return len(absent) < MOST_ABSENT or any(m.state == State.REST for m in absent)

    def _hear(self, node: str, report: Report, now: int) -> list[Action]:
        self.latest = max(self.latest, report.latest)
        coordinator = self.coordinators.get(report.job)
        if coordinator is None or node not in coordinator.nodes:
            return []
        again = coordinator.hear(node, report, now, self.latest)
        self.latest = max(self.latest, coordinator.stamp)
        return self._send(node, coordinator.order(node)) if again else []

    def tick(self, _: Tick, __: int) -> list[Action]:
        """What is due is passed after every event."""
        return []

    # -- who is in whose way -----------------------------------------------------------

    def in_the_way(self, member: Member) -> list[Member]:
        """The other jobs that have GPUs of it here, or are about to."""
        gpus = member.gpus
        return [m for m in self.busy if m.gpus & gpus and m.state != REST and m is not member]

    def yields(self, member: Member) -> bool:
        """An older job is to hold its GPUs, and could but for jobs that make way."""
        gpus, place = member.gpus, member.place
        for other in self.gather:
            if other.gpus & gpus and other.place < place and self.ready(other):
                return True
        return False

    def ready(self, member: Member) -> bool:
        """Its turn has come here, and nobody is in its way but jobs that make way for it."""
        if not member.turn or member.state != REST:
            return False
        gpus, place = member.gpus, member.place
        for other in self.busy:
            if other.gpus & gpus and other.place < place and other.state != REST:
                return False
        return True

    # -- what follows from an event ----------------------------------------------------

    def _settle(self, now: int, moved: bool = True) -> list[Action]:
        """Pass what is due, let jobs hold whose turn it is, and say what has changed. moved: a
        member may have changed; a coordinator may always have."""
        done: list[Action] = []
        due = [job for job, at in self.dues.items() if at <= now]
        self.touched.update(due)
        moved = moved or bool(due)
        for job in sorted(self.touched):
            if job in self.members:
                done += self.members[job].pass_time(now)
            if job in self.coordinators:
                self.coordinators[job].pass_time(now)
        changed = True
        while changed:
            if moved:
                done += self._move(now)
            for job in sorted(self.touched):
                done += self._order(job, now)
            changed = bool(self.inbox)
            moved = False
            while self.inbox:
                message = self.inbox.pop(0)
                moved = moved or isinstance(message, Order)
                done += self.receive(Received(self.node, message), now)
        self._note_dues()
        return done

    def _move(self, now: int) -> list[Action]:
        """Members hold, promise, and report what their coordinators do not know yet."""
        done: list[Action] = []
        ways = [m for m in self.members.values() if m.phase == HOLD or m.state != REST]
        self.gather = sorted((m for m in ways if m.phase == HOLD), key=attrgetter("place"))
        self.busy = [m for m in ways if m.state != REST]
        for member in self.gather:
            done += self._try_hold(member, now)
        for member in self.busy:
            if member.owes() and (member.state == RUNNING or not self.yields(member)):
                done += member.promise(now)
                self.touched.add(member.job)
        for member in self._news_of(ways):
            done += self._report(member, now)
        return done

    def _news_of(self, ways: list[Member]) -> list[Member]:
        """Whom what has happened may concern: if those that are in others' ways have changed, all
        but those that wait for their turn. ways: who may be in others' ways."""
        before, self.ways = self.ways, [(m.place, m.gpus, m.state, m.phase, m.turn) for m in ways]
        if self.ways == before:
            return [self.members[job] for job in sorted(self.touched) if job in self.members]
        members, touched = self.members.values(), self.touched
        return [m for m in members if m.turn or m.state != REST or any(m.told) or m.job in touched]

    def _try_hold(self, member: Member, now: int) -> list[Action]:
        if not self.ready(member) or self.yields(member):
            return []
        done: list[Action] = []
        for other in self.in_the_way(member):
            if other.state == State.HOLDING:  # it has promised nothing in this attempt
                done += other.free()
                self.touched.add(other.job)
        if not self.in_the_way(member):
            done += member.hold(now)
            self.busy.append(member)
            self.touched.add(member.job)
        return done

    def _order(self, job: str, now: int) -> list[Action]:
        """The job's coordinator sends what its members do not know yet, or have not answered."""
        coordinator = self.coordinators.get(job)
        if coordinator is None:
            return []
        return [
            action
            for node in coordinator.to_tell(now)
            for action in self._send(node, coordinator.order(node))
        ]

    def _report(self, member: Member, now: int) -> list[Action]:
        told = self.ready(member), member.state in HAS and self._is_to_yield(member)
        again = now >= member.resend_at and self._must_repeat(member)
        news = member.changed or told != member.told
        if not again and (not news or member.is_about_to(told[0])):
            return []
        member.told, member.changed = told, False
        member.resend_at = now + 2 * self.bounds.resend_ns
        self.touched.add(member.job)
        if member.is_absent() and member.state == REST and not member.stamp:
            del self.members[member.job]  # there is nothing to remember
        return self._send(member.nodes[0], member.report(told, self.latest))

    def _is_to_yield(self, member: Member) -> bool:
        """Who has its GPUs is to let its coordinator let go: for an older job, or a new step."""
        return member.coming != 0 or self.yields(member)

    def _must_repeat(self, member: Member) -> bool:
        """It waits for an order that may have been lost."""
        if member.state == REST:
            return member.wants and not member.stamp
        return member.state != RUNNING

    def _send(self, node: str, message: Message) -> list[Action]:
        if node == self.node:
            self.inbox.append(message)
            return []
        return [Send(node, message)]


APPLY: dict[type, Callable[[Across, Any, int], list[Action]]] = {
    Joined: Across.join,
    Left: Across.leave,
    Received: Across.receive,
    Tick: Across.tick,
    **dict.fromkeys((Wants, Ready, Held, Stopped, EndWanted), Across.local),
}
