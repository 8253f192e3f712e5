"""The fingerprint of memory: the same on the host, in PTX and on the emulated GPU."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emugpu.programs import run
from tests.emugpu.server import ROOT, EmulatedGpu
from tests.shim.memory.swap import fingerprints, ptx
from tests.shim.memory.swap.fingerprints import PRIME, STRETCH, TILE
from tests.support.together import zip_strict

PTX = ROOT / "shim" / "memory" / "swap" / "fingerprint.ptx"
BASE, RESULTS = 0x700000000000, 0x10000


def by_definition(secret: fingerprints.Secret, data: bytes) -> list[tuple[int, int]]:
    """As docs/swap.md defines it, in plain sums."""
    found = []
    for start in range(0, len(data), STRETCH * TILE):
        part = data[start : start + STRETCH * TILE]
        words = memoryview(part).cast("I")
        pair: list[int] = []
        for which in range(2):
            total = 0
            for lane in range(32):
                value = 0
                for tile in range(len(part) // TILE):
                    for p in (2 * which, 2 * which + 1):
                        value = value * secret.keys.step[which] + nh(secret, words, tile, lane, p)
                for i in range(5):
                    if lane >> i & 1:
                        value *= secret.keys.fold[which][i]
                total += value
            pair.append(total % PRIME)
        found.append((pair[0], pair[1]))
    return found


def nh(
    secret: fingerprints.Secret, words: memoryview[int], tile: int, lane: int, shift: int
) -> int:
    total = 0
    for i in range(16):
        x = words[tile * 1024 + i // 4 * 256 + lane * 4 + i % 4]
        y = words[tile * 1024 + i // 4 * 256 + 128 + lane * 4 + i % 4]
        kx, ky = secret.keys.words[2 * (i + shift)], secret.keys.words[2 * (i + shift) + 1]
        total += (x + kx) % 2**32 * ((y + ky) % 2**32)
    return total % 2**64


def by_ptx(secret: fingerprints.Secret, data: bytes, blocks: int) -> list[tuple[int, int]]:
    memory = ptx.Memory(BASE, data)
    tiles = len(data) // TILE
    ptx.launch(
        ptx.parse(PTX.read_text()),
        (blocks, 4),
        {"base": BASE, "tiles": tiles, "results": RESULTS},
        bytes(secret.keys),
        memory,
    )
    values = [value % PRIME for _, value in sorted(memory.written.items())]
    n = -(-tiles // STRETCH)
    assert sorted(memory.written) == [RESULTS + 8 * i for i in range(2 * n)]
    return list(zip_strict(values[::2], values[1::2]))


def data_of(seed: int, tiles: int) -> bytes:
    return random.Random(seed).randbytes(tiles * TILE)


@pytest.mark.parametrize("tiles", [1, 2, 3])
def test_the_host_computes_what_is_defined(tiles: int) -> None:
    secret, data = fingerprints.drawn(tiles), data_of(tiles, tiles)
    assert fingerprints.stretches(secret, data) == by_definition(secret, data)


@pytest.mark.parametrize(
    ("tiles", "blocks"), [(1, 1), (3, 2), (64, 1), (65, 1), (4 * 64 + 1, 2), (5 * 64 - 1, 3)]
)
def test_the_ptx_computes_what_the_host_does(tiles: int, blocks: int) -> None:
    secret, data = fingerprints.drawn(tiles), data_of(tiles, tiles)
    assert by_ptx(secret, data, blocks) == fingerprints.stretches(secret, data)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_the_largest_and_smallest_of_everything(byte: int) -> None:
    """Carries: keys and words that are all ones, or nothing."""
    secret = fingerprints.Secret()
    for i in range(fingerprints.WORDS):
        secret.keys.words[i] = 0xFFFFFFFF if byte else 0
    for which in range(2):
        secret.keys.step[which] = secret.join[which] = PRIME - 1
        for i in range(fingerprints.FOLDS):
            secret.keys.fold[which][i] = PRIME - 1
    for fill in (0x00, 0x01, 0xFF):
        data = bytes([fill]) * 2 * TILE
        want = by_definition(secret, data)
        assert by_ptx(secret, data, 1) == fingerprints.stretches(secret, data) == want


@pytest.mark.parametrize("tiles", [[1, 64, 65, 127, 300, 1024]])
def test_the_emulated_gpu_computes_what_the_host_does(
    emulated_gpu: EmulatedGpu, tiles: Sequence[int]
) -> None:
    """Blocks of memory end anywhere in a stretch: the reads begin behind the first tiles."""
    run(
        emulated_gpu,
        f"""
import random
from tests.shim.memory.swap import fingerprints as f
setup()
module = ok(d.cuModuleLoadData(open({str(PTX)!r}, "rb").read() + b"\\0"))
kernel = ok(d.cuModuleGetFunction(module, b"gpu_lease_fingerprint"))
results = ok(d.cuMemHostAlloc(1 << 20, 3))
for tiles in {tiles!r}:
    secret, data = f.drawn(tiles), random.Random(tiles).randbytes(tiles * f.TILE)
    p = int(ok(d.cuMemAlloc((tiles + 3) * f.TILE))) + 3 * f.TILE
    ok(d.cuMemcpyHtoD(p, data, len(data)))
    n = -(-tiles // f.STRETCH)
    values = [ctypes.c_uint64(v) for v in (p, tiles, int(results))] + [secret.keys]
    parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(v) for v in values))
    grid = -(-n // 4)
    ok(d.cuLaunchKernel(kernel, grid, 1, 1, 128, 1, 1, 0, 0, ctypes.addressof(parameters), 0))
    ok(d.cuCtxSynchronize())
    found = (f.Fingerprint * n).from_address(int(results))
    found = [(v.a % f.PRIME, v.b % f.PRIME) for v in found]
    assert found == f.stretches(secret, data), tiles
""",
    )


@settings(max_examples=50, deadline=None)
@given(
    tiles=st.integers(1, 70),
    where=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    seed=st.integers(0, 2**32),
)
def test_one_bit_shows_in_both_values(tiles: int, where: float, bit: int, seed: int) -> None:
    secret, data = fingerprints.drawn(seed), bytearray(tiles * TILE)
    before = fingerprints.of(secret, bytes(data))
    data[int(where * len(data))] ^= 1 << bit
    after = fingerprints.of(secret, bytes(data))
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    ("one", "other"), [(0, 16), (0, 512), (0, TILE), (0, STRETCH * TILE), (4, 8)]
)
def test_words_that_change_places_show(one: int, other: int) -> None:
    secret, data = fingerprints.drawn(9), bytearray(data_of(9, 2 * STRETCH))
    before = fingerprints.of(secret, bytes(data))
    data[one : one + 4], data[other : other + 4] = data[other : other + 4], data[one : one + 4]
    after = fingerprints.of(secret, bytes(data))
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_keys_are_drawn_anew() -> None:
    one, other = fingerprints.Secret(), fingerprints.Secret()
    assert fingerprints.host().fingerprint_draw(ctypes.byref(one))
    assert fingerprints.host().fingerprint_draw(ctypes.byref(other))
    assert bytes(one.keys.words) != bytes(other.keys.words)
    for secret in (one, other):
        factors = [*secret.keys.step, *secret.join, *secret.keys.fold[0], *secret.keys.fold[1]]
        assert len(set(factors)) == len(factors)
        assert max(factors) < PRIME
