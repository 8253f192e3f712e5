"""Channel groups: what the library makes of them, time slices, stops in mid-kernel and mid-copy."""

from __future__ import annotations

from pathlib import Path

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu

GROUPS = "from tests.emugpu.groups_api import *\nwatch()\n"


def test_a_context_makes_four_groups_and_takes_them_along(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
assert [(g.engine, len(g.channels()), g.slice()) for g in groups()] == [
    (1, 8, 2048), (11, 4, 1024), (12, 4, 1024), (13, 4, 1024)]
assert len({g.control(0xA06C0106, bytes(4)) for g in groups()}) == 4  # each has a number
second = ok(d.cuCtxCreate(None, 0, 0)); assert len(groups()) == 8
ok(d.cuCtxDestroy(second)); assert len(groups()) == 4
ok(d.cuDevicePrimaryCtxReset(0)); assert groups() == []
"""
    run(emulated_gpu, GROUPS + code)


def test_a_subdevice_says_which_gpu_it_is(short_dir: Path) -> None:
    code = """
setup()
for i in range(2):
    assert gid(i) == ok(d.cuDeviceGetUuid(i)).bytes
"""
    with EmulatedGpu(short_dir / "gpu", devices=2) as gpu:
        run(gpu, GROUPS + code)


def test_what_the_kernel_refuses(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
g = compute(); channels = g.channels()
assert g.set(0) == 0x56 and g.slice() == 2048
assert g.set(50) == 0 and g.slice() == 50
assert g.control(0xA06C0107, bytes(4))[0] == 0x1b
assert g.control(0xA06C0101, b"\\0\\0\\0")[0] == 0
assert g.control(0xA06C0103, bytes(4))[0] == 0x1f
assert disable([(1, 2)], True) == 0x57
assert disable([(channels[0][0], 2)], True) == 0x57
assert disable([*channels, (channels[0][0], 2)], True) == 0x57
assert disable(channels, True, n=65) == 0x1f
assert disable(channels, True, event=1) == 0x1b
ok(launch("spin", 1000)); ok(d.cuCtxSynchronize())  # none of that has stopped it
say(channels)
wait()
"""
    other = """
setup()
assert disable({}, True) == 0x57
"""
    with program(emulated_gpu, GROUPS + code) as one:
        channels = line(one)
        run(emulated_gpu, GROUPS + other.format(channels))
        go_on(one)
        finish(one)


def busy_ns(gpu: EmulatedGpu, pid: int) -> int:
    return next(int(p["busy_ns"]) for p in gpu.stats()["processes"] if p["pid"] == pid)


def test_a_kernel_stops_in_the_middle_and_goes_on(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
ok(launch("spin", 200_000_000)); ok(launch("spin", 1))
assert compute().stop() == 0
say("stopped"); wait()
assert error(d.cuStreamQuery(0)) == "NOT_READY"
assert compute().start() == 0
ok(d.cuCtxSynchronize())
say("done"); wait()
"""
    neighbour = "setup(); ok(launch('spin', 5_000_000)); ok(d.cuCtxSynchronize())"
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "stopped"
        before = busy_ns(emulated_gpu, one.pid)
        run(emulated_gpu, neighbour)
        assert busy_ns(emulated_gpu, one.pid) == before < 200_000_000
        stopped = [g for g in emulated_gpu.stats()["groups"] if g["stopped"]]
        assert [(g["pid"], g["engine"], g["stopped"]) for g in stopped] == [(one.pid, "compute", 8)]
        go_on(one)
        assert line(one) == "done"
        assert busy_ns(emulated_gpu, one.pid) == 200_000_001
        go_on(one)
        finish(one)
