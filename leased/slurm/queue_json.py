"""The jobs of a whole cluster, by the JSON that squeue prints."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from leased.config.job_sets import Owner
from leased.matching.profile import NAME_MOST
from leased.slurm import gres_text
from leased.slurm.hostlists import expand
from leased.slurm.json_answers import Entries, TooLong, list_of, number_of, text_of, words_of

# shard:1(IDX:0), shard:g1:2(IDX:1) and, of later releases, shard:g1:2(0/8,2/8); gpu:1(IDX:0-1).
GIVEN = re.compile(r"(gpu|shard)((?::[^:()]+)*):(\d+)\(([^()]*)\)")
PART = re.compile(r"(\d+)/\d+")
# gres:shard:1, gres/shard:g1:2, shard, gres:shard=2, gres:gres/shard:1
ASKED = re.compile(r"(?:gres[:/])*(gpu|shard)(?::([A-Za-z][^:=,]*))?(?:[:=](\d+[KkMm]?))?")
ACTIVE = {
    *("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"),
    *("STAGE_OUT",),
}

# What a pending job says of the nodes on which it wants to be: of any length that its user likes.
WISHES = ("required_nodes", "excluded_nodes", "features")
WISHES_MOST = 8192  # characters of them together
COMPLETING = "COMPLETING"
YEAR_S = 365 * 24 * 3600  # the limit that Slurm writes for a job that runs and has none
NO_END = {"PENDING", "SUSPENDED", "STOPPED"}  # states in which Slurm's end time means nothing
DEPENDS = "Dependency"  # so the reasons of a job begin that waits for others by its user's wish


@dataclass(frozen=True)
class QueuedJob:
    """A job, or all tasks of an array that have not been looked at one by one.

    task: its number in its array. tasks: of such an array, as Slurm writes them ("1-4,7"), but for
    the limit behind them ("%2"); "": it is no such. tasks_at_once: the most of them that may run;
    0: any number. begin: when it may begin, seconds since 1970; 0: unknown. shards: how many it
    asks for, of GPUs of that type; "": any. given: by GPU, how many shards it has of it; None: the
    GPU as a whole. cpus, memory: what it needs of a node, memory in MiB; 0: not said. limit_s: its
    time limit; 0: none, or a year or more. end: when it will have ended at the latest, seconds
    since 1970; 0: unknown. name: that its user has given it, or the beginning of it. qos, account:
    "": not known.
    """

    job_id: int
    array_id: int
    task: int | None
    tasks: str
    tasks_at_once: int
    user_id: int
    state: str
    reason: str
    priority: int
    begin: int
    partitions: tuple[str, ...]
    shards: int
    gpu_type: str
    required: str
    excluded: str
    features: str
    reservation: str
    deadline: int
    is_het: bool
    cpus: int
    memory: int
    nodes: str
    given: Mapping[int, int | None]
    comment: str
    admin_comment: str
    limit_s: int = 0
    end: int = 0
    name: str = ""
    qos: str = ""
    account: str = ""

    def owner(self, partitions: Container[str]) -> Owner:
        """Whose it is, in the first of its partitions that is one of these."""
        partition = next((one for one in self.partitions if one in partitions), "")
        return Owner(self.user_id, partition, self.qos, self.account)

    @property
    def label(self) -> str:
        """As Slurm's commands take it: 7, 7_2 for a task, 7_[1-4,6] for all of them."""
        if self.tasks:
            return f"{self.array_id}_[{self.tasks}]"
        return str(self.job_id) if self.task is None else f"{self.array_id}_{self.task}"

    @property
    def key(self) -> str:
        """The same, but all tasks are the array."""
        return str(self.array_id) if self.tasks else self.label

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def active(self) -> bool:
        """It has begun and has what Slurm gave it."""
        return self.state in ACTIVE

    @property
    def held(self) -> bool:
        """By its user or an administrator, or by jobs that it depends on."""
        return self.pending and (self.priority == 0 or self.reason.startswith(DEPENDS))


