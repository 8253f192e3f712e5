"""Gathers a job's members, lets them run together, and stops them together.

It has its orders answered in rounds. A round is complete when every member has voted in it, within
round_ns of its start; then each member may run on its vote. While the job runs, rounds go on and
each member runs on its last vote of a complete one. Members that no order reaches stop by
themselves, and keep their GPUs until all others have stopped.
"""

from __future__ import annotations

from leased.across.bounds import Bounds
from leased.across.messages import LAST_EPOCH, LAST_STAMP, Order, Phase, Report, State

HOLDS = (State.HELD, State.RUNNING)
MOST_PATIENT = 3  # times that resend_ns is doubled while a job only waits for its turn
MOST_VAIN = 64  # tries in a row, at once, to get all GPUs: five times as many as jobs ever need


class Coordinator:
    """epoch: of the last attempt; a new one is never one that any daemon of the job has seen.

    heard: by node, the report that answers this round. go: the votes of the last complete round.
    asked: how often this round's orders were sent again. over_at: nobody runs on a vote of a
    complete round any more. vain: so often it has let go since it ran last, as a member could not
    hold or gave way. changed: orders are to be sent.
    """

    __slots__ = (
        "asked", "bounds", "changed", "epoch", "go", "heard", "job", "nodes", "over_at",
        "patient_at", "phase", "resend_at", "round", "stamp", "started", "vain",
        "wanting",
    )  # fmt: skip

    def __init__(self, job: str, nodes: tuple[str, ...], bounds: Bounds, epoch: int):
        self.job, self.nodes, self.bounds, self.epoch = job, nodes, bounds, epoch
        self.phase, self.round, self.stamp = Phase.REST, 1, 0
        self.started = self.over_at = self.patient_at = self.resend_at = 0
        self.asked = self.vain = 0
        self.heard: dict[str, Report] = {}
        self.go: dict[str, int] = {}
        self.wanting: frozenset[str] = frozenset()
        self.changed = False

    def restart(self, now: int) -> None:
        """The daemon before this one may have let the job run: stop it, and wait until it has."""
        self._enter(Phase.STOP, now)
        self.over_at = now + self.bounds.hold_ns

    def leave(self, now: int) -> None:
        """The job has ended on this node, so it does not run again: all are to rest."""
        self.stamp, self.go = 0, {}
        self._enter(Phase.REST, now)

    def order(self, node: str) -> Order:
        """What this member is to do."""
        vote, stamp = self.go.get(node, 0), self.stamp
        return Order(self.job, self.epoch, self.round, self.phase, vote, stamp)

    def is_current(self, report: Report) -> bool:
        """It answers this round's order, and not an older one."""
        return (report.epoch, report.round) == (self.epoch, self.round)

    def hear(self, node: str, report: Report, now: int, latest: int) -> bool:
        """A member reports. latest: the highest stamp of any job known here. Returns whether the
        member needs to hear this round's order again."""
        if (report.epoch, report.round) > (self.epoch, self.round):
            if report.epoch > LAST_EPOCH:
                return False  # a broken daemon's, which has not answered
            self.epoch = report.epoch + 1  # what was written down of it has been lost
            self._stop(now)
            self.over_at = now + self.bounds.hold_ns
        self.wanting = self.wanting | {node} if report.wants else self.wanting - {node}
        if not self.is_current(report):
            self._heed_wishes(now, latest)
            return self._must_hear(report)
        if report.state == State.HOLDING:  # there is more to come, or it has come before this
            self.heard.setdefault(node, report)
        else:
            self.heard[node] = report
            answers = self._rests, self._gathers, self._runs, self._stops
            answers[self.phase](report, now)
        self._heed_wishes(now, latest)
        return False

    def _must_hear(self, report: Report) -> bool:
        """Who answers an older order has the last one to come, and hears it again if that is lost;
        but who has followed none gets it now, and with nothing to do none is sent again."""
        return report.epoch == 0 or (self.is_idle() and report.state != State.REST)

    def _heed_wishes(self, now: int, latest: int) -> None:
        """The job gets its place when somebody waits, and loses it when nobody does any more."""
        if self.phase == Phase.REST and bool(self.wanting) != bool(self.stamp):
            self.stamp = min(latest + 1, LAST_STAMP) if self.wanting else 0
            self._enter(Phase.REST, now)

    def _enter(self, phase: Phase, now: int) -> None:
        """Begin another phase, with a round of its own."""
        self.phase = phase
        self._begin_round(now)

    def _begin_round(self, now: int) -> None:
        self.round += 1
        self.started, self.heard, self.asked = now, {}, 0
        self.changed = True

    def all_heard(self) -> bool:
        return len(self.heard) == len(self.nodes)

    # -- by phase ----------------------------------------------------------------------

    def _rests(self, _: Report, now: int) -> None:
        ready = self.all_heard() and all(report.ready for report in self.heard.values())
        if self.stamp and ready and now >= self.patient_at:
            self.epoch += 1
            self.round = 0
            self._enter(Phase.HOLD, now)

    def _gathers(self, report: Report, now: int) -> None:
        if report.yields or (report.state == State.REST and not report.ready):
            self._let_go(now)
        elif self.is_complete(now):
            self.phase, self.vain = Phase.RUN, 0
            self._let_run()
            self.changed = True

    def _let_go(self, now: int) -> None:
        """Try again as soon as all are ready; but where one that says so never holds, others are
        not to lose their GPUs for it again and again."""
        self.vain += 1
        if self.vain > MOST_VAIN:
            self.patient_at = now + (self.bounds.resend_ns << MOST_PATIENT)
        self._enter(Phase.REST, now)

    def is_complete(self, now: int) -> bool:
        """Every member has voted in this round, in time."""
        voted = all(report.vote for report in self.heard.values())
        return self.all_heard() and voted and now <= self.started + self.bounds.round_ns

    def _let_run(self) -> None:
        """Each may run on its vote of this round."""
        self.go = {node: report.vote for node, report in self.heard.items()}
        self.over_at = self.started + self.bounds.hold_ns

    def _runs(self, report: Report, now: int) -> None:
        runs = report.state == State.RUNNING
        if runs and report.yields and not report.ends:
            self._stop(now, self.stamp)
        elif report.state not in HOLDS or (runs and report.ends):
            self._stop(now)
        elif self.is_complete(now):
            self._let_run()

    def _stop(self, now: int, stamp: int = 0) -> None:
        """Stop all members. stamp: the place that the job keeps, as an older one is let pass."""
        self.stamp, self.go = stamp, {}
        self._enter(Phase.STOP, now)

    def _stops(self, _: Report, now: int) -> None:
        if self.all_stopped():
            self._enter(Phase.REST, now)

    def all_stopped(self) -> bool:
        """Every member has said, since it was told to stop, that it has."""
        stopped = (State.REST, State.STOPPED)
        return self.all_heard() and all(r.state in stopped for r in self.heard.values())

    # -- time --------------------------------------------------------------------------

    def lacks(self, node: str) -> bool:
        """The member is to hear its order again: it has not answered, or not done all of it."""
        report = self.heard.get(node)
        if report is None:
            return not self.is_idle()
        if self.phase == Phase.REST:
            return self.stamp != 0 and not report.ready
        if self.phase == Phase.HOLD:
            return not report.vote
        return report.state in (State.HELD, State.STOPPING)

    def to_tell(self, now: int) -> list[str]:
        """Who hears its order now: all when it is a new one, else who lacks it, again and again."""
        told = list(self.nodes) if self.changed else []
        if not self.changed and now >= self.resend_at:
            told = [node for node in self.nodes if self.lacks(node)]
            self.asked += bool(told)
        if told:
            patience = min(self.asked, MOST_PATIENT) if self.phase == Phase.REST else 0
            self.resend_at = now + (self.bounds.resend_ns << patience)
        self.changed = False
        return told

    def is_idle(self) -> bool:
        return self.phase == Phase.REST and not self.stamp

    def due(self) -> int | None:
        """When pass_time() has something to do."""
        if self.is_idle():
            return None
        own = self._own_due()
        if any(self.lacks(node) for node in self.nodes):
            return self.resend_at if own is None else min(own, self.resend_at)
        return own

    def _own_due(self) -> int | None:
        if self.phase == Phase.STOP:
            return self.over_at
        if self.phase == Phase.REST:
            return self.patient_at if self.stamp and self.patient_at else None
        return self.started + self.bounds.round_ns

    def pass_time(self, now: int) -> None:
        """Begin another round, or give up."""
        bounds = self.bounds
        if self.phase == Phase.STOP and now >= self.over_at:
            self._enter(Phase.REST, now)
        elif self.phase == Phase.RUN and now >= self.over_at - bounds.drain_ns:
            self._stop(now)
        elif self.phase in (Phase.HOLD, Phase.RUN) and now >= self.started + bounds.round_ns:
            again = self._gather_on if self.phase == Phase.HOLD else self._begin_round
            again(now)
        elif self.phase == Phase.REST and self.patient_at and now >= self.patient_at:
            self.patient_at = 0
            if self.stamp:
                self._begin_round(now)

    def _gather_on(self, now: int) -> None:
        """Try once more, unless a member says nothing at all or it has been tried for long: then
        others may have the GPUs for as long as the job has kept them from them."""
        tried_ns = self.round * self.bounds.round_ns
        if self.all_heard() and tried_ns < self.bounds.gather_ns:
            self._begin_round(now)
        else:
            self.patient_at = now + tried_ns
            self._enter(Phase.REST, now)

    def missing(self) -> list[str]:
        """The nodes that have not answered this round though they were asked again, in the job's
        order."""
        return [node for node in self.nodes if self.asked and node not in self.heard]
