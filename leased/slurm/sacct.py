"""Jobs and their usage from Slurm's accounting, by the JSON that sacct prints.

Releases of Slurm differ: a state is a word or a list of words, and numbers are plain
or objects with "set". Each row is one run of a job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leased.base import children
from leased.base.errors import NoAnswer, Refused
from leased.slurm import hostlists, usage_record
from leased.slurm.usage_record import Damaged, Run

PATIENCE_S = 600.0
OUTPUT_MOST = 1 << 30  # bytes; Slurm says some 5,000 of a job
NOTHING = "Nothing found"  # what sacct calls no fault but an error
WRONG = ("Invalid time specification", "Bad job/step specified", "Invalid user", "invalid")
SILENT = ("Problem talking to the database", "Connection refused", "persist", "not responding")
ABSENT = "accounting storage is disabled"


class WrongUsage(Refused):
    """sacct does not understand the selection of jobs."""


@dataclass(frozen=True)
class Asked:
    """A selection of jobs as sacct takes it; "": left out."""

    jobs: str = ""
    user: str = ""
    account: str = ""
    since: str = ""
    until: str = ""

    def options(self) -> list[str]:
        named = {
            "jobs": self.jobs,
            "user": self.user,
            "accounts": self.account,
            "starttime": self.since,
            "endtime": self.until,
        }
        return [f"--{name}={text}" for name, text in named.items() if text]


@dataclass(frozen=True)
class Row:
    """One run of a job. label: as sacct writes its number (7, 7_1, 7+1). shares: it had a shard, as
    far as Slurm's accounting says. fault: why its record cannot be read; "": it can, or there is
    none. start, end: seconds since 1970, 0: not yet."""

    job_id: int
    label: str
    user: str
    account: str
    node: str
    state: str
    start: int
    end: int
    shares: bool
    usage: Run | None = field(default=None, compare=False)
    fault: str = ""


def ask(asked: Asked, env: Mapping[str, str] | None = None) -> list[Row]:
    """Every run of these jobs that Slurm's accounting shows to this user.

    WrongUsage: sacct does not understand it. NoAnswer: slurmdbd is down. Refused: there is no
    sacct, or no accounting, or it says what cannot be.
    """
    command = ["sacct", "--json", "--duplicates", *asked.options()]
    given = {"LC_ALL": "C.UTF-8"} | dict(env or {})
    try:
        done = children.run_and_wait(*command, env=given, patience_s=PATIENCE_S, most=OUTPUT_MOST)
    except OSError as fault:
        raise Refused(
            f"sacct cannot be run ({fault.strerror})", "run this where Slurm's commands are"
        ) from None
    if done.fault:
        raise NoAnswer(f"sacct was ended: {done.fault}", "ask for fewer jobs, or see slurmdbd")
    if done.status:
        raise _fault(done.err)
    return parse(done.out)


def _fault(err: str) -> Refused:
    """What sacct says when it fails."""
    lines = [line.removeprefix("sacct: ").strip() for line in err.splitlines() if line.strip()]
    last = re.sub("^(fatal|error): ", "", lines[-1]) if lines else "it says nothing"
    words = shown_words(last)
    if any(text in err for text in SILENT):
        return NoAnswer("slurmdbd does not answer", "see systemctl status slurmdbd on its host")
    if ABSENT in err:
        return Refused(
            "this cluster keeps no accounting",
            "set AccountingStorageType=accounting_storage/slurmdbd in slurm.conf",
        )
    if any(text in err for text in WRONG):
        return WrongUsage(words, "see man sacct")
    return Refused(f"sacct failed: {words}", "run sacct by hand to find out why")


def shown_words(text: str) -> str:
    """One line without odd characters."""
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def parse(text: str) -> list[Row]:
    """The rows of sacct's JSON. Refused: it cannot be read."""
    try:
        said = json.loads(text)
        errors, jobs = said.get("errors") or [], said["jobs"]
        faults = [e for e in errors if NOTHING not in json.dumps(e)]
        rows = [_row(job) for job in jobs]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise Refused(
            f"sacct's answer cannot be read ({fault!r:.100})",
            "see whether sacct --json works here (Slurm 22.05 or later, with its JSON plugin)",
        ) from None
    if faults and not jobs:
        words = faults[0].get("description") or faults[0].get("error") or "an error"
        raise Refused(f"slurmdbd refuses: {shown_words(str(words))}", "see who may see these jobs")
    return rows


def _row(job: Mapping[str, Any]) -> Row:
    times, comments = job["time"], job.get("comment") or {}
    run, fault = None, ""
    try:
        run = usage_record.read(comments.get("system") or "")
    except Damaged as problem:
        fault = str(problem)
    allocated = (job.get("tres") or {}).get("allocated") or []
    return Row(
        int(job["job_id"]),
        _label(job),
        str(job.get("user") or (job.get("association") or {}).get("user") or "?"),
        str(job.get("account") or "?"),
        _node(str(job.get("nodes") or "")),
        _state(job.get("state")),
        _number(times["start"]) or 0,
        _number(times["end"]) or 0,
        any((t.get("type"), t.get("name")) == ("gres", "shard") for t in allocated),
        run,
        fault,
    )


def _node(listed: str) -> str:
    """A sharing job has one."""
    try:
        names = hostlists.expand(listed)
    except ValueError:
        return listed
    return names[0] if len(names) == 1 else listed


def _label(job: Mapping[str, Any]) -> str:
    """As sacct's JobID."""
    array, het = job.get("array") or {}, job.get("het") or {}
    task, offset = _number(array.get("task_id")), _number(het.get("job_offset"))
    if _number(array.get("job_id")) and task is not None:
        return f"{_number(array['job_id'])}_{task}"
    if _number(het.get("job_id")) and offset is not None:
        return f"{_number(het['job_id'])}+{offset}"
    return str(job["job_id"])


def _number(value: Any) -> int | None:
    """A number as any release of Slurm writes it; None: it is not set."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _state(value: Any) -> str:
    current = value.get("current") if isinstance(value, Mapping) else value
    words: Sequence[Any] = current if isinstance(current, list) else [current]
    return shown_words(" ".join(map(str, words)))
