"""What the placer and gpu_share.lua write into a job's comments, beside what others wrote there.

AdminComment: the mark that gpu_share.lua makes when the job is submitted, for the placer to read.

    [gpu-lease-placer BEGIN UNTIL OPTIONS]

BEGIN: the begin time that its user has set; UNTIL: the one to which it has been put off, both
seconds since 1970; OPTIONS: as --gpu-share takes them.

Comment: why the job waits, for its user. Both are removed when the job may start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARK = re.compile(r" ?\[gpu-lease-placer (\d{1,11}) (\d{1,11}) ([\x21-\x5a\x5c\x5e-\x7e]{1,511})\]")
REASON = re.compile(r" ?\[gpu-lease-placer: [^\[\]]*\]")
LONGEST = 1023  # bytes of a comment that slurmctld takes
LONGEST_REASON = 400  # characters
SHORTEST_REASON = 60  # characters; a shorter piece of a reason would be of no use
UNREADABLE = "\ufffd"  # replaces bytes that are not UTF-8; such a comment cannot be written back


class Mark(NamedTuple):
    """begin, until: seconds since 1970."""

    begin: int
    until: int
    options: str


def mark_of(admin_comment: str) -> Mark | None:
    found = MARK.search(admin_comment)
    return Mark(int(found[1]), int(found[2]), found[3]) if found else None


def without_mark(admin_comment: str) -> str:
    """Only what others wrote."""
    return MARK.sub("", admin_comment)


def without_reason(comment: str) -> str:
    """Only what others wrote."""
    return REASON.sub("", comment)


def with_reason(comment: str, reason: str) -> str:
    """The comment with this reason in place of the last one; without any if there is no room."""
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
