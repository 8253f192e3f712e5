"""One node's side of all jobs on several nodes: events and times in, actions out, like the arbiter.

Of two jobs that want the same GPU the one with the lower stamp goes first: where the other one
gathers or runs in the meantime it gives way. A stamp is higher than any that the coordinator's node
has heard of, so it says who began to wait first without any clock, and no two jobs wait for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from leased.across.messages import Message, Order, Phase, Report, State

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
        self.kept = dict(kept or {})

    def start(self, now: int) -> list[Action]:
        """To be called once, first: what the daemon before this one had promised is kept."""
        done: list[Action] = []
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
        return done + self._settle(now)

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        dues = [self._due(member) for member in self.members.values()]
        dues += [coordinator.due() for coordinator in self.coordinators.values()]
        return min((due for due in dues if due is not None), default=None)

    def _due(self, member: Member) -> int | None:
        due = member.due()
        if not self._must_repeat(member):
            return due
        return member.resend_at if due is None else min(due, member.resend_at)

    def missing(self, job: str) -> list[str]:
        """The nodes whose daemons the job waits for; known on its first node alone."""
        coordinator = self.coordinators.get(job)
        return coordinator.missing() if coordinator and not coordinator.is_idle() else []

    # -- events ----------------------------------------------------------------------

    def join(self, event: Joined, now: int) -> list[Action]:
        """A step of the job begins here. The job may have been known before: by what was promised
        to it, or as one that other nodes ask for."""
        job, nodes = event.job, event.nodes
        if job not in self.members:
            self.members[job] = Member(job, nodes, 0, self.bounds)
            self.members[job].begin(now)
        self._coordinate(job, nodes)
        return self.members[job].come(nodes, event.gpus)

    def _coordinate(self, job: str, nodes: tuple[str, ...]) -> None:
        if nodes[0] == self.node and job not in self.coordinators:
            self.coordinators[job] = Coordinator(job, nodes, self.bounds, self.first_epoch)

    def leave(self, event: Left, _: int) -> list[Action]:
        """Nothing of the job is here any more. Its coordinator asks once more what there is."""
        member = self.members.pop(event.job, None)
        self.coordinators.pop(event.job, None)
        if member is None:
            return []
        freed, first = member.free(), member.nodes[0]
        none = Report(event.job, 0, 0, State.REST, latest=self.latest)
        return freed if first == self.node else [*freed, Send(first, none)]

    def local(self, event: Wants | Ready | Held | Stopped | EndWanted, _: int) -> list[Action]:
        """Something has happened to the job on this node."""
        member = self.members.get(event.job)
        if member is None:
            return []
        if isinstance(event, Wants):
            member.changed = member.changed or member.wants != event.wants
            member.wants = event.wants
        elif isinstance(event, Ready):
            member.turn = event.ready
        elif isinstance(event, Held):
            return member.held()
        elif isinstance(event, Stopped):
            return member.stopped()
        else:
            member.ends = member.changed = True
        return []

    def receive(self, event: Received, now: int) -> list[Action]:
        """Another daemon has said something. What is not of a daemon of the job is ignored."""
        message = event.message
        if isinstance(message, Order):
            return self._obey(event.node, message, now)
        return self._hear(event.node, message, now)

    def _obey(self, node: str, order: Order, now: int) -> list[Action]:
        self.latest = max(self.latest, order.stamp)
        member = self.members.get(order.job)
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

    def is_older(self, one: Member, other: Member) -> bool:
        """Which of two jobs goes first. Who has not been told its place yet comes last."""
        return (one.stamp or 1 << 62, one.job) < (other.stamp or 1 << 62, other.job)

    def in_the_way(self, member: Member) -> Iterable[Member]:
        """The other jobs that have GPUs of it here, or are about to."""
        return (
            other
            for other in self.members.values()
            if other.state != State.REST and other.gpus & member.gpus and other is not member
        )

    def yields(self, member: Member) -> bool:
        """An older job is to hold its GPUs, and could but for jobs that make way."""
        return any(
            self.is_older(other, member) and self.ready(other)
            for other in self.members.values()
            if other.phase == Phase.HOLD and other.gpus & member.gpus and other is not member
        )

    def ready(self, member: Member) -> bool:
        """Its turn has come here, and nobody is in its way but jobs that make way for it."""
        if member.state != State.REST or not member.turn:
            return False
        return all(self.is_older(member, other) for other in self.in_the_way(member))

    # -- what follows from an event ----------------------------------------------------

    def _settle(self, now: int) -> list[Action]:
        """Pass what is due, let jobs hold whose turn it is, and say what has changed."""
        done: list[Action] = []
        for member in self.members.values():
            done += member.pass_time(now)
        for coordinator in self.coordinators.values():
            due = coordinator.due()
            if due is not None and due <= now:
                coordinator.pass_time(now)
        changed = True
        while changed:
            changed = False
            gather = [m for m in self.members.values() if m.phase == Phase.HOLD]
            for member in sorted(gather, key=lambda m: (m.stamp, m.job)):
                done += self._try_hold(member, now)
            for member in self.members.values():
                if member.owes() and (member.state == State.RUNNING or not self.yields(member)):
                    done += member.promise(now)
            done += self._say(now)
            while self.inbox:
                changed = True
                message = self.inbox.pop(0)
                done += self.receive(Received(self.node, message), now)
        return done

    def _try_hold(self, member: Member, now: int) -> list[Action]:
        if not self.ready(member) or self.yields(member):
            return []
        done: list[Action] = []
        for other in list(self.in_the_way(member)):
            if other.state == State.HOLDING:  # it has promised nothing in this attempt
                done += other.free()
        return done if any(self.in_the_way(member)) else [*done, *member.hold(now)]

    def _say(self, now: int) -> list[Action]:
        """Send what others do not know yet, or have not answered."""
        done: list[Action] = []
        for coordinator in self.coordinators.values():
            again = now >= coordinator.resend_at
            if coordinator.changed or again:
                for node in coordinator.nodes:
                    if coordinator.changed or coordinator.lacks(node):
                        done += self._send(node, coordinator.order(node))
                        coordinator.resend_at = now + self.bounds.resend_ns
                coordinator.changed = False
        for member in list(self.members.values()):
            told = self.ready(member), self._is_to_yield(member)
            again = self._must_repeat(member) and now >= member.resend_at
            if again or (not member.is_about_to() and (member.changed or told != member.told)):
                member.told, member.changed = told, False
                member.resend_at = now + 2 * self.bounds.resend_ns
                done += self._send(member.nodes[0], member.report(told, self.latest))
                if member.is_absent() and member.state == State.REST and not member.stamp:
                    del self.members[member.job]  # there is nothing to remember
        return done

    def _is_to_yield(self, member: Member) -> bool:
        """It is to let its coordinator let go: for an older job, or for a step that has begun."""
        has = member.state in (State.HELD, State.RUNNING)
        return has and (member.coming != 0 or self.yields(member))

    def _must_repeat(self, member: Member) -> bool:
        """It waits for an order that may have been lost."""
        if member.state == State.REST:
            return member.wants and not member.stamp
        return member.state != State.RUNNING

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
