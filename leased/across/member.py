"""A job's part on one node: it follows the coordinator's orders and promises to keep its GPUs.

Where no step of the job is, the member has no GPUs, so that whatever it is told has been done at
once. When a step begins, its GPUs become the member's at the next moment at which no other part of
the job can run: it asks its coordinator for one. So a step that comes later begins as the whole job
does, and none of it runs beside what others do with the GPUs of this node.

A promise is a vote: the member's own clock when it gave it. The member keeps its GPUs for hold_ns
from its last vote, and runs only on an order that names a vote of its own, for run_ns from that
vote. So it needs nobody's clock but its own, and an order that answers another daemon, an older
epoch or an outdated promise lets nobody run.
"""

from __future__ import annotations

from leased.across.actions import Action, Forget, Free, Hold, Keep, Line, Run, Stop
from leased.across.bounds import Bounds
from leased.across.messages import LAST_STAMP, Order, Phase, Report, State

NO_STAMP = LAST_STAMP + 1


class Member:
    """phase: what the last order asked for. since: votes from then on count. promised: the last
    vote is of this round. lined: it waits in the line of this node, and turn: it has come. ends:
    its time is over here. run_until: 0: it has not run since it began to hold. changed: the
    coordinator does not know its state; told: what that has heard last of whether it is ready, and
    yields. place: among jobs, the lowest goes first; who has not been told one yet comes last.
    coming: the GPUs of a step that has begun, which are not the member's yet; 0: there are none.
    asked: the last order has come again. Times are ns of the node's clock."""

    __slots__ = (
        "asked", "bounds", "changed", "coming", "ends", "epoch", "gpus", "held_until", "job",
        "kept", "lined", "nodes", "phase", "place", "promised", "resend_at", "round", "run_until",
        "since", "stamp", "state", "told", "turn", "vote", "wants",
    )  # fmt: skip

    def __init__(self, job: str, nodes: tuple[str, ...], gpus: int, bounds: Bounds):
        self.job, self.nodes, self.gpus, self.bounds = job, nodes, gpus, bounds
        self.coming = 0
        self.state, self.phase = State.REST, Phase.REST
        self.epoch = self.round = self.stamp = self.vote = 0
        self.place = NO_STAMP, job
        self.since = self.run_until = self.held_until = self.resend_at = 0
        self.wants = self.turn = self.lined = self.ends = False
        self.told = False, False
        self.promised = self.kept = self.changed = self.asked = False

    def restart(self, now: int) -> list[Action]:
        """The daemon before this one had promised the GPUs to the job, and it may run here."""
        self.state, self.phase, self.kept = State.STOPPING, Phase.STOP, True
        self.held_until = now + self.bounds.hold_ns
        self.changed = True
        return [Stop(self.job)]

    def begin(self, now: int) -> None:
        """Nothing is known of the job here. A daemon before this one may have promised something
        of it, so others of its parts may run; where it had no GPUs, that was not noted."""
        self.state, self.phase = State.STOPPED, Phase.STOP
        self.held_until = now + self.bounds.hold_ns
        self.changed = True

    def come(self, nodes: tuple[str, ...], gpus: int) -> list[Action]:
        """A step of the job begins here."""
        if self.gpus:
            return []
        self.nodes, self.coming, self.changed = nodes, gpus, True
        return self._rest() if self.state == State.REST else []

    def is_absent(self) -> bool:
        """No step of the job is here."""
        return not self.gpus and not self.coming

    def _take_up(self) -> None:
        """No part of the job can run now, so its GPUs here are a part of it from now on."""
        if self.coming:
            self.gpus, self.coming = self.coming, 0
            self.lined = self.turn = False

    def is_outdated(self, order: Order) -> bool:
        """A later order has been followed."""
        return (order.epoch, order.round) < (self.epoch, self.round)

    def counts(self, vote: int, now: int) -> bool:
        """The member may run on this vote of its own."""
        return self.since <= vote <= self.vote and now < vote + self.bounds.run_ns

    def follow(self, order: Order, now: int) -> list[Action]:
        """Follow an order, unless a later one has been followed: who does not know of it is told,
        as the daemon there may have begun with too low an epoch."""
        if self.is_outdated(order):
            self.changed = True
            return []
        is_new = (order.epoch, order.round) != (self.epoch, self.round)
        self.asked, owes_more = not is_new, self.changed
        if order.epoch != self.epoch:
            self.since, self.vote = now, 0
        if is_new:
            self.promised, self.told = False, (False, False)
        self.epoch, self.round, self.phase = order.epoch, order.round, order.phase
        self.stamp, self.changed = order.stamp, True
        self.place = order.stamp or NO_STAMP, self.job
        if order.phase == Phase.REST:
            done = self._rest()
            # Who rests says so when it is asked again, and else nothing until its turn has come.
            unplaced = not self.stamp and (self.wants or self.is_absent())
            unheard = self.asked or owes_more or unplaced
            self.changed = unheard or self.state != State.REST
            return done
        if order.phase == Phase.STOP:
            return self._stop()
        if self.state == State.STOPPED:
            self.state = self._once_stopped()
        return self._run(order.vote, now) if order.phase == Phase.RUN else []

    def _rest(self) -> list[Action]:
        done: list[Action] = []
        if self.state == State.RUNNING:
            done = self._end()
        elif self.state != State.STOPPING:
            done = self.free()
        if self.state == State.REST:
            self._take_up()
        if self.stamp and not self.lined and self.state == State.REST:
            self.lined, self.turn = True, not self.gpus
            done += [Line(self.job)] if self.gpus else []
        elif not self.stamp:
            self.lined = self.turn = False
        return done

    def _stop(self) -> list[Action]:
        self.lined = self.turn = False
        if self.state == State.RUNNING:
            return self._end()
        if self.state == State.HOLDING:
            return self.free()
        if self.state == State.HELD:
            self.state = State.STOPPED
        return []

    def _run(self, vote: int, now: int) -> list[Action]:
        if self.state not in (State.HELD, State.RUNNING) or not self.counts(vote, now):
            return []
        self.run_until = max(self.run_until, vote + self.bounds.run_ns)
        if self.state == State.RUNNING:
            return []
        self.state, self.lined, self.turn = State.RUNNING, False, False
        self.ends = False
        self.wants = self.wants and not self.gpus
        self.run_until = vote + self.bounds.run_ns
        return [Run(self.job)] if self.gpus else []

    def owes(self) -> bool:
        """It keeps its GPUs as it is to, and has not promised that in this round; and its time is
        not over, whatever its coordinator makes of that."""
        return (
            not self.promised
            and (self.state == State.HELD or (self.state == State.RUNNING and not self.ends))
            and self.phase in (Phase.HOLD, Phase.RUN)
        )

    def promise(self, now: int) -> list[Action]:
        """Vote in this round."""
        self.vote, self.promised, self.changed = max(now, self.vote + 1), True, True
        self.held_until = self.vote + self.bounds.hold_ns
        if self.kept or not self.gpus:
            return []
        self.kept = True
        return [Keep(self.job, self.nodes, self.gpus)]

    def _end(self) -> list[Action]:
        self.state = State.STOPPING
        return [Stop(self.job)] if self.gpus else self.stopped()

    def free(self) -> list[Action]:
        """Nothing is promised any more."""
        if self.state == State.REST:
            return []
        self.state, self.vote, self.promised, self.changed = State.REST, 0, False, True
        free: list[Action] = [Free(self.job, self.lined)] if self.gpus else []
        self._take_up()
        if not self.kept:
            return free
        self.kept = False
        return [Forget(self.job), *free]

    def hold(self, now: int) -> list[Action]:
        """Its coordinator wants it to hold, and no other job on several nodes is in the way."""
        self.state, self.since, self.run_until = State.HOLDING, now, 0
        self.held_until = now + self.bounds.hold_ns
        return [Hold(self.job)] if self.gpus else self.held()

    def turn_comes(self, ready: bool) -> list[Action]:
        """Or has passed: what it was about to hold it does not get then."""
        self.turn = ready
        return self.free() if self.state == State.HOLDING and not ready else []

    def held(self) -> list[Action]:
        """Its GPUs have been taken back from others."""
        if self.state == State.HOLDING:
            self.state, self.changed = State.HELD, True
        return []

    def stopped(self) -> list[Action]:
        """Nothing of it runs any more."""
        if self.state != State.STOPPING:
            return []
        self.state = self._once_stopped()
        self.changed = True
        return self.free() if self.phase == Phase.REST else []

    def _once_stopped(self) -> State:
        """Who has run rests before it holds again, so that others have their turns."""
        return State.HELD if self.phase == Phase.HOLD and not self.run_until else State.STOPPED

    def is_about_to(self, ready: bool) -> bool:
        """It will have done what it was told to in a moment, and says so then; and before that if
        it is told so once more. ready: who is in its way makes way for it."""
        if self.asked:
            return False
        waits = self.state == State.REST and self.phase == Phase.HOLD and ready
        return waits or self.state in (State.HOLDING, State.STOPPING)

    def due(self) -> int | None:
        """When pass_time() has something to do."""
        if self.state == State.RUNNING:
            return self.run_until
        if self.state in (State.REST, State.STOPPING):
            return None
        return self.held_until

    def pass_time(self, now: int) -> list[Action]:
        """A promise is over, or what it ran on."""
        due = self.due()
        if due is None or now < due:
            return []
        self.changed = True
        if self.state == State.RUNNING:
            return self._end()
        self.phase = Phase.REST  # it takes another order to hold again
        return self.free()

    def report(self, told: tuple[bool, bool], latest: int) -> Report:
        """What its coordinator should know. told: whether it is ready, and yields; see Report."""
        ends = self.ends and self.state == State.RUNNING
        vote = self.vote if self.promised else 0
        known = self.job, self.epoch, self.round, self.state, vote, self.wants
        return Report(*known, ready=told[0], ends=ends, yields=told[1], latest=latest)