class Jobs(Entries):
    """Reads the jobs in what `squeue --json` prints."""

    def __init__(self) -> None:
        super().__init__("jobs", _job)


def _job(said: Mapping[str, Any]) -> QueuedJob:
    shards, gpu_type = _asked(said)
    array = number_of(said.get("array_job_id"))
    words = words_of(said["job_state"])
    state = COMPLETING if COMPLETING in words else words[0]  # later releases say first how it ended
    limit_s = 60 * number_of(said.get("time_limit"))
    if limit_s >= YEAR_S:
        limit_s = 0
    job_id = number_of(said["job_id"])
    if job_id <= 0:
        raise ValueError(f"{job_id} is no number of a job")
    nodes, pending = said.get("nodes"), state == "PENDING"
    wishes = [text_of(said.get(name)) if pending else "" for name in WISHES]
    if sum(map(len, wishes)) > WISHES_MOST:
        raise TooLong(str(job_id))
    required, excluded, features = wishes
    return QueuedJob(
        job_id=job_id,
        array_id=array,
        task=_task(said.get("array_task_id")) if array else None,
        tasks=text_of(said.get("array_task_string")).partition("%")[0] if array else "",
        tasks_at_once=number_of(said.get("array_max_tasks")),
        user_id=number_of(said["user_id"]),
        state=state,
        reason=text_of(said.get("state_reason")),
        priority=number_of(said["priority"]),
        begin=number_of(said.get("eligible_time")),
        partitions=list_of(said.get("partition")),
        shards=shards,
        gpu_type=gpu_type,
        required=required,
        excluded=excluded,
        features=features,
        reservation=text_of(said.get("resv_name")),
        deadline=number_of(said.get("deadline")),
        is_het=number_of(said.get("het_job_id")) > 0,
        cpus=number_of(said.get("cpus")),
        memory=_memory(said),
        nodes=text_of(nodes.get("list") if isinstance(nodes, Mapping) else nodes),
        given=_given(said.get("gres_detail")),
        comment=text_of(said.get("comment")),
        admin_comment=text_of(said.get("admin_comment")),
        limit_s=limit_s,
        # Of a job without a limit Slurm says that it ends in a year.
        end=number_of(said.get("end_time")) if limit_s and state not in NO_END else 0,
        name=text_of(said.get("name"))[:NAME_MOST],
        qos=text_of(said.get("qos"))[:NAME_MOST],
        account=text_of(said.get("account"))[:NAME_MOST],
    )


def _task(value: Any) -> int | None:
    """Later releases write a number that is not set."""
    unset = value is None or (isinstance(value, Mapping) and not value.get("set"))
    return None if unset else number_of(value)


def _memory(said: Mapping[str, Any]) -> int:
    return number_of(said.get("memory_per_node")) or (
        number_of(said.get("memory_per_cpu")) * max(1, number_of(said.get("cpus")))
    )


def _asked(said: Mapping[str, Any]) -> tuple[int, str]:
    """How many shards the job asks for, and of which type."""
    for field in ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket"):
        for entry in text_of(said.get(field)).split(","):
            found = ASKED.fullmatch(entry)
            if found and found[1] == "shard":
                return gres_text.count(found[3] or "1"), found[2] or ""
    return 0, ""


def _given(details: Any) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for text in details if isinstance(details, list) else []:
        for name, _, count, where in GIVEN.findall(str(text)):
            found |= _places(name == "gpu", int(count), where)
    return found


def _places(whole: bool, count: int, where: str) -> dict[int, int | None]:
    """By GPU, what stands in the brackets: IDX:0-1, or 0/4,2/4."""
    if where.startswith("IDX:"):
        numbers = where.removeprefix("IDX:")
        indices = [int(n) for n in expand(f"[{numbers}]")] if numbers != "N/A" else []
        return {index: None if whole else max(1, count // len(indices)) for index in indices}
    parts = [int(n) for n in PART.findall(where)]
    return {index: None if whole else part for index, part in enumerate(parts) if part}
