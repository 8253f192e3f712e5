"""What the emulated devices do with memory that does not fit, and with two contexts at once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu
from tests.support.together import pairwise, zip_strict

MIB = 1 << 20


def account(gpu: EmulatedGpu, pid: int) -> dict[str, Any]:
    """What one process moved and ran."""
    return next(p for p in gpu.stats()["processes"] if p["pid"] == pid)


def test_the_least_recently_used_memory_leaves_first(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
def touch(p):
    ok(launch("checksum", p, 16 * MIB, out)); ok(d.cuCtxSynchronize())
def fill():
    p = ok(d.cuMemAllocManaged(64 * MIB, 1))
    ok(launch("fill", p, 16 * MIB, 1)); ok(d.cuCtxSynchronize())
    return p
out = ok(d.cuMemAlloc(8))
a, b, c = fill(), fill(), fill()
touch(a)      # now b is the one that was used longest ago
e = fill()    # needs room
say(os.getpid()); wait()
touch(a); touch(c); touch(e)
say("used"); wait()
touch(b)
"""
    with program(emulated_gpu, code) as process:
        pid = int(line(process))
        go_on(process)
        assert line(process) == "used"
        assert account(emulated_gpu, pid)["faulted_in"] == 0, "only b left, and nobody used it"
        go_on(process)
        finish(process)
    # b comes back; what has to leave for it is the oldest of the others.
    assert 0 < account(emulated_gpu, pid)["faulted_in"] <= 64 * MIB


def test_memory_that_did_not_change_leaves_without_a_copy(emulated_gpu: EmulatedGpu) -> None:
    out = run(
        emulated_gpu,
        """
setup()
n = 64 * MIB
p, sum_ = ok(d.cuMemAllocManaged(n, 1)), ok(d.cuMemAlloc(8))
host, device = d.CUmemLocation(), d.CUmemLocation()
host.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
device.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
def move(where):
    ok(d.cuMemPrefetchAsync(p, n, where, 0, 0)); ok(d.cuCtxSynchronize())
ok(launch("fill", p, n // 4, 1))
move(host)
for _ in range(3):
    move(device)
    ok(launch("checksum", p, n // 4, sum_))
    move(host)
assert words(p, 3) == [word(1, i) for i in range(3)]
say(os.getpid())
""",
    )
    moved = account(emulated_gpu, int(out))
    assert moved["moved_out"] == 64 * MIB
    assert (moved["copied_in"], moved["faulted_in"]) == (3 * 64 * MIB, 0)


def test_untouched_memory_crosses_no_link_and_is_zero(emulated_gpu: EmulatedGpu) -> None:
    out = run(
        emulated_gpu,
        """
setup()
p = ok(d.cuMemAllocManaged(400 * MIB, 1))
ok(launch("add", p, 25 * MIB, 1, 1)); ok(d.cuCtxSynchronize())
assert set(words(p, 1000)) == {1} and set(words(int(p) + 300 * MIB, 1000)) == {0}
say(os.getpid())
""",
    )
    assert account(emulated_gpu, int(out))["faulted_in"] == 0


def test_prefetching_memory_away_under_a_kernel_loses_nothing(emulated_gpu: EmulatedGpu) -> None:
    run(
        emulated_gpu,
        """
setup()
n = 16 * MIB
p = ok(d.cuMemAllocManaged(4 * n, 1))
host = d.CUmemLocation(); host.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
a, b = (ok(d.cuStreamCreate(1)) for _ in range(2))
ok(launch("fill", p, n, 0, stream=a)); ok(d.cuStreamSynchronize(a))
for _ in range(4):
    ok(launch("add", p, n, 1, 1, stream=a))
    ok(d.cuMemPrefetchAsync(p, 4 * n, host, 0, b))
ok(d.cuCtxSynchronize())
for i in (0, 1, n // 2, n - 1):
    assert words(int(p) + 4 * i, 1) == [word(4, i)]
ok(d.cuMemFree(p))
free, total = ok(d.cuMemGetInfo())
ok(d.cuMemAlloc(free))  # no block is stuck
""",
    )


