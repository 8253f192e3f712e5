"""The options of --gpu-share, read by the one grammar (spank/grammar.c)."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from _gpulease import ffi, lib

from leased.base.errors import Refused
from leased.base.requests import shown

SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{0,12})?)%")
LOCKS = {1: "on", 2: "off", 3: "auto"}
MEMORY = {1: "managed", 2: "swap", 3: "auto"}


@dataclass(frozen=True)
class Options:
    """What a job or a site asked for; None: not said. Times in ns, sizes in bytes."""

    quantum_ns: int | None = None
    lock: str | None = None
    mem_fraction: float | None = None
    mem_bytes: int | None = None
    oversub: bool | None = None
    memory: str | None = None

    def over(self, base: Options) -> Options:
        """These options, with what they leave out taken from `base`."""
        mem = self.mem_fraction is not None or self.mem_bytes is not None
        source = self if mem else base
        return Options(
            quantum_ns=base.quantum_ns if self.quantum_ns is None else self.quantum_ns,
            lock=self.lock or base.lock,
            mem_fraction=source.mem_fraction,
            mem_bytes=source.mem_bytes,
            oversub=base.oversub if self.oversub is None else self.oversub,
            memory=self.memory or base.memory,
        )

    def text(self) -> str:
        """As the grammar writes what was said. ValueError: it is too long."""
        asked = ffi.new("struct gl_options *")
        given = {
            lib.GL_KEY_TQ: self.quantum_ns is not None,
            lib.GL_KEY_LOCK: self.lock is not None,
            lib.GL_KEY_MEM: self.mem_fraction is not None or self.mem_bytes is not None,
            lib.GL_KEY_OVERSUB: self.oversub is not None,
            lib.GL_KEY_MEMORY: self.memory is not None,
        }
        asked.given = sum(key for key, said in given.items() if said)
        asked.quantum_ns = self.quantum_ns or 0
        asked.lock = {word: number for number, word in LOCKS.items()}.get(self.lock or "", 0)
        asked.mem_fraction = self.mem_fraction or 0.0
        asked.mem_bytes = self.mem_bytes or 0
        asked.oversub = bool(self.oversub)
        asked.memory = {word: number for number, word in MEMORY.items()}.get(self.memory or "", 0)
        made = ffi.new("char[]", lib.GL_OPTIONS_TEXT)
        if lib.gl_options_format(asked, made, lib.GL_OPTIONS_TEXT) < 0:
            raise ValueError(f"{self} has no text of {lib.GL_OPTIONS_TEXT} characters")
        return str(ffi.string(made).decode())


# What counts where the job and the site leave a key out.
PLAIN = Options(30_000_000_000, "auto", mem_fraction=1.0, oversub=False, memory="managed")


@dataclass(frozen=True)
class Resolved:
    """What a job was given: each key has a value, and keeps it as long as the job runs.

    Of the two kinds of mem one is None. memory: managed or swap, once the job is admitted.
    """

    quantum_ns: int
    lock: str
    mem_fraction: float | None
    mem_bytes: int | None
    oversub: bool
    memory: str

    @classmethod
    def of(cls, said: Options, defaults: Options) -> Resolved:
        """What the job said, then the site's defaults, then ours."""
        full = said.over(defaults).over(PLAIN)
        assert full.quantum_ns is not None
        return cls(
            *(full.quantum_ns, full.lock or "", full.mem_fraction, full.mem_bytes),
            *(bool(full.oversub), full.memory or ""),
        )

    @property
    def swaps(self) -> bool:
        return self.memory == "swap"

    def text(self) -> str:
        """As it is stored: in the grammar of --gpu-share, every key."""
        return Options(**asdict(self)).text()

    def visible_of(self, total: int) -> int:
        """Bytes that the job sees of a device of so many; never more, and never 0."""
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
    given = out.given
    return Options(
        quantum_ns=int(out.quantum_ns) if given & lib.GL_KEY_TQ else None,
        lock=LOCKS[out.lock] if given & lib.GL_KEY_LOCK else None,
        mem_fraction=float(out.mem_fraction) or None,
        mem_bytes=int(out.mem_bytes) or None,
        oversub=bool(out.oversub) if given & lib.GL_KEY_OVERSUB else None,
        memory=MEMORY[out.memory] if given & lib.GL_KEY_MEMORY else None,
    )


def _one(key: str, text: str) -> Options:
    """One value of a key, and nothing behind it."""
    if not text.isprintable() or set(text) & set(",:"):
        raise Refused(f"gpu-share: {key}:{shown(text)} is no single value", "write one value")
    return parse(f"{key}:{text}")


def understood(text: str) -> tuple[Options, list[str]]:
    """What this release knows of a text that another may have written, and the parts that it does
    not know."""
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
            raise Refused(f"{shown(text)} is no share of the device", "write 0% to 100%, or a size")
        return int(whole * fraction)
    options = _one("mem", text)
    return options.mem_bytes or int(whole * (options.mem_fraction or 0))
