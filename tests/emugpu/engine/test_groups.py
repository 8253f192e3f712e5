"""Channel groups: what the library makes of them, time slices, stops in mid-kernel and mid-copy."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

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


def test_green_contexts_and_children(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
sm = d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
resource = ok(d.cuDeviceGetDevResource(0, sm))
green = ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc([resource], 1)), 0, 1))
assert [g.engine for g in groups()] == [1, 11, 12, 13] * 2
ok(d.cuGreenCtxDestroy(green)); assert len(groups()) == 4
if not (child := os.fork()):
    os._exit(compute().set(100) != 0xffffffff)  # the parent's groups are not a child's
assert os.waitpid(child, 0)[1] == 0 and compute().slice() == 2048
"""
    run(emulated_gpu, GROUPS + code)


def test_events_behind_stopped_work_come_once_it_goes_on(emulated_gpu: EmulatedGpu) -> None:
    """Nothing else is submitted that would have them looked at."""
    code = """
setup()
assert compute().stop() == 0
event = ok(d.cuEventCreate(0)); ok(d.cuEventRecord(event, 0)); ok(launch("spin", 1))
assert error(d.cuEventQuery(event)) == "NOT_READY"
assert compute().start() == 0
ok(d.cuEventSynchronize(event)); ok(d.cuCtxSynchronize())
"""
    run(emulated_gpu, GROUPS + code)


# -- slices ------------------------------------------------------------------------------

# Kernels are queued while the group is stopped, so that all of them are there at once.
QUEUED = """
setup()
ok(launch("spin", 1)); ok(d.cuCtxSynchronize())
assert compute().set({us}) == 0 and compute().stop() == 0
for _ in range(300): ok(launch("spin", 1_000_000))
say("queued"); wait(); assert compute().start() == 0; ok(d.cuCtxSynchronize())
"""
MODEL_NS, CARD_US, SWITCH_NS = 1_000_000, 2048, 105_000  # of emu-h200-small