def test_plain_memory_pushes_managed_memory_out_but_is_never_pushed(
    emulated_gpu: EmulatedGpu,
) -> None:
    run(
        emulated_gpu,
        """
setup()
m = ok(d.cuMemAllocManaged(200 * MIB, 1))
ok(launch("fill", m, 50 * MIB, 3)); ok(d.cuCtxSynchronize())
plain = ok(d.cuMemAlloc(160 * MIB))
ok(launch("fill", plain, 40 * MIB, 4))
ok(launch("add", m, 50 * MIB, 1, 1))  # pages in what room is left
assert words(m, 2) == [word(4, 0), word(4, 1)]
assert words(plain, 2) == [word(4, 0), word(4, 1)]
assert error(d.cuMemAlloc(160 * MIB)) == "OUT_OF_MEMORY"
""",
    )


def test_two_contexts_share_the_device_by_time_slices(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
say(os.getpid()); wait()
for _ in range(20):
    ok(launch("spin", 5_000_000))
ok(d.cuCtxSynchronize())
"""
    with ExitStack() as running:
        pair = [running.enter_context(program(emulated_gpu, code)) for _ in range(2)]
        pids = {int(line(process)) for process in pair}
        for process in pair:
            go_on(process)
        for process in pair:
            finish(process)
    slices = [(pid, start, end) for _, pid, start, end in emulated_gpu.trace()]
    assert {pid for pid, _, _ in slices} == pids
    assert all(a[2] <= b[1] for a, b in pairwise(slices)), "one at a time"
    # While both had work they took turns: far more often than once a kernel.
    assert sum(a[0] != b[0] for a, b in pairwise(slices)) > 40
    for pid in pids:
        assert account(emulated_gpu, pid)["kernels"] == 20
        assert account(emulated_gpu, pid)["busy_ns"] == 20 * 5_000_000


def test_taking_turns_without_room_moves_the_memory_each_time(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
n = 50 * MIB  # 200 MiB of 256
p = ok(d.cuMemAllocManaged(4 * n, 1))
ok(launch("fill", p, n, 1)); ok(d.cuCtxSynchronize())
say(os.getpid())
for turn in (2, 3):
    wait()
    ok(launch("add", p, n, 1, 1)); ok(d.cuCtxSynchronize())
    for i in (0, n // 2, n - 1):
        assert words(int(p) + 4 * i, 1) == [word(turn, i)]
    say("swept")
"""
    with ExitStack() as running:
        pair = [running.enter_context(program(emulated_gpu, code)) for _ in range(2)]
        pids = [int(line(process)) for process in pair]
        for process, pid in list(zip_strict(pair, pids)) * 2:
            before = account(emulated_gpu, pid)["faulted_in"]
            go_on(process)
            assert line(process) == "swept"
            moved = account(emulated_gpu, pid)["faulted_in"] - before
            if process is not pair[0] or before:
                # The other has swept its 200 MiB since; there was room for 56 of ours.
                assert moved >= 144 * MIB
        for process in pair:
            finish(process)


def test_what_was_added_stays_however_often_memory_leaves(emulated_gpu: EmulatedGpu) -> None:
    """Nobody has read it before it leaves the first time, and nobody writes before the second."""
    code = """
setup()
n, all = MIB, 65 * MIB  # of 256 MiB
p, q = ok(d.cuMemAllocManaged(4 * n, 1)), ok(d.cuMemAllocManaged(4 * all, 1))
ok(launch("fill", p, n, 1)); ok(launch("add", p, n, 2, 3))
out = ok(d.cuMemAlloc(8))
for _ in range(2):
    ok(launch("fill", q, all, 9)); ok(launch("checksum", p, n, out))
ok(launch("fill", q, all, 9)); ok(d.cuCtxSynchronize())
for i in (0, n // 2, n - 1):
    assert words(int(p) + 4 * i, 1) == [word(7, i)]
"""
    run(emulated_gpu, code)
