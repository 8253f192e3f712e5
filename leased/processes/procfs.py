"""The one room that reads /proc: bytes in, typed values out, None where there is nothing sound.

A user chooses the names of processes, cgroups and files: any bytes, also "\r", "\x1c" and what
is no UTF-8. The kernel keeps only "\n" out of them. So lines end at b"\n" alone and nothing is
decoded before it has been cut out, every read has a limit, and no content makes these raise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
LINE_MOST = 4096  # of files that the kernel writes in one line; those are far shorter
CGROUP_MOST = 1 << 18  # a path of 4,095 bytes in each of 64 hierarchies
ENVIRONMENT_MOST = 1 << 22
MAPS_MOST = 1 << 26  # as far as maps are searched
CHILDREN_MOST = SOCKETS_MOST = 1 << 22
FILES_MOST = 1 << 20  # as many open files as the kernel gives a process (fs.nr_open)
CHUNK = 1 << 16
ZOMBIE, DEAD = "Z", "X"
STAT = re.compile(rb" (\S) (\d{1,10}) (?:\S+ ){17}(\d{1,19})(?:\s.*)?", re.DOTALL)
STACK = re.compile(rb" \S (?:\d{1,10} )(?:\S+ ){17}(\d{1,19}) (?:\S+ ){5}(\d{1,20}) .*", re.DOTALL)
CGROUP_LINE = re.compile(rb"(\d{1,10}):([^:]*):(/.*)", re.DOTALL)
UID_LINE = re.compile(rb"Uid:\t(\d{1,10})\s")
PIDS_LINE = re.compile(rb"NSpid:\t([\d\t]+)")
MEMORY_LINE = re.compile(rb"^(MemTotal|MemAvailable): {1,20}(\d{1,16}) kB$", re.MULTILINE)
BOOT_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Stat:
    """Of /proc/PID/stat. state: R, S, Z, ...; start: clock ticks since the boot."""

    state: str
    parent: int
    start: int


@dataclass(frozen=True)
class Cgroup:
    """Where a process is in one hierarchy. controllers: b"" in that of v2."""

    controllers: bytes
    path: bytes


def head(path: Path | str, most: int) -> bytes | None:
    """The first bytes of a file, at most so many; None: it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    parts: list[bytes] = []
    left = most
    try:
        while left > 0 and (part := os.read(file, min(left, CHUNK))):
            parts.append(part)
            left -= len(part)
    except OSError:
        return None
    finally:
        os.close(file)
    return b"".join(parts)


def whole(path: Path | str, most: int) -> bytes | None:
    """A file of at most so many bytes; None: it is longer, or cannot be read."""
    data = head(path, most + 1)
    return None if data is None or len(data) > most else data


def _of(pid: int, name: str, proc: Path | str) -> str:
    return f"{proc}/{pid}/{name}"


def stat(pid: int, proc: Path | str = PROC) -> Stat | None:
    """State, parent and start of a process."""
    # The name stands in parentheses and may contain anything, also these.
    text = (whole(_of(pid, "stat", proc), LINE_MOST) or b"").rpartition(b")")[2]
    found = STAT.fullmatch(text)
    return Stat(found[1].decode("latin-1"), int(found[2]), int(found[3])) if found else None


def stack(pid: int, start: int) -> int | None:
    """The address at which the stack of the process with this start begins. It is another one after
    an exec, unless the host gives programs the same addresses always. None: it is not known."""
    text = (whole(_of(pid, "stat", PROC), LINE_MOST) or b"").rpartition(b")")[2]
    found = STACK.fullmatch(text)
    if found is None or int(found[1]) != start:
        return None
    return int(found[2]) if int(found[2]) > 1 else None  # 1: it may not be known


def thread_states(pid: int, most: int, proc: Path = PROC) -> list[str] | None:
    """The states of the threads of a process, as in Stat; None: it has more than so many."""
    states: list[str] = []
    try:
        with os.scandir(_of(pid, "task", proc)) as threads:
            for thread in threads:
                seen = stat(int(thread.name), _of(pid, "task", proc))
                states += [seen.state] if seen else []
                if len(states) > most:
                    return None
    except (OSError, ValueError):
        return None
    return states


def others_run(pid: int, proc: Path = PROC) -> bool:
    """Whether a thread of the process besides its first one has not ended."""
    try:
        with os.scandir(_of(pid, "task", proc)) as threads:
            for thread in threads:
                seen = stat(int(thread.name), _of(pid, "task", proc))
                if seen is not None and seen.state not in (ZOMBIE, DEAD):
                    return True
    except (OSError, ValueError):
        pass
    return False


def cgroups(pid: int, proc: Path = PROC) -> tuple[Cgroup, ...] | None:
    """Where the process is in every hierarchy, as the kernel shows it to this process."""
    data = whole(_of(pid, "cgroup", proc), CGROUP_MOST)
    if data is None or not data.endswith(b"\n"):
        return None if data != b"" else ()
    found = [CGROUP_LINE.fullmatch(line) for line in data[:-1].split(b"\n")]
    return tuple(Cgroup(m[2], m[3]) for m in found if m) if all(found) else None


def real_uid(pid: int, proc: Path = PROC) -> int | None:
    """The real uid of the process. (/proc/PID itself belongs to root if the program is setuid.)"""
    lines = (head(_of(pid, "status", proc), LINE_MOST) or b"").split(b"\n")
    found = [m for line in lines[:-1] if (m := UID_LINE.match(line))]
    return int(found[0][1]) if len(found) == 1 else None


