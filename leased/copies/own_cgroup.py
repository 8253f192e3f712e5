"""What the kernel charges to the memory cgroup of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
# In memory.stat of version 2, all that the kernel has for itself; before Linux 5.18 its parts.
KERNEL, PARTS = "kernel", ("slab", "kernel_stack", "pagetables", "percpu", "vmalloc")


@dataclass(frozen=True)
class Charge:
    """Bytes. listed: in files, also what of them is swapped out. unlisted: neither in a file nor in
    a process, and not the kernel's own: something refers to pages that are in no file any more."""

    listed: int
    unlisted: int


@dataclass(frozen=True)
class OwnCgroup:
    """A cgroup in which this process is alone. v2: of version 2."""

    folder: Path
    v2: bool

    def charge(self) -> Charge | None:
        """What is charged now; None: other processes are there too, or it cannot be read."""
        try:
            if not self._is_alone():
                return None
            return self._v2() if self.v2 else self._v1()
        except (OSError, ValueError, KeyError):
            return None

    def _is_alone(self) -> bool:
        mine = (self.folder / "cgroup.procs").read_text().split() == [str(os.getpid())]
        return mine and not any(entry.is_dir() for entry in os.scandir(self.folder))

    def _v1(self) -> Charge:
        charged, stat = self._number("memory.usage_in_bytes"), self._stat()
        kernel = self._number("memory.kmem.usage_in_bytes", missing=0)
        unlisted = charged - stat["cache"] - stat["rss"] - kernel
        return Charge(stat["cache"] + stat.get("swap", 0), max(0, unlisted))

    def _v2(self) -> Charge:
        charged, stat = self._number("memory.current"), self._stat()
        kernel = stat.get(KERNEL) or sum(stat.get(part, 0) for part in PARTS)
        unlisted = charged - stat["anon"] - stat["file"] - kernel - stat.get("sock", 0)
        swapped = self._number("memory.swap.current", missing=0)
        return Charge(stat["file"] + swapped, max(0, unlisted))

    def _number(self, name: str, missing: int | None = None) -> int:
        file = self.folder / name
        return missing if missing is not None and not file.exists() else int(file.read_text())

    def _stat(self) -> Mapping[str, int]:
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}


def own_cgroup() -> OwnCgroup | None:
    """The memory cgroup of this process; None: it has none that can be read."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    for names, path in paths.items():
        if "memory" in names.split(","):
            return OwnCgroup(V1 / path.lstrip("/"), v2=False)
    folder = V2 / paths.get("", "/").lstrip("/")
    return OwnCgroup(folder, v2=True) if (folder / "memory.current").exists() else None
