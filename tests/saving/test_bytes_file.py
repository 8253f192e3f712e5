"""What is written is what is read; what was cut off goes on; what is damaged is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from leased.saving import bytes_file
from leased.saving.bytes_file import BLOCK, FILES, Damaged, Range

RANGES = [(1 << 30, 2 * BLOCK + 5), (1 << 40, BLOCK), (1 << 41, 100)]


class FakeMemory:
    """broken: reads fail from that address on."""

    def __init__(self, broken: int = 1 << 62, ranges: Sequence[Range] = RANGES):
        self.ranges = ranges
        self.parts = {at: bytearray(size) for at, size in ranges}
        self.broken = broken
        for at, part in self.parts.items():
            for n, here in enumerate(range(0, len(part), 1 << 12)):
                part[here] = 1 + (at + n) % 251
        self.parts[1 << 40][:BLOCK] = bytes(BLOCK)  # a whole block of zeros

    def _part(self, at: int, size: int) -> memoryview:
        start = max(start for start in self.parts if start <= at)
        return memoryview(self.parts[start])[at - start : at - start + size]

    def read(self, at: int, into: memoryview) -> None:
        if at >= self.broken:
            raise OSError(5, "Input/output error")
        into[:] = self._part(at, len(into))

    def write(self, at: int, data: memoryview) -> None:
        self._part(at, len(data))[:] = data


def files(directory: Path) -> list[Path]:
    return [directory / f"1.{n}.bytes" for n in range(FILES)]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    memory, fresh = FakeMemory(), FakeMemory()
    index = bytes_file.write(memory.read, RANGES, tmp_path, "1")
    assert [n for n, one in enumerate(index.sums) if one is None] == [3]
    for part in fresh.parts.values():
        part[:] = bytes(len(part))
    assert bytes_file.restore(fresh.write, tmp_path, "1") == index
    assert fresh.parts == memory.parts
    assert sum(file.stat().st_blocks * 512 for file in files(tmp_path)) < 3 * BLOCK
    assert sum(file.stat().st_size > 0 for file in files(tmp_path)) == len(index.sums)


def test_more_blocks_than_files(tmp_path: Path) -> None:
    size = (2 * FILES + 1) * BLOCK // 2
    memory, fresh = (FakeMemory(ranges=[(0, size), (1 << 40, size + 1)]) for _ in range(2))
    bytes_file.write(memory.read, memory.ranges, tmp_path, "1")
    for part in fresh.parts.values():
        part[:] = bytes(len(part))
    bytes_file.restore(fresh.write, tmp_path, "1")
    assert fresh.parts == memory.parts


def test_a_write_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        bytes_file.write(FakeMemory(broken=RANGES[-1][0]).read, RANGES, tmp_path, "1")
    with pytest.raises(Damaged, match="cannot be read"):
        bytes_file.verify(tmp_path, "1")
    assert bytes_file.missing_bytes(tmp_path, "1", RANGES) < 2 * BLOCK
    memory = FakeMemory()
    memory.parts[1 << 30][BLOCK] = 77  # one block has changed since then
    written, pwrite = set(), os.pwrite

    def watched(file: int, data: memoryview, at: int) -> int:
        written.add(Path(f"/proc/self/fd/{file}").readlink().name)
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", watched)
    bytes_file.write(memory.read, RANGES, tmp_path, "1")
    assert written == {"1.1.bytes", "1.4.bytes"}
    fresh = FakeMemory()
    bytes_file.restore(fresh.write, tmp_path, "1")
    assert fresh.parts == memory.parts


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_block_that_is_all_zeros_by_now_is_so_in_the_file(tmp_path: Path, zeroed: bool) -> None:
    memory = FakeMemory()
    bytes_file.write(memory.read, RANGES, tmp_path, "1")
    if zeroed:
        memory.parts[1 << 30][:] = bytes(2 * BLOCK + 5)
    index = bytes_file.write(memory.read, RANGES, tmp_path, "1")
    assert index.sums[:3].count(None) == (3 if zeroed else 0)
    assert bytes_file.verify(tmp_path, "1") == index
    zeros = sum(file.read_bytes().count(0) for file in files(tmp_path)[:3])
    assert (zeros == 2 * BLOCK + 5) is zeroed


@pytest.mark.parametrize("how", ["changed", "cut", "gone", "index"])
def test_what_is_damaged_is_named(tmp_path: Path, how: str) -> None:
    bytes_file.write(FakeMemory().read, RANGES, tmp_path, "1")
    file = tmp_path / "1.1.bytes"
    if how == "changed":
        with file.open("r+b") as opened:
            opened.seek(9)
            opened.write(b"x")
    elif how == "cut":
        os.truncate(file, BLOCK - 1)
    elif how == "gone":
        file.unlink()
    else:
        (tmp_path / "1.index").write_text("{}")
    with pytest.raises(Damaged, match=r"1\.index" if how == "index" else r"1\.1\.bytes"):
        bytes_file.verify(tmp_path, "1")
