"""What the errors that the driver tells of (Xids) say of a GPU.

After some the GPU has to be reset, or worse. Some are a program's own fault, and nobody else's: it
has a bad address, or was ended. All others are signs of trouble if there are several: the driver
had to take channels away, or memory was bad and could be replaced.
"""

from __future__ import annotations

# By NVIDIA's list: the driver or the GPU does not go on before a reset.
BROKEN = {
    46: "it has stopped working",
    48: "its memory had an error that was not corrected",
    62: "its own controller has stopped",
    64: "bad rows of its memory could not be replaced",
    79: "it has fallen off the bus",
    95: "its memory had an error that may concern all programs",
    110: "it had a security fault",
    119: "its own processor does not answer",
    120: "its own processor has failed",
    136: "a link to another GPU has failed",
    140: "its memory had an error that was not corrected",
    143: "it could not be initialized",
}
OWN = frozenset({13, 31, 43, 45})


def broken(xid: int) -> str | None:
    """Why the GPU cannot be used before a reset, as a phrase; None: it can."""
    words = BROKEN.get(xid)
    return words and f"{words} (Xid {xid})"


def counts(xid: int) -> bool:
    """Whether it is a sign of trouble: no program's own fault."""
    return xid not in OWN and xid not in BROKEN


def kind(xid: int) -> str:
    """What it is taken for, in a few words."""
    if xid in OWN:
        return "a program's own fault"
    return BROKEN.get(xid, "a sign of trouble")
