"""A /proc that consists of files, for code that reads /proc."""

from __future__ import annotations

from pathlib import Path


def process(proc: Path, pid: int, parent: int = 1, name: bytes = b"a", **files: bytes) -> Path:
    """An entry of a /proc, as the kernel would write it for a process of this name."""
    place = proc / str(pid)
    (place / "fd").mkdir(parents=True)
    fields = b" ".join([b"S", b"%d" % parent, *[b"0"] * 17, b"%d" % (70 + pid), b"0"])
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    made = {
        "stat": b"%d (%s) %s\n" % (pid, name, fields),
        "status": b"Name:\t%s\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\n" % escaped,
        "comm": name + b"\n",
        "cgroup": b"0::/user.slice\n",
        "cmdline": b"x\0",
        "maps": b"7f00-7f01 r-xp 00 08:01 12 /lib/libc.so.6\n",
    }
    for file, text in (made | files).items():
        (place / file).write_bytes(text)
    return place
