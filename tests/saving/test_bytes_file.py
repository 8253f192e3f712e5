"""What is written is what is read; what was cut off goes on; what is damaged is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leased.saving import bytes_file
from leased.saving.bytes_file import BLOCK, Damaged

RANGES = [(1 << 30, 2 * BLOCK + 5), (1 << 40, BLOCK), (1 << 41, 100)]


class FakeMemory:
    """broken: reads fail from that address on."""

    def __init__(self, broken: int = 1 << 62):
        self.parts = {at: bytearray(size) for at, size in RANGES}
        self.broken = broken
        for at, part in self.parts.items():
            part[:: 1 << 12] = bytes([1 + at % 251]) * len(part[:: 1 << 12])
        self.parts[1 << 40][:] = bytes(BLOCK)  # a whole block of zeros

    def _part(self, at: int, size: int) -> memoryview:
        start = max(start for start in self.parts if start <= at)
        return memoryview(self.parts[start])[at - start : at - start + size]

    def read(self, at: int, into: memoryview) -> None:
        if at >= self.broken:
            raise OSError(5, "Input/output error")
        into[:] = self._part(at, len(into))

    def write(self, at: int, data: memoryview) -> None:
        self._part(at, len(data))[:] = data


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    memory, fresh = FakeMemory(), FakeMemory()
    index = bytes_file.write(memory, RANGES, tmp_path, "1")
    assert [n for n, one in enumerate(index.sums) if one is None] == [3]
    for part in fresh.parts.values():
        part[:] = bytes(len(part))
    assert bytes_file.restore(fresh, tmp_path, "1") == index
    assert fresh.parts == memory.parts
    assert (tmp_path / "1.bytes").stat().st_blocks * 512 < 3 * BLOCK


def test_a_write_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        bytes_file.write(FakeMemory(broken=RANGES[-1][0]), RANGES, tmp_path, "1")
    with pytest.raises(Damaged, match="cannot be read"):
        bytes_file.verify(tmp_path, "1")
    assert bytes_file.missing_bytes(tmp_path, "1", RANGES) < 2 * BLOCK
    memory = FakeMemory()
    memory.parts[1 << 30][BLOCK] = 77  # one block has changed since then
    written, pwrite = [], os.pwrite

    def watched(file: int, data: memoryview, at: int) -> int:
        written.append(at)
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", watched)
    bytes_file.write(memory, RANGES, tmp_path, "1")
    assert sorted(at for at in written if at) == [BLOCK, 3 * BLOCK + 5]  # and the index at 0
    fresh = FakeMemory()
    bytes_file.restore(fresh, tmp_path, "1")
    assert fresh.parts == memory.parts


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_block_that_is_all_zeros_by_now_is_so_in_the_file(tmp_path: Path, zeroed: bool) -> None:
    memory = FakeMemory()
    bytes_file.write(memory, RANGES, tmp_path, "1")
    if zeroed:
        memory.parts[1 << 30][:] = bytes(2 * BLOCK + 5)
    index = bytes_file.write(memory, RANGES, tmp_path, "1")
    assert index.sums[:3].count(None) == (3 if zeroed else 0)
    assert bytes_file.verify(tmp_path, "1") == index
    zeros = (tmp_path / "1.bytes").read_bytes()[: 2 * BLOCK + 5].count(0)
    assert (zeros == 2 * BLOCK + 5) is zeroed


@pytest.mark.parametrize("how", ["changed", "cut", "index"])
def test_what_is_damaged_is_named(tmp_path: Path, how: str) -> None:
    bytes_file.write(FakeMemory(), RANGES, tmp_path, "1")
    file = tmp_path / "1.bytes"
    if how == "changed":
        with file.open("r+b") as opened:
            opened.seek(BLOCK + 9)
            opened.write(b"x")
    elif how == "cut":
        os.truncate(file, BLOCK)
    else:
        (tmp_path / "1.index").write_text("{}")
    with pytest.raises(Damaged, match=r"1\.index" if how == "index" else r"1\.bytes"):
        bytes_file.verify(tmp_path, "1")
