"""What a node allows to jobs, and what it gives to those that ask for nothing, as a text: its
daemon writes it into the node's Comment in Slurm, and gpu-lease-placer reads it there.

    [gpu-leased VERSION TIME KEY=VALUE KEY=VALUE ...]

VERSION: of this form. TIME: when it was written, seconds since 1970. Keys that are not known are
ignored, so a later release may add some. Only administrators of Slurm and root can write the
Comment of a node. What they wrote there beside this text stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from leased.admin.user_limits import UserLimits
from leased.base.errors import Refused
from leased.config import job_sets, options
from leased.config.job_sets import JobSet
from leased.config.options import Options
from leased.placement.api import TOGETHER

VERSION = 1
VALID_S = 24 * 3600  # a text that is older is not believed: the node may have an older release now
MARK = re.compile(r" ?\[gpu-leased [0-9][^\[\]]*\]")
WHOLE = re.compile(
    r"\[gpu-leased ([0-9]{1,9}) ([0-9]{1,11})((?: [a-z_]{1,32}=[!-Z\\^-~]{1,511})+)\]"
)
MODES = "space"  # a release before it has told of none
CLASSES = ("online", "offline")  # nor of these, the jobs that have a class without saying so
MPS_TOGETHER = "mps_together"  # nor of this
LONGEST = 511  # characters of a value
NOBODY = JobSet()
WORD = re.compile(r"[!-+\--Z\\^-~]+")  # in a list of them
WORDS = {"yes": True, "no": False}
SHOWN = 40  # characters of a value that a message repeats


class Unreadable(ValueError):
    """Why a text is not believed, in words."""


@dataclass(frozen=True)
class NodeRules:
    """limits: what users may choose. defaults: options of jobs that do not say them; every key has
    a value. modes: of its GPUs (space); empty: not known. online, offline: jobs that have that
    class if they do not say one. together: of GPUs that are shared by MPS, by Slurm's index, whose
    jobs may be there at once."""

    limits: UserLimits
    defaults: Options
    modes: frozenset[str] = frozenset()
    online: JobSet = NOBODY
    offline: JobSet = NOBODY
    together: tuple[tuple[int, str], ...] = ()


def without(comment: str) -> str:
    """Only what others wrote."""
    return MARK.sub("", comment)


def part(comment: str) -> str:
    """Only what stands there of ours; "": nothing."""
    return "".join(MARK.findall(comment)).strip()


def written(comment: str, rules: NodeRules, now: int) -> str:
    """The comment with these rules in place of those before."""
    theirs = without(comment)
    modes = f" {MODES}={','.join(sorted(rules.modes))}" if rules.modes else ""
    classes = "".join(
        f" {name}={text}" for name in CLASSES if (text := _words(getattr(rules, name)))
    )
    together = ",".join(f"{index}:{word}" for index, word in rules.together)
    more = f"{modes}{classes}" + f" {MPS_TOGETHER}={together}" * bool(together)
    said = " ".join(f"{key}={kind.write(_value(rules, key))}" for key, kind in KEYS.items())
    return f"{theirs} " * bool(theirs) + f"[gpu-leased {VERSION} {now} {said}{more}]"


def read(comment: str, now: int) -> NodeRules | None:
    """The rules in a node's comment; None: there are none. Unreadable: they are not believed."""
    found = MARK.findall(comment)
    if not found:
        return None
    parts = WHOLE.fullmatch(found[-1].strip())
    if parts is None:
        raise Unreadable("it is damaged")
    if int(parts[1]) != VERSION:
        raise Unreadable(f"it is of version {int(parts[1])}, and only {VERSION} is known here")
    if abs(now - int(parts[2])) > VALID_S:
        raise Unreadable("its time is more than a day from now")
    return _rules(dict(part.split("=", 1) for part in parts[3].split()))


def _rules(said: Mapping[str, str]) -> NodeRules:
    values: dict[str, Any] = {}
    for key, kind in KEYS.items():
        if key not in said:
            raise Unreadable(f"it lacks {key}")
        try:
            values[kind.field] = kind.read(said[key])
        except (ValueError, KeyError, Refused):
            raise Unreadable(f"its {key} is {said[key]:.{SHOWN}}") from None
    defaults = values.pop("defaults")
    modes = frozenset(said.get(MODES, "").split(",")) & {options.TIME, options.MPS}
    online, offline = (_jobs(said.get(name, "")) for name in CLASSES)
    together = _by_index(said.get(MPS_TOGETHER, ""))
    return NodeRules(UserLimits(**values), defaults, modes, online, offline, together)


@dataclass(frozen=True)
class _Kind:
    """How a value is written and read. field: its name in UserLimits, or "defaults"."""

    field: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _words(jobs: JobSet) -> str:
    """As many of the words as there is room for; those that cannot stand there are left out."""
    found = ""
    for word in jobs.words:
        longer = f"{found},{word}" if found else word
        if WORD.fullmatch(word) and len(longer) <= LONGEST:
            found = longer
    return found


def _jobs(text: str) -> JobSet:
    try:
        return job_sets.read(text.split(",") if text else [], "the Comment")
    except Refused:
        raise Unreadable(f"a set of jobs in it is {text:.{SHOWN}}") from None


def _by_index(text: str) -> tuple[tuple[int, str], ...]:
    """What a later release may say of a GPU, and is not known here, is left out."""
    parts = (part.partition(":") for part in text.split(","))
    return tuple(
        (int(index), word)
        for index, _, word in parts
        if re.fullmatch("[0-9]{1,3}", index) and word in TOGETHER
    )


def _value(rules: NodeRules, key: str) -> Any:
    field = KEYS[key].field
    return rules.defaults if field == "defaults" else getattr(rules.limits, field)


def _time(ns: int) -> str:
    return Options(quantum_ns=ns).text().removeprefix("tq:")


def _switch(value: bool) -> str:
    return "yes" if value else "no"


def _part(text: str) -> float:
    found = float(text) if re.fullmatch(r"[0-9]\.?[0-9]{0,12}", text) else -1.0
    if not 0 <= found <= 1:
        raise ValueError(text)
    return found


def _options(text: str) -> Options:
    """Options as a later release may write them: keys that are not known are left out."""
    found, unknown = options.understood(text)
    if any(part.partition(":")[0] in options.KEYS for part in unknown):
        raise ValueError(text)
    return found.over(options.PLAIN)


KEYS = {
    "tq_min": _Kind("quantum_min_ns", _time, options.parse_time),
    "tq_max": _Kind("quantum_max_ns", _time, options.parse_time),
    "lock_off": _Kind("lock_off", _switch, WORDS.__getitem__),
    "oversub": _Kind("oversub", _switch, WORDS.__getitem__),
    "exclusion": _Kind("exclusion", _switch, WORDS.__getitem__),
    "request_max": _Kind("request_max", "{:.6f}".format, _part),
    "options": _Kind("defaults", Options.text, _options),
}
assert {kind.field for kind in KEYS.values()} == {f.name for f in fields(UserLimits)} | {"defaults"}
