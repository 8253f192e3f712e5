"""The options of --gpu-share, read by the one grammar (spank/grammar.c)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from _gpulease import ffi, lib

from leased.base.errors import Refused
from leased.base.requests import shown

SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{0,12})?)%")
# Characters that are read of a text: one more than the grammar takes, which says that it is too
# long.
LONGEST_TEXT = lib.GL_OPTIONS_TEXT
ONLINE, OFFLINE, NONE = "online", "offline", "none"  # classes
TIME, MPS = "time", "mps"  # spaces


def rows() -> Iterator[Any]:
    """The rows of spank/keys.def, as struct gl_key_row."""
    return itertools.takewhile(bool, map(lib.gl_option_key_at, itertools.count()))


@dataclass(frozen=True)
class Key:
    """A key of the grammar and its fields in Options. Its name is in spank/keys.def.

    read: the fields' values from the grammar's struct; None: not said. write: the reverse, of
    options in which the key is said.
    """

    fields: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    write: Callable[[Options, Any], None]

    def said(self, options: Options) -> bool:
        return any(getattr(options, name) is not None for name in self.fields)

    def values(self, options: Options) -> dict[str, Any]:
        return {name: getattr(options, name) for name in self.fields}


def _part(value: float) -> float:
    """In millionths, as it is stored."""
    return round(float(value), 6)


def _plain(name: str, read: Callable[[Any], Any]) -> Key:
    """A key with one field, which has the same name in the grammar's struct."""
    return Key(
        (name,),
        lambda out: (read(getattr(out, name)),),
        lambda options, out: setattr(out, name, getattr(options, name)),
    )


def _word(name: str, field: str = "") -> Key:
    """A key whose value is one of a few words, by numbers from 1 on."""
    at = field or name
    (row,) = [row for row in rows() if ffi.string(row.name).decode() == name]
    words = ffi.string(row.words).decode().split("|")
    return Key(
        (at,),
        lambda out: (words[getattr(out, at) - 1],),
        lambda options, out: setattr(out, at, words.index(getattr(options, at)) + 1),
    )


def _label(name: str) -> Key:
    """A key whose value is a label; "": none."""
    return Key(
        (name,),
        lambda out: (ffi.string(getattr(out, name)).decode(),),
        lambda options, out: setattr(out, name, getattr(options, name).encode()),
    )


def _write_mem(options: Options, out: Any) -> None:
    out.mem_fraction, out.mem_bytes = options.mem_fraction or 0.0, options.mem_bytes or 0


# By name, in the grammar's order: see spank/keys.def.
KEYS = {
    "tq": _plain("quantum_ns", int),
    "lock": _word("lock"),
    "mem": Key(
        ("mem_fraction", "mem_bytes"),
        lambda out: (float(out.mem_fraction) or None, int(out.mem_bytes) or None),
        _write_mem,
    ),
    "oversub": _plain("oversub", bool),
    "memory": _word("memory"),
    "request": _plain("request", _part),
    "limit": _plain("limit", _part),
    "affinity": _label("affinity"),
    "anti-affinity": _label("anti_affinity"),
    "exclusion": _label("exclusion"),
    "class": _word("class", "job_class"),
    "space": _word("space"),
    "sm": _plain("sm", _part),
    "chain": _label("chain"),
}


def bit(name: str) -> int:
    """The key's bit in gl_options.given."""
    return int(getattr(lib, f"GL_KEY_{name.upper().replace('-', '_')}"))


@dataclass(frozen=True)
class Options:
    """What a job or a site asked for; None: not said. Times in ns, sizes in bytes."""

    quantum_ns: int | None = None
    lock: str | None = None
    mem_fraction: float | None = None
    mem_bytes: int | None = None
    oversub: bool | None = None
    memory: str | None = None
    request: float | None = None
    limit: float | None = None
    affinity: str | None = None
    anti_affinity: str | None = None
    exclusion: str | None = None
    job_class: str | None = None
    space: str | None = None
    sm: float | None = None
    chain: str | None = None

    def over(self, base: Options) -> Options:
        """These options, with the keys that they leave out taken from `base`."""
        merged: dict[str, Any] = {}
        for key in KEYS.values():
            merged |= key.values(self if key.said(self) else base)
        return Options(**merged)

    def text(self) -> str:
        """The options in the grammar of --gpu-share. ValueError: the text is too long."""
        asked = ffi.new("struct gl_options *")
        for name, key in KEYS.items():
            if key.said(self):
                asked.given |= bit(name)
                key.write(self, asked)
        made = ffi.new("char[]", lib.GL_OPTIONS_TEXT)
        if lib.gl_options_format(asked, made, lib.GL_OPTIONS_TEXT) < 0:
            raise ValueError(f"{self} has no text of {lib.GL_OPTIONS_TEXT} characters")
        return str(ffi.string(made).decode())


