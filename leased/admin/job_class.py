"""The class of a job that starts: what it says itself, what the site says of jobs like it.

online   a service: it goes first on its GPUs, and offline jobs make way for it at once
offline  takes what online jobs leave
none     neither
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from leased.base.errors import Refused
from leased.config.config import ClassesConfig
from leased.config.job_sets import JobSet, Owner
from leased.config.options import NONE, OFFLINE, ONLINE, Options, Resolved


class Classes(Protocol):
    """Which jobs have a class without saying so."""

    @property
    def online(self) -> JobSet: ...

    @property
    def offline(self) -> JobSet: ...


def resolve(given: Resolved, said: Options, job: Owner, site: ClassesConfig) -> Resolved:
    """The options with the job's class. said: what the job itself asked for. Refused: it may not
    have that class."""
    chosen = class_of(given, said, job, site)
    if said.job_class == ONLINE and not (site.online.has(job) or site.may_online.has(job)):
        raise Refused(
            "class:online is not allowed for this job on this site",
            f"leave it out, or submit it where it is ({_where(site)})",
        )
    if chosen != NONE and given.has_share:
        raise Refused(
            f"a job with class:{chosen}{_whence(said)} has no share of the GPU's time",
            "leave request and limit out, or say class:none",
        )
    if chosen != NONE and given.lock == "off":
        raise Refused(
            f"a job with class:{chosen}{_whence(said)} heeds the lock where memory does not fit",
            "use lock:auto, or say class:none",
        )
    return replace(given, job_class=chosen)


def class_of(given: Resolved, said: Options, job: Owner, site: Classes) -> str:
    """What the job itself says, else what the site gives to jobs like it, else to all jobs."""
    if said.job_class:
        return said.job_class
    if site.online.has(job):
        return ONLINE
    return OFFLINE if site.offline.has(job) else given.job_class


def _whence(said: Options) -> str:
    return "" if said.job_class else ", which the site gives to jobs like it,"


def _where(site: ClassesConfig) -> str:
    return ", ".join((*site.online.words, *site.may_online.words)) or "nowhere yet: ask the site"
