"""Jobs, nodes and a Slurm in memory, which does with changes what the real one was seen to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from leased.matching.profile import Kind, Profile
from leased.placement.api import ANYBODY, Request
from leased.placer import marks
from leased.placer.decide import decide
from leased.placer.ending import LastGiven
from leased.placer.model import NOW, Rules, Settings, Ticket, Update, View
from leased.placer.turn import Turn
from leased.slurm.nodes_json import GpuNode
from leased.slurm.queue_json import QueuedJob

T0 = 1_800_000_000
HOLD = 300
SETTINGS = Settings(hold_s=HOLD)
KEYS = {"affinity": "affinity", "anti-affinity": "anti_affinity", "exclusion": "exclusion"}


def understand(options: str) -> Request | None:
    """As the service's, for tests without the C grammar."""
    said = dict(part.split(":", 1) for part in options.split(",") if ":" in part)
    labels: dict[str, Any] = {field: said.get(key) for key, field in KEYS.items()}
    labels["chain"] = (ANYBODY, said["chain"]) if "chain" in said else None
    job_class = said.get("class", "none")
    request = Request(float(said.get("request", 0)), job_class=job_class, **labels)
    placed = request.has_labels or request.share or job_class != "none"
    return request if placed or "space" in said or "sm" in said else None


def job(number: int, options: str = "", **fields: Any) -> QueuedJob:
    """A pending job with one shard; options: as gpu_share.lua has marked and put it off."""
    until = T0 + HOLD if options else 0
    mark = f"[gpu-lease-placer 0 {until} {options}]" if options else ""
    made = QueuedJob(
        job_id=number,
        array_id=0,
        task=None,
        tasks="",
        tasks_at_once=0,
        user_id=1000,
        state="PENDING",
        reason="BeginTime" if options else "Priority",
        priority=1_000_000 - number,
        begin=until or T0 - 1,
        partitions=("gpu",),
        shards=1,
        gpu_type="",
        required="",
        excluded="",
        features="",
        reservation="",
        deadline=0,
        is_het=False,
        cpus=1,
        memory=0,
        nodes="",
        given={},
        comment="",
        admin_comment=mark,
    )
    return replace(made, **fields)


def running(made: QueuedJob, node: str, gpu: int = 0, end: int = 0) -> QueuedJob:
    return replace(
        made,
        state="RUNNING",
        reason="None",
        nodes=node,
        given={gpu: made.shards},
        begin=T0,
        end=end,
    )


def node(name: str, gpus: int = 1, shards: int = 4, **fields: Any) -> GpuNode:
    made = GpuNode(name, True, ("gpu",), frozenset(), (("", shards),) * gpus, 64, 1 << 20)
    return replace(made, **fields)


@dataclass
class Slurm:
    """It starts jobs that may begin, by priority, where ReqNodeList says or first there is room."""

    nodes: list[GpuNode]
    jobs: dict[str, QueuedJob] = field(default_factory=dict)
    now: int = T0
    tickets: dict[str, Ticket] = field(default_factory=dict)
    made: list[Update] = field(default_factory=list)
    starts: Callable[[QueuedJob], bool] = lambda _: True
    rules: dict[str, Rules] = field(default_factory=dict)
    settings: Settings = SETTINGS
    closed: frozenset[str] = frozenset()
    profiles: dict[Kind, Profile] = field(default_factory=dict)
    last_given: LastGiven = field(default_factory=LastGiven)

    def add(self, *jobs: QueuedJob) -> None:
        self.jobs |= {one.label: one for one in jobs}

    def submit(self, number: int, options: str, **fields: Any) -> None:
        """A job comes now."""
        until = self.now + HOLD
        mark = f"[gpu-lease-placer 0 {until} {options}]"
        self.add(job(number, options, begin=until, admin_comment=mark, **fields))

    def view(self) -> View:
        view = View(self.now, tuple(self.jobs.values()), tuple(self.nodes), self.rules, self.closed)
        return replace(self.last_given.added(view), profiles=self.profiles)

    def turn(self, most: int | None = None) -> Turn:
        """One turn of the placer; its changes are made, the first `most` of them."""
        turn = decide(self.view(), self.tickets, self.settings, understand)
        self.tickets = dict(turn.tickets)
        for update, key, ticket in [*turn.urgent, *turn.starts, *turn.words][:most]:
            self.change(update)
            if ticket is None:
                self.tickets.pop(key, None)
            else:
                self.tickets[key] = ticket
        return turn

    def change(self, update: Update) -> None:
        self.made.append(update)
        if update.job not in self.jobs:
            self._split(update.job)
        before = self.jobs[update.job]
        assert before.pending or (update.start is None and update.node is None), update
        told: dict[str, Any] = {
            "begin": self.now if update.start == NOW else update.start,
            "required": update.node,
            "comment": update.comment,
            "admin_comment": update.admin_comment,
        }
        made = {name: value for name, value in told.items() if value is not None}
        self.jobs[update.job] = replace(before, **made)

    def _split(self, label: str) -> None:
        array, _, task = label.partition("_")
        (whole,) = [j for j in self.jobs.values() if j.tasks and str(j.array_id) == array]
        left = [t for t in whole.tasks.split(",") if t != task]
        assert task in whole.tasks.split(",")
        del self.jobs[whole.label]
        if left:
            self.add(replace(whole, tasks=",".join(left)))
        number = max(j.job_id for j in [*self.jobs.values(), whole]) + 1
        self.add(replace(whole, tasks="", task=int(task), job_id=number))

    def schedule(self) -> None:
        """Slurm's own part: what may begin does, on the first GPU that has room."""
        for one in sorted(self.jobs.values(), key=lambda j: -j.priority):
            if not one.pending or one.priority == 0 or one.begin > self.now or not self.starts(one):
                continue
            place = self._place(one)
            if place and not one.tasks:
                end = self.now + one.limit_s if one.limit_s else 0
                self.jobs[one.label] = running(one, *place, end)

    def _place(self, one: QueuedJob) -> tuple[str, int] | None:
        for there in self.nodes:
            if one.required not in ("", there.name):
                continue
            for index, (_, shards) in enumerate(there.gpus):
                if self._used(there.name, index) + one.shards <= shards:
                    return there.name, index
        return None

    def _used(self, name: str, index: int) -> int:
        return sum(
            j.given.get(index) or 0
            for j in self.jobs.values()
            if j.state == "RUNNING" and j.nodes == name
        )

    def go(self, seconds: int, step: int = 1) -> None:
        """Time passes, the placer and Slurm take turns."""
        for _ in range(0, seconds, step):
            self.turn()
            self.schedule()
            self.now += step
            self.end_in_time()

    def end_in_time(self) -> None:
        over = [label for label, one in self.jobs.items() if 0 < one.end <= self.now]
        for label in over:
            self.end(label)

    def end(self, label: str) -> None:
        del self.jobs[label]

    def where(self, label: str) -> tuple[str, int] | None:
        one = self.jobs[label]
        return (one.nodes, *one.given) if one.given else None  # type: ignore[return-value]


def reason(one: QueuedJob) -> str:
    found = marks.REASON.search(one.comment)
    return found[0] if found else ""
