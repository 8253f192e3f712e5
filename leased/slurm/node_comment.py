"""A node's Comment in Slurm, byte for byte.

scontrol prints it as JSON. That of Slurm 22.05 cannot, and there sinfo prints it in a column, once
for each of the node's partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from leased.slurm.json_answers import Entries, Unreadable, read_of, text_of

LONGEST = 8192  # bytes; a longer one is left alone
NONE = "(null)"  # so sinfo shows no Comment
NOT_UTF8 = "\ufffd"  # stands for bytes that are not UTF-8

Run = Callable[..., Awaitable[tuple[int, str, str]]]  # a command's exit status, output and errors


async def read(run: Run, node: str) -> str:
    """What stands there. OSError: it is not known, or cannot be written back, and why."""
    status, out, _ = await run("scontrol", "show", "nodes", node, "--json")
    if status or not out.startswith("{"):
        out = await succeed(run, "sinfo", "-h", "-a", "-n", node, "-O", f"Comment:{LONGEST}")
        text = _of_row(out)
    else:
        text = _of_json(out, node)
    if text is None:
        raise OSError(f"Slurm has no node {node}")
    if NOT_UTF8 in text or len(text.encode()) >= LONGEST:
        raise OSError(f"the Comment of {node} is too long, or is not UTF-8; make it shorter")
    return text


async def succeed(run: Run, *command: str) -> str:
    """What the command prints. OSError: it fails."""
    status, out, err = await run(*command)
    if status:
        words = " ".join(err.split())[:200] or f"exit status {status}"
        raise OSError(f"{command[0]} fails: {words}")
    return out


def _of_json(out: str, node: str) -> str | None:
    try:
        found = read_of(out, Entries("nodes", _named)).found
    except Unreadable as fault:
        raise OSError(f"what scontrol says cannot be read: {fault}") from None
    return next((comment for name, comment in found if name == node), None)


def _named(said: Mapping[str, Any]) -> tuple[str, str]:
    return said["name"], text_of(said.get("comment"))


def _of_row(out: str) -> str | None:
    if not out:
        return None
    text = out.encode()[:LONGEST].decode(errors="replace").rstrip()
    return "" if text == NONE else text
