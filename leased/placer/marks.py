"""What stands in a job's comments because of the placer, beside what others wrote there.

AdminComment: the mark that gpu_share.lua makes when the job is submitted, for the placer to read.

    [gpu-lease-placer BEGIN UNTIL OPTIONS]

BEGIN: when its user lets it begin, UNTIL: until when it has been put off, both seconds since 1970;
OPTIONS: as --gpu-share takes them. Comment: why a job waits, for its user. Both go away when the
job is let start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARK = re.compile(r" ?\[gpu-lease-placer (\d{1,11}) (\d{1,11}) ([\x21-\x5a\x5c\x5e-\x7e]{1,511})\]")
REASON = re.compile(r" ?\[gpu-lease-placer: [^\[\]]*\]")
LONGEST = 1023  # bytes of a comment that slurmctld takes
LONGEST_REASON = 400  # characters
SHORTEST_REASON = 60  # less would say nothing
UNREADABLE = "\ufffd"  # stands for bytes that are no text, which we could not write again


class Mark(NamedTuple):
    """begin, until: seconds since 1970."""

    begin: int
    until: int
    options: str


def mark_of(admin_comment: str) -> Mark | None:
    found = MARK.search(admin_comment)
    return Mark(int(found[1]), int(found[2]), found[3]) if found else None


def without_mark(admin_comment: str) -> str:
    """What others wrote."""
    return MARK.sub("", admin_comment)


def without_reason(comment: str) -> str:
    """What others wrote."""
    return REASON.sub("", comment)


def with_reason(comment: str, reason: str) -> str:
    """The comment with this reason, and no other one of ours; where it has no room, without."""
    theirs = without_reason(comment)
    if UNREADABLE in theirs:
        return comment
    plain = "".join(c if c.isprintable() and c.isascii() and c not in "[]" else "?" for c in reason)
    head = f"{theirs} " if theirs else ""
    frame = f"{head}[gpu-lease-placer: ]"
    room = min(LONGEST - len(frame.encode(errors="replace")), LONGEST_REASON)
    if room < min(SHORTEST_REASON, len(plain)):
        return theirs
    cut = plain if len(plain) <= room else plain[: room - 3] + "..."
    return f"{frame[:-1]}{cut}]"