def test_groups_take_turns_by_their_slices(emulated_gpu: EmulatedGpu) -> None:
    slices = (1000, 6000)
    with (
        program(emulated_gpu, GROUPS + QUEUED.format(us=slices[0])) as one,
        program(emulated_gpu, GROUPS + QUEUED.format(us=slices[1])) as two,
    ):
        for process in (one, two):
            assert line(process) == "queued"
        for process in (one, two):
            go_on(process)
        for process in (one, two):
            finish(process)
    rows = emulated_gpu.trace()
    turns = [
        (pid, sum(end - start for _, _, start, end in turn))
        for pid, turn in ((p, list(t)) for p, t in itertools.groupby(rows, key=lambda row: row[1]))
    ]
    # One of them has the device for itself, until the other one begins.
    begin = 2 + next(i for i, (_, ns) in enumerate(turns) if ns > 2 * SWITCH_NS)
    assert set(turns[begin : begin + 40]) == {
        (process.pid, us * MODEL_NS // CARD_US + SWITCH_NS)
        for process, us in zip_strict((one, two), slices)
    }


def alive(gpu: EmulatedGpu) -> list[int]:
    return [process["pid"] for process in gpu.stats()["processes"] if process["alive"]]


def test_work_that_ends_with_its_process_has_not_computed(emulated_gpu: EmulatedGpu) -> None:
    stopped = """
setup()
s = ok(d.cuStreamCreate(1)); n = 100 * MIB
h, m = ok(d.cuMemAllocHost(n)), ok(d.cuMemAlloc(n))
ok(launch("spin", 10**12)); assert compute().stop() == 0
for _ in range(100): ok(d.cuMemcpyHtoDAsync(m, h, n, s))
say("stopped"); wait()
"""
    busy = """
setup(); ok(launch("spin", 10**12)); say(os.getpid()); wait()
"""
    with (
        program(emulated_gpu, GROUPS + stopped) as one,
        program(emulated_gpu, busy) as two,
    ):
        assert line(one) == "stopped"
        rows = len(emulated_gpu.trace())
        assert line(two) == str(two.pid)
        wait_until("work beside it", lambda: len(emulated_gpu.trace()) > rows)
        one.kill()
        wait_until("its end", lambda: alive(emulated_gpu) == [two.pid])
        two.kill()
    assert {pid for _, pid, _, _ in emulated_gpu.trace()[rows:]} == {two.pid}


def test_a_group_that_is_preempted_lets_the_next_one_run(emulated_gpu: EmulatedGpu) -> None:
    hog = """
setup()
assert compute().set(1_000_000_000) == 0
ok(launch("spin", 10**12)); say("runs"); wait()
assert compute().control(0xA06C0105, bytes(8))[0] == 0; say("preempted"); wait()
"""
    other = """
setup(); ok(launch("spin", 1_000)); say(error(d.cuStreamQuery(0)))
ok(d.cuCtxSynchronize())
"""
    with program(emulated_gpu, GROUPS + hog) as one:
        assert line(one) == "runs"
        with program(emulated_gpu, other) as two:
            assert line(two) == "NOT_READY"
            go_on(one)
            assert line(one) == "preempted"
            finish(two)


# -- stops -------------------------------------------------------------------------------


def process_of(gpu: EmulatedGpu, pid: int) -> dict[str, int]:
    return next(p for p in gpu.stats()["processes"] if p["pid"] == pid)


def test_a_kernel_stops_in_the_middle_and_goes_on(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
ok(launch("spin", 1_000_000_000)); ok(launch("spin", 1))
say("launched"); wait(); assert compute().stop() == 0
mark = ok(d.cuEventCreate(0)); ok(d.cuEventRecord(mark, ok(d.cuStreamCreate(1))))
say("stopped"); wait()
assert error(d.cuStreamQuery(0)) == "NOT_READY"
assert error(d.cuEventQuery(mark)) == "NOT_READY"  # it would be set by a channel of compute
assert compute().start() == 0
ok(d.cuCtxSynchronize()); ok(d.cuEventQuery(mark))
say("done"); wait()
"""
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "launched"
        while not process_of(emulated_gpu, one.pid)["busy_ns"]:
            pass
        go_on(one)
        assert line(one) == "stopped"
        before = process_of(emulated_gpu, one.pid)["busy_ns"]
        run(emulated_gpu, "setup(); ok(launch('spin', 5_000_000)); ok(d.cuCtxSynchronize())")
        assert process_of(emulated_gpu, one.pid)["busy_ns"] == before < 1_000_000_000
        stopped = [g for g in emulated_gpu.stats()["groups"] if g["stopped"]]
        assert [(g["pid"], g["engine"], g["stopped"]) for g in stopped] == [(one.pid, "compute", 8)]
        go_on(one)
        assert line(one) == "done"
        assert process_of(emulated_gpu, one.pid)["busy_ns"] == 1_000_000_001
        go_on(one)
        finish(one)


def test_only_the_listed_channels_stop(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
streams = [ok(d.cuStreamCreate(1)) for _ in range(2)]
first = compute().channels()[0]
assert disable([first], True) == 0
for stream in streams: ok(launch("spin", 1000, stream=stream))
ok(d.cuStreamSynchronize(streams[1])); assert error(d.cuStreamQuery(streams[0])) == "NOT_READY"
assert disable([first], False) == 0
ok(d.cuCtxSynchronize())
"""
    run(emulated_gpu, GROUPS + code)


COPIED = 192 << 20  # bytes, for which the link takes a while


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_copy_stops_in_the_middle_and_goes_on(emulated_gpu: EmulatedGpu, direction: str) -> None:
    code = f"""
setup()
size = {COPIED}
host, p = ok(d.cuMemHostAlloc(size, 0)), ok(d.cuMemAlloc(size))
group = of_engine({{"in": IN, "out": OUT}}["{direction}"])
if "{direction}" == "in":
    ctypes.memset(host, 7, size)
    ok(d.cuMemcpyHtoDAsync(p, host, size, 0))
else:
    ok(d.cuMemsetD8(p, 7, size)); ok(d.cuCtxSynchronize())
    ok(d.cuMemcpyDtoHAsync(host, p, size, 0))
say("copies"); wait(); assert group.stop() == 0
say("stopped"); wait(); assert group.start() == 0
ok(d.cuCtxSynchronize())
out = bytearray(size); ok(d.cuMemcpyDtoH(out, p, size)); assert out.count(7) == size
assert ctypes.string_at(host, size).count(7) == size
"""

    def moved() -> int:
        return int(emulated_gpu.stats()["devices"][0][f"{direction}_bytes"])

    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "copies"
        while not moved():
            pass
        go_on(one)
        assert line(one) == "stopped"
        before = moved()
        assert before < COPIED
        run(emulated_gpu, "setup(); ok(launch('spin', 5_000_000)); ok(d.cuCtxSynchronize())")
        assert moved() == before
        go_on(one)
        finish(one)


@pytest.mark.parametrize(("users", "free"), [(1, 12), (3, 12), (4, 0)])
def test_copies_that_wait_block_their_channels(
    emulated_gpu: EmulatedGpu, users: int, free: int
) -> None:
    code = f"""
setup()
host, p = ok(d.cuMemHostAlloc(MIB, 0)), ok(d.cuMemAlloc(MIB))
assert compute().stop() == 0
kernels = ok(d.cuStreamCreate(1)); ok(launch("spin", 1000, stream=kernels))
end = ok(d.cuEventCreate(0)); ok(d.cuEventRecord(end, kernels))
for _ in range({users}):
    stream = ok(d.cuStreamCreate(1)); ok(d.cuStreamWaitEvent(stream, end, 0))
    for _ in range(4):
        ok(d.cuMemcpyDtoHAsync(host, p, 4096, stream))
        ok(d.cuMemcpyHtoDAsync(p, host, 4096, stream))
ours = [ok(d.cuStreamCreate(1)) for _ in range(12)]
for stream in ours[:{free}]:
    ok(d.cuMemcpyDtoHAsync(host, p, 4096, stream)); ok(d.cuStreamSynchronize(stream))
    ok(d.cuMemcpyHtoDAsync(p, host, 4096, stream)); ok(d.cuStreamSynchronize(stream))
for stream in ours[{free}:]:
    ok(d.cuMemcpyDtoHAsync(host, p, 4096, stream))
say("copied"); wait()
assert {{error(d.cuStreamQuery(stream)) for stream in ours[{free}:]}} <= {{"NOT_READY"}}
assert compute().start() == 0; ok(d.cuCtxSynchronize())
"""
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "copied"
        run(emulated_gpu, "setup(); ok(launch('spin', 5_000_000)); ok(d.cuCtxSynchronize())")
        go_on(one)
        finish(one)


# Memory of a kernel that is under way leaves the device, which another program then fills.
MOVED_MIB = 32
MOVES = f"""
import numpy as np
setup()
size, n = {MOVED_MIB} * MIB, {MOVED_MIB} * MIB // 4
kind = d.CUmemAllocationProp(); kind.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
kind.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access = d.CUmemAccessDesc(); access.location = kind.location
access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
at = ok(d.cuMemAddressReserve(size, 0, 0, 0)); host = ok(d.cuMemHostAlloc(size, 0))
def put():
    handle = ok(d.cuMemCreate(size, kind, 0)); ok(d.cuMemMap(at, size, 0, handle, 0))
    ok(d.cuMemSetAccess(at, size, [access], 1)); return handle
handle, mover = put(), ok(d.cuStreamCreate(1))
ok(launch("fill", at, n, 5)); ok(d.cuCtxSynchronize())
ok(launch("add", at, n, 1, 60)); ok(launch("add", at, n, 1, 1))
while ctypes.c_uint32.from_address(int(host)).value != 65:  # 5 and 60: the kernel has begun
    ok(d.cuMemcpyDtoHAsync(host, at, 4, mover)); ok(d.cuStreamSynchronize(mover))
assert compute().stop() == 0
ok(d.cuMemcpyDtoHAsync(host, at, size, mover)); ok(d.cuStreamSynchronize(mover))
ok(d.cuMemUnmap(at, size)); ok(d.cuMemRelease(handle))
say("away"); wait()
assert error(d.cuStreamQuery(0)) == "NOT_READY"
put(); ok(d.cuMemcpyHtoDAsync(at, host, size, mover)); ok(d.cuStreamSynchronize(mover))
assert compute().start() == 0
ok(d.cuCtxSynchronize()); ok(d.cuMemcpyDtoH(host, at, size))
have = np.ctypeslib.as_array((ctypes.c_uint32 * n).from_address(int(host)))
want = np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(5 + 61)
say(int((have != want).sum()))
"""
FILLS = "setup(); p = ok(d.cuMemAlloc(240 * MIB)); ok(d.cuMemsetD8(p, 9, 240 * MIB))\n"


def test_memory_of_a_stopped_kernel_moves(emulated_gpu: EmulatedGpu) -> None:
    with program(emulated_gpu, GROUPS + MOVES) as one:
        assert line(one) == "away"
        run(emulated_gpu, FILLS + "ok(d.cuCtxSynchronize())")
        go_on(one)
        assert finish(one) == "0\n"


def test_a_kernel_that_faults_memory_in_is_stopped_often(short_dir: Path) -> None:
    code = """
import numpy as np
setup()
n = 20 * MIB // 4; p = ok(d.cuMemAllocManaged(4 * n, 1)); q = ok(d.cuMemAllocManaged(4 * n, 1))
for at in (p, q): ok(launch("fill", at, n, 3))
for _ in range(3): ok(launch("add", p, n, 1, 1)); ok(launch("add", q, n, 1, 1))
stops = 0
while error(d.cuStreamQuery(0)) == "NOT_READY":
    assert compute().stop() == compute().start() == 0; stops += 1
assert stops > 10
out = np.zeros(n, dtype=np.uint32)
for at in (p, q):
    ok(d.cuMemcpyDtoH(out.ctypes.data, at, 4 * n))
    assert (out == np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(6)).all()
"""
    with EmulatedGpu(short_dir / "gpu", "emu-h200-tiny") as gpu:
        run(gpu, GROUPS + code)


# -- ends --------------------------------------------------------------------------------

STOPPED = """
setup()
p, host = ok(d.cuMemAlloc(200 * MIB)), bytearray(4)
ok(launch("spin", 10**12)); assert compute().stop() == 0
"""


def test_nothing_stays_of_a_process_that_is_killed_while_stopped(
    emulated_gpu: EmulatedGpu,
) -> None:
    code = """
say("stopped"); d.cuMemcpyDtoHAsync(host, p, 4, 0)
"""
    with program(emulated_gpu, GROUPS + STOPPED + code) as one:
        assert line(one) == "stopped"
        while not any(g["queued"] for g in emulated_gpu.stats()["groups"] if g["engine"] == "out"):
            pass
        one.kill()
    run(
        emulated_gpu,
        """
setup()
while ok(d.cuMemGetInfo())[0] < 250 * MIB: pass
ok(launch("spin", 1000)); ok(d.cuCtxSynchronize())
""",
    )
    assert one.pid not in {g["pid"] for g in emulated_gpu.stats()["groups"]}


def test_a_context_ends_while_it_is_stopped(emulated_gpu: EmulatedGpu) -> None:
    code = """
ok(d.cuDevicePrimaryCtxReset(0)); assert groups() == []
setup(); ok(d.cuMemAlloc(200 * MIB)); ok(launch("spin", 1000)); ok(d.cuCtxSynchronize())
"""
    run(emulated_gpu, GROUPS + STOPPED + code)


# -- faults ------------------------------------------------------------------------------


def test_controls_that_the_kernel_does_not_know(emulated_gpu: EmulatedGpu) -> None:
    emulated_gpu.fail(0, "controls-unknown")
    code = """
setup()
assert [g.set(50) for g in groups()] == [0x56] * 4 and compute().stop() == 0x56
ok(launch("spin", 1000)); ok(d.cuCtxSynchronize())
say("ran"); wait(); assert compute().set(50) == 0
"""
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "ran"
        emulated_gpu.fail(0, "controls-work")
        go_on(one)
        finish(one)


@pytest.mark.parametrize("call", ["compute().set(50)", "compute().stop()", "compute().start()"])
def test_a_call_that_fails_once(emulated_gpu: EmulatedGpu, call: str) -> None:
    code = f"setup(); say('up'); wait(); assert ({call}, {call}) == (0x65, 0)"
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "up"
        emulated_gpu.fail(0, "control-once")
        go_on(one)
        finish(one)


def test_a_stop_that_is_never_confirmed(emulated_gpu: EmulatedGpu) -> None:
    emulated_gpu.fail(0, "stop-hangs")
    code = """
setup()
ok(launch("spin", 20_000_000))
stop = threading.Thread(target=lambda: compute().stop(), daemon=True); stop.start()
ok(d.cuCtxSynchronize())              # the kernel runs on
assert compute().set(50) == 0         # other calls are answered
say("ran"); wait(); stop.join(); ok(launch("spin", 1)); say(error(d.cuStreamQuery(0)))
"""
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "ran"
        assert not [g for g in emulated_gpu.stats()["groups"] if g["stopped"]]
        emulated_gpu.fail(0, "controls-work")
        go_on(one)
        assert finish(one) == "NOT_READY\n"
    emulated_gpu.fail(0, "stop-hangs")
    with program(emulated_gpu, GROUPS + "setup(); say('up'); compute().stop()") as one:
        assert line(one) == "up"
        one.kill()
    run(emulated_gpu, "setup(); ok(launch('spin', 1000)); ok(d.cuCtxSynchronize())")


def test_a_user_sets_the_slices(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup(); assert compute().slice() == 2048; say("up"); wait()
assert compute().slice() == 30000 and compute().set(50) == 0 and compute().slice() == 30000
assert of_engine(IN).set(50) == 0 and of_engine(IN).slice() == 50
"""
    with program(emulated_gpu, GROUPS + code) as one:
        assert line(one) == "up"
        emulated_gpu.fail(0, "own-slice", 30000)
        go_on(one)
        finish(one)


def test_a_group_of_many_channels(emulated_gpu: EmulatedGpu) -> None:
    emulated_gpu.fail(0, "channels", 33)
    code = """
setup(); assert len(compute().channels()) == 33
streams = [ok(d.cuStreamCreate(1)) for _ in range(33)]
for stream in streams: ok(launch("spin", 1_000_000, stream=stream))
assert disable(compute().channels()[:32], True) == 0
ok(d.cuStreamSynchronize(streams[32])); assert error(d.cuStreamQuery(streams[31])) == "NOT_READY"
assert disable(compute().channels(), False) == 0; ok(d.cuCtxSynchronize())
"""
    run(emulated_gpu, GROUPS + code)