def is_contained(pid: int, proc: Path = PROC) -> bool:
    """Whether the process is in another namespace of pids or of users than this process, as the
    processes of containers are. False where that cannot be told."""
    lines = (head(_of(pid, "status", proc), LINE_MOST) or b"").split(b"\n")
    pids = [m[1].split(b"\t") for line in lines[:-1] if (m := PIDS_LINE.fullmatch(line))]
    if any(len(numbers) > 1 for numbers in pids):
        return True
    users = head(_of(pid, "uid_map", proc), LINE_MOST)
    return users is not None and users != head(proc / "self" / "uid_map", LINE_MOST)


def command(pid: int, proc: Path = PROC) -> str | None:
    """The name of the process, of printable ASCII."""
    data = whole(_of(pid, "comm", proc), LINE_MOST)
    return None if data is None else re.sub(rb"[^ -~]", b"?", data.removesuffix(b"\n")).decode()


def command_line(pid: int, proc: Path = PROC) -> bytes | None:
    """The beginning of its arguments, each ended by a zero byte. The process may have written
    anything there, and may keep a reader waiting."""
    return head(_of(pid, "cmdline", proc), LINE_MOST)


def environment(pid: int, proc: Path = PROC) -> list[bytes]:
    """What it was started with, NAME=VALUE; empty: it cannot be read. The process may have written
    anything there, and may keep a reader waiting."""
    data = head(_of(pid, "environ", proc), ENVIRONMENT_MOST) or b""
    return data.split(b"\0") if data else []


def maps_file(pid: int, name: str, proc: Path = PROC, *, begins: bool = False) -> bool | None:
    """Whether the process has a file of this name mapped, also a deleted one. begins: or of one
    that begins so.

    None: it cannot be told, or not within the limit. Where the process maps a file of a slow
    file system, or keeps its memory locked, a reader waits as long.
    """
    rest = rb"" if begins else rb"(?: \(deleted\))?\n"
    wanted = re.compile(rb"/" + re.escape(os.fsencode(name)) + rest)
    try:
        with Path(_of(pid, "maps", proc)).open("rb", buffering=0) as maps:
            text, seen = b"", 0
            while seen <= MAPS_MOST:
                part = maps.read(CHUNK)
                if not part:
                    return False if seen else None  # one that ends has no maps any more
                seen += len(part)
                text += part
                if wanted.search(text):
                    return True
                text = text.rpartition(b"\n")[2][-CHUNK:]
    except (OSError, ValueError):
        pass
    return None


def open_files(pid: int, proc: Path = PROC) -> Iterator[str]:
    """The names of the files that the process has open. OSError, ValueError: it cannot be told."""
    with os.scandir(_of(pid, "fd", proc)) as files:
        for _, file in zip(range(FILES_MOST), files):
            name = _link(file.path)
            if name is not None:  # None: closed meanwhile
                yield name


def has_open(pid: int, prefix: str, proc: Path = PROC) -> bool | None:
    """Whether the process has a file open whose name begins so; None: it cannot be told."""
    try:
        return any(name.startswith(prefix) for name in open_files(pid, proc))
    except (OSError, ValueError):
        return None


def open_file(pid: int, number: int, proc: Path = PROC) -> str | None:
    """The name of the file that the process has open under this number; None: it has none."""
    return _link(_of(pid, f"fd/{number}", proc))


def namespace(pid: int | str, kind: str, proc: Path = PROC) -> str | None:
    """The namespace of this kind that the process ("self": this one) is in; None: not known."""
    return _link(f"{proc}/{pid}/ns/{kind}")


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except (OSError, ValueError):
        return None


def resident(pid: int, proc: Path = PROC) -> int:
    """Bytes of the process in memory; 0: not known."""
    pages = (head(_of(pid, "statm", proc), LINE_MOST) or b"").split()[1:2]
    return int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages and pages[0].isdigit() else 0


def family(root: int, proc: Path = PROC) -> list[int]:
    """A process and all below it, the root first."""
    found = [root]
    for pid in found:
        for task in Path(_of(pid, "task", proc)).glob("*"):
            children = head(task / "children", CHILDREN_MOST) or b""
            found += [int(child) for child in children.split() if child.isdigit()]
    return found


def sockets(pid: int, protocol: str, proc: Path = PROC) -> list[int]:
    """The inodes of all sockets of a protocol ("tcp", "udp6") in the network of the process."""
    lines = (head(_of(pid, f"net/{protocol}", proc), SOCKETS_MOST) or b"").split(b"\n")[1:]
    rows = (line.split() for line in lines)
    return [int(row[9]) for row in rows if len(row) > 9 and row[9].isdigit()]


def boot_id(proc: Path = PROC) -> str | None:
    """The kernel's identifier of this boot of the machine."""
    data = whole(proc / "sys" / "kernel" / "random" / "boot_id", LINE_MOST) or b""
    found = BOOT_ID.fullmatch(data.strip())
    return found[0].decode() if found else None


def host_memory() -> tuple[int, int]:
    """Bytes of the host: all, and those that could be had without swapping. 0, 0: not known."""
    found = dict(MEMORY_LINE.findall(head(PROC / "meminfo", LINE_MOST) or b""))
    return int(found.get(b"MemTotal", 0)) << 10, int(found.get(b"MemAvailable", 0)) << 10
