"""Sets of jobs as gpu-leased.toml names them: by partition, QOS, account or user."""

from __future__ import annotations

from typing import Any, NamedTuple

from leased.base.errors import Refused
from leased.base.requests import shown
from leased.base.words import user_of

ALL = "all"
KINDS = ("partition", "qos", "account", "user")


class Owner(NamedTuple):
    """Whose a job is, as Slurm says it; "": not known."""

    uid: int
    partition: str = ""
    qos: str = ""
    account: str = ""


class JobSet(NamedTuple):
    """words: KIND:NAME, or all."""

    words: tuple[str, ...] = ()

    def has(self, job: Owner) -> bool:
        return any(word == ALL or _is(job, *word.split(":", 1)) for word in self.words)


def read(words: list[Any], where: str) -> JobSet:
    """Refused: a word is no KIND:NAME."""
    for word in words:
        kind, _, name = word.partition(":") if isinstance(word, str) else ("", "", "")
        if word != ALL and (kind not in KINDS or not name):
            why = f"{where}: {shown(word)} names no jobs"
            raise Refused(why, f"write {', '.join(f'{one}:NAME' for one in KINDS)} or {ALL}")
    return JobSet(tuple(words))


def _is(job: Owner, kind: str, name: str) -> bool:
    if kind == "user":
        return name == str(job.uid) or name == user_of(job.uid)
    return bool(name == getattr(job, kind))
