"""Jobs and their usage from Slurm's accounting, as sacct prints them.

Not by its JSON: of 22.05 that heeds no --user, and where users have no associations it says not
whose a job is. What sacct prints as text it chooses and names alike in all releases. Between the
columns stands a word that nobody can know, since users write some of the text. Each row is one run
of a job. A run whose size has changed has further rows, which have no usage and are left out.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from leased.base import children
from leased.base.errors import NoAnswer, Refused
from leased.base.words import user_of
from leased.slurm import hostlists, usage_record
from leased.slurm.usage_record import Damaged, Run

PATIENCE_S = 600.0
OUTPUT_MOST = 1 << 30  # bytes; a row has some 1,000
COLUMNS = (
    *("JobIDRaw", "JobID", "User", "UID", "Account", "NodeList", "Start", "End", "AllocTRES"),
    *("State", "SystemComment"),
)
STATE = COLUMNS.index("State")
RESIZED = "RESIZING"  # the state of a row that another row of the same run follows
WRONG = (
    *("Invalid time specification", "requested is after end time", "Bad job", "Invalid user"),
    "invalid",
)
SILENT = ("Problem talking to the database", "Connection refused", "persist", "not responding")
# Without a slurm.conf: from 23.11 on, and before.
NO_CONF = ("establish a configuration source", "process configuration file")
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
            "accounts": self.account,
            "starttime": self.since,
            "endtime": self.until,
        }
        return self._whose() + [f"--{name}={text}" for name, text in named.items() if text]

    @property
    def users(self) -> list[str]:
        return self.user.split(",") if self.user else []

    def _whose(self) -> list[str]:
        """By numbers, since sacct of 25.11 and later knows no user of the name nobody. It refuses a
        user that this host does not know, such as one who has left: then it gives everybody's
        rows, of which the others' are left out."""
        uids = [_uid(user) for user in self.users]
        if any(uid is None or user_of(uid) is None for uid in uids):
            return ["--allusers"]
        return [f"--user={','.join(map(str, uids))}"] if uids else []


@dataclass(frozen=True)
class Row:
    """One run of a job. label: its name for Slurm (7, 7_1, 7+1). user: the uid as text where it has
    no name here. shares: it had a shard, as far as Slurm's accounting says. fault: why its record
    cannot be read; "": it can, or there is none. start, end: seconds since 1970, 0: not yet."""

    job_id: int
    label: str
    user: str
    uid: int
    account: str
    node: str
    start: int
    end: int
    shares: bool
    usage: Run | None = field(default=None, compare=False)
    fault: str = ""


def ask(asked: Asked, env: Mapping[str, str] | None = None) -> list[Row]:
    """Every run of these jobs that Slurm's accounting shows to this user; of this user's own where
    neither jobs nor users are chosen, unless root asks.

    WrongUsage: sacct does not understand it, or nobody knows a user of that name. NoAnswer:
    slurmdbd is down. Refused: there is no sacct, or no accounting, or it says what cannot be.
    """
    try:
        done, between = run_sacct(COLUMNS, asked.options(), env, PATIENCE_S, OUTPUT_MOST)
    except OSError as fault:
        raise Refused(
            f"sacct cannot be run ({fault.strerror})", "run this where Slurm's commands are"
        ) from None
    if done.fault:
        raise NoAnswer(f"sacct was ended: {done.fault}", "ask for fewer jobs, or see slurmdbd")
    if done.status:
        raise _fault(done.err)
    rows = [row for row in parse(done.out, between) if _chosen(row, asked)]
    for user in asked.users:
        if _uid(user) is None and all(row.user != user for row in rows):
            raise WrongUsage(
                f"this host knows no user '{shown_words(user)}', and none of these jobs is theirs",
                "name a user whom it does not know by number (UID)",
            )
    return rows


def run_sacct(
    columns: Sequence[str],
    options: Iterable[str],
    env: Mapping[str, str] | None,
    patience_s: float,
    most: int,
) -> tuple[children.Done, str]:
    """Ask for these columns of the jobs' rows; and the text that ends each column of the answer,
    which no user knows. OSError: there is no sacct."""
    between = f"|{secrets.token_hex(8)}|"
    command = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable"]
    command += [f"--delimiter={between}", f"--format={','.join(columns)}", *options]
    given = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"} | dict(env or {})
    return children.run_and_wait(*command, env=given, patience_s=patience_s, most=most), between


def _fault(err: str) -> Refused:
    """What sacct says when it fails."""
    lines = [line.removeprefix("sacct: ").strip() for line in err.splitlines() if line.strip()]
    last = re.sub("^(fatal|error): ", "", lines[-1]) if lines else "it says nothing"
    words = shown_words(last)
    if any(text in err for text in SILENT):
        return NoAnswer("slurmdbd does not answer", "see systemctl status slurmdbd on its host")
    if any(text in err for text in NO_CONF):
        return Refused(
            "sacct finds no slurm.conf that it can use",
            "run this on a host of the cluster, or set SLURM_CONF",
        )
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


def parse(text: str, between: str) -> list[Row]:
    """The rows of sacct's answer, in which `between` ends each column. Refused: it cannot be
    read."""
    try:
        return list(_rows(text, between))
    except ValueError as fault:
        raise Refused(
            f"sacct's answer cannot be read ({fault!r:.100})",
            "see whether sacct --parsable works here (Slurm 22.05 or later)",
        ) from None


def _rows(text: str, between: str) -> Iterator[Row]:
    *cells, last = text.split(between)
    if last.strip() or len(cells) % len(COLUMNS):
        raise ValueError(f"{len(cells)} columns, then {shown_words(last)[:40]}")
    for n in range(0, len(cells), len(COLUMNS)):
        each = cells[n : n + len(COLUMNS)]
        row = _row(each)
        if each[STATE] != RESIZED or row.usage is not None:
            yield row


def _row(cells: Sequence[str]) -> Row:
    job_id, label, user, uid, account, nodes, start, end, tres, _, comment = cells
    run, fault = None, ""
    try:
        run = usage_record.read(comment)
    except Damaged as problem:
        fault = str(problem)
    return Row(
        int(job_id),
        shown_words(label),
        shown_words(user) or str(int(uid)),
        int(uid),
        shown_words(account) or "(none)",
        _node(nodes),
        _time(start),
        _time(end),
        any(re.match("gres/shard[:=]", each) for each in tres.split(",")),
        run,
        fault,
    )


def _time(text: str) -> int:
    """Seconds since 1970; 0: Unknown or None, as releases write it."""
    return int(text) if text.isdecimal() else 0


def _node(listed: str) -> str:
    """Of a job on several nodes, as Slurm writes them."""
    try:
        names = hostlists.expand(listed)
    except ValueError:
        return listed
    return names[0] if len(names) == 1 else listed


def _chosen(row: Row, asked: Asked) -> bool:
    """Whether the row was asked for, whatever sacct has made of that."""
    if asked.account and row.account.lower() not in asked.account.lower().split(","):
        return False
    if asked.users:
        return row.user in asked.users or row.uid in map(_uid, asked.users)
    return bool(asked.jobs) or os.geteuid() in (0, row.uid)


def _uid(user: str) -> int | None:
    """Of a user's name or number; None: this host knows no such user."""
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