# What counts where the job and the site leave a key out. For memory it is less than their own
# auto: without memory of the node for copies it is managed (leased/admin/registration.py).
PLAIN = Options(
    *(30_000_000_000, "auto", 1.0, None),
    oversub=False,
    memory="auto",
    request=0.0,
    limit=1.0,
    affinity="",
    anti_affinity="",
    exclusion="",
    job_class=NONE,
    space=TIME,
    sm=1.0,
    chain="",
)
SHARE_QUANTUM_NS = 100_000_000  # of a job with a share that names none


@dataclass(frozen=True)
class Resolved:
    """What a job was given: each key has a value, which stays the same while the job runs.

    Of the two kinds of mem one is None. memory: managed or swap, once the job is admitted.
    affinity, anti_affinity, exclusion: labels; "": none. job_class: online, offline or none. space:
    how its GPUs are shared, once the job is admitted. sm: the part of their multiprocessors.
    chain: the name of its chain; "": none but the job itself.
    """

    quantum_ns: int
    lock: str
    mem_fraction: float | None
    mem_bytes: int | None
    oversub: bool
    memory: str
    request: float
    limit: float
    affinity: str
    anti_affinity: str
    exclusion: str
    job_class: str
    space: str
    sm: float
    chain: str

    @classmethod
    def of(cls, said: Options, defaults: Options) -> Resolved:
        """The job's own values, then the site's defaults, then ours. A job with a share has short
        turns unless it wants others, and heeds the lock."""
        given = cls(**asdict(said.over(defaults).over(PLAIN)))
        if not given.has_share:
            return given
        if said.quantum_ns is None:
            given = replace(given, quantum_ns=min(given.quantum_ns, SHARE_QUANTUM_NS))
        return replace(given, lock="auto") if given.lock == "off" and said.lock is None else given

    @property
    def has_share(self) -> bool:
        return self.request > 0 or self.limit < 1

    @property
    def swaps(self) -> bool:
        return self.memory == "swap"

    def text(self) -> str:
        """The text that is stored: every key, in the grammar of --gpu-share."""
        return Options(**asdict(self)).text()

    def visible_of(self, total: int) -> int:
        """How many of the device's bytes the job sees: never more, and never 0."""
        if self.mem_bytes is not None:
            return min(total, self.mem_bytes)
        return max(1, int(total * (self.mem_fraction or 1.0)))


def parse(text: str) -> Options:
    """Parse `KEY:VALUE[,KEY:VALUE...]`; the empty text is no options. Refused: what is wrong."""
    if not text:
        return Options()
    out = ffi.new("struct gl_options *")
    error = ffi.new("char[]", lib.GL_OPTIONS_ERROR)
    given_text = text.encode(errors="replace")
    if "\0" in text or lib.gl_options_parse(given_text, out, error, lib.GL_OPTIONS_ERROR) < 0:
        reason = ffi.string(error).decode(errors="replace") or "the value has a NUL byte"
        raise Refused(f"gpu-share: {reason}")
    said: dict[str, Any] = {}
    for name, key in KEYS.items():
        if out.given & bit(name):
            said |= dict(zip(key.fields, key.read(out)))
    return Options(**said)


def _one(key: str, text: str) -> Options:
    """One value of a key, and nothing behind it. Refused names the value, not the key: this is no
    option of a job's."""
    if not text or not text.isprintable() or set(text) & set(",:"):
        raise Refused(f"{shown(text)} is not a single value", "write one value")
    try:
        return parse(f"{key}:{text}")
    except Refused as fault:
        raise Refused(str(fault).removeprefix(f"gpu-share: {key}:"), fault.hint) from None


def understood(text: str) -> tuple[Options, list[str]]:
    """The options in a text that another release may have written, and the parts that this release
    does not know."""
    found, unknown = Options(), []
    for part in filter(None, text.split(",")):
        try:
            found = parse(part).over(found)
        except Refused:
            unknown.append(part)
    return found, unknown


def parse_time(text: str) -> int:
    """A time as the key tq takes it, in ns."""
    quantum = _one("tq", text).quantum_ns
    assert quantum is not None
    return quantum


def parse_amount(text: str, whole: int) -> int:
    """An amount as the key mem takes it, or N%: bytes of `whole`. Refused: bad text."""
    if text.endswith("%"):
        # No sign, no exponent, no digits but ours.
        found = SHARE.fullmatch(text)
        fraction = float(found[1]) / 100 if found else -1.0
        if not 0 <= fraction <= 1:
            raise Refused(
                f"{shown(text)} is not a share of the device", "write 0% to 100% or a size"
            )
        return int(whole * fraction)
    options = _one("mem", text)
    return options.mem_bytes or int(whole * (options.mem_fraction or 0))
