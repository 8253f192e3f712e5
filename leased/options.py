"""The options of --gpu-share, read by the one grammar (spank/grammar.c)."""

from __future__ import annotations

from dataclasses import dataclass

from _gpulease import ffi, lib

from leased.errors import Refused

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


def parse(text: str) -> Options:
    """Parse `KEY:VALUE[,KEY:VALUE...]`; the empty text is no options. Refused: what is wrong."""
    if not text:
        return Options()
    out = ffi.new("struct gl_options *")
    error = ffi.new("char[]", lib.GL_OPTIONS_ERROR)
    if "\0" in text or lib.gl_options_parse(text.encode(), out, error, lib.GL_OPTIONS_ERROR) < 0:
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


def parse_time(text: str) -> int:
    """A time as the key tq takes it, in ns."""
    quantum = parse(f"tq:{text}").quantum_ns
    assert quantum is not None
    return quantum


def parse_amount(text: str, whole: int) -> int:
    """An amount as the key mem takes it, or N%: bytes of `whole`. Refused: bad text."""
    if text.endswith("%"):
        try:
            fraction = float(text[:-1]) / 100
        except ValueError:
            fraction = -1.0
        if not 0 <= fraction <= 1:
            raise Refused(f"'{text}' is no share of the device", "write 0% to 100%, or a size")
        return int(whole * fraction)
    options = parse(f"mem:{text}")
    return options.mem_bytes or int(whole * (options.mem_fraction or 0))
