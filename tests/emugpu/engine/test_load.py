"""A model with contention: kernels take longer by the work of others, and by the clock."""

from __future__ import annotations

from pathlib import Path

from tests.emugpu.programs import run
from tests.emugpu.server import ROOT, EmulatedGpu

MODEL = ROOT / "tests" / "emugpu" / "models" / "emu-h200-small.ini"
NS, SWITCH_NS, HIGHEST_MHZ = 20_000_000, 105_000, 1980
# A kernel of one context and one of another, right after it. The clock before, between and after.
PAIR = f"""
import pynvml as n
n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
def mhz(): say(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM))
def spins(): ok(launch("spin", {NS})); ok(d.cuCtxSynchronize()); mhz()
mhz(); setup(); spins(); ok(d.cuDevicePrimaryCtxRelease(0)); setup(); spins()
"""


def both(short_dir: Path, keys: str) -> tuple[list[int], list[int]]:
    """What each of the two kernels takes of the device, ns, and the three clocks."""
    model = short_dir / "contended.ini"
    model.write_text(MODEL.read_text() + keys)
    with EmulatedGpu(short_dir / "gpu", str(model), trace=True) as gpu:
        clocks = [int(word) for word in run(gpu, PAIR).split()]
        spans = [end - start for _, _, start, end in gpu.trace()]
    turn = next((i for i, ns in enumerate(spans) if sum(spans[:i]) >= NS), len(spans))
    return [sum(spans[:turn]), sum(spans[turn:]) - SWITCH_NS], clocks


def test_work_of_others_slows_a_kernel(short_dir: Path) -> None:
    (first, second), clocks = both(short_dir, "contention = 1\nload_us = 100000\n")
    assert first == NS
    assert second > NS
    assert clocks == [HIGHEST_MHZ] * 3


def test_the_clock_falls_by_what_the_device_works(short_dir: Path) -> None:
    (first, second), clocks = both(short_dir, "throttle = 0.5\nload_us = 100000\n")
    assert min(first, second) > NS
    assert clocks[0] == HIGHEST_MHZ > max(clocks[1:])


def test_other_models_know_neither(short_dir: Path) -> None:
    assert both(short_dir, "") == ([NS, NS], [HIGHEST_MHZ] * 3)
