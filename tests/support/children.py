"""The children of a process, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int, thread: int = 0) -> list[int]:
    """The pids of those that a thread has started; 0: its first one. OSError: it has ended."""
    file = Path(f"/proc/{pid}/task/{thread or pid}/children")
    return [int(child) for child in file.read_text().split()]
