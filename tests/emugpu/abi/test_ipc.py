"""Plain memory of one process, opened by another."""

from __future__ import annotations

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu

OWNER = """
setup()
before = ok(d.cuMemGetInfo())[0]
p = ok(d.cuMemAlloc(6 * MIB))
ok(launch("fill", p, 1536 * 1024, 5)); ok(d.cuCtxSynchronize())
say(ctypes.string_at(ok(d.cuIpcGetMemHandle(p)).getPtr(), 64).hex())
"""

OPEN = """
setup()
before = ok(d.cuMemGetInfo())[0]
handle = d.CUipcMemHandle(); ctypes.memmove(handle.getPtr(), bytes.fromhex("{}"), 64)
LAZY = 1
q = int(ok(d.cuIpcOpenMemHandle(handle, LAZY)))
"""


def test_both_sides_see_the_same_bytes(emulated_gpu: EmulatedGpu) -> None:
    owner = (
        OWNER
        + """
wait()
assert words(p, 3) == [word(6, 0), word(6, 1), word(6, 2)]
assert words(int(p) + 6 * MIB - 4, 1) == [77]
"""
    )
    with program(emulated_gpu, owner) as one:
        run(
            emulated_gpu,
            OPEN.format(line(one))
            + """
assert words(q, 2) == [word(5, 0), word(5, 1)]
assert ok(d.cuMemGetInfo())[0] == before                 # it takes nothing
assert int(ok(d.cuIpcOpenMemHandle(handle, LAZY))) == q  # the same once more
ok(launch("add", q, 1024, 1, 1)); ok(d.cuMemsetD32(q + 6 * MIB - 4, 77, 1))
base, size = ok(d.cuMemGetAddressRange(q + MIB)); assert (int(base), size) == (q, 6 * MIB)
assert error(d.cuMemsetD8(q, 0, 6 * MIB + 1)) == "INVALID_VALUE"
assert error(d.cuMemFree(q)) == error(d.cuIpcGetMemHandle(q)) == "INVALID_VALUE"
ok(d.cuIpcCloseMemHandle(q)); assert words(q, 1) == [word(6, 0)]
ok(d.cuIpcCloseMemHandle(q))
assert error(d.cuMemsetD8(q, 0, 1)) == error(d.cuIpcCloseMemHandle(q)) == "INVALID_VALUE"
""",
        )
        go_on(one)
        finish(one)


def test_freed_memory_counts_until_the_last_one_lets_go(emulated_gpu: EmulatedGpu) -> None:
    owner = (
        OWNER
        + """
say("free"); wait()
ok(d.cuMemFree(p))
assert ok(d.cuMemGetInfo())[0] == before - MIB - 6 * MIB, "the other's context, and its view"
say("freed"); wait()
"""
    )
    with program(emulated_gpu, owner) as one:
        handle = line(one)
        with program(
            emulated_gpu,
            OPEN.format(handle)
            + """
say("open"); wait()
assert words(q, 2) == [word(5, 0), word(5, 1)]  # freed by its owner
ok(launch("add", q, 1024, 1, 1)); ok(d.cuCtxSynchronize())
say("used"); wait()
assert words(q, 2) == [word(6, 0), word(6, 1)]  # who is gone now
other = ok(d.cuMemAlloc(10 * MIB)); ok(launch("fill", other, 2560 * 1024, 1))
assert words(q + 6 * MIB - 4, 1) == [word(5, 1536 * 1024 - 1)]
# A context takes what it has opened along.
""",
        ) as two:
            assert line(two) == "open"
            assert line(one) == "free"
            go_on(one)
            assert line(one) == "freed"
            go_on(two)
            assert line(two) == "used"
            go_on(one)
            finish(one)
            go_on(two)
            finish(two)
    run(
        emulated_gpu,
        """
setup()
while ok(d.cuMemGetInfo())[0] < 255 * MIB:  # all but this one's context
    pass
""",
    )


def test_freed_memory_lives_until_the_last_one_lets_go(emulated_gpu: EmulatedGpu) -> None:
    """And also after the end of the process that had it: CUDA leaves that undefined."""
    opener = """
say("open"); wait()
def whole(value):
    return words(q, 1536 * 1024) == [word(value, i) for i in range(1536 * 1024)]
assert whole(5); ok(launch("fill", q, 1536 * 1024, 6)); ok(d.cuCtxSynchronize())
say("written"); wait()
other = ok(d.cuMemAlloc(10 * MIB)); ok(launch("fill", other, 2560 * 1024, 1))
assert whole(6); ok(d.cuIpcCloseMemHandle(q))
"""
    owner = OWNER + "wait(); ok(d.cuMemFree(p)); say('freed'); wait()"
    with (
        program(emulated_gpu, owner) as one,
        program(emulated_gpu, OPEN.format(line(one)) + opener) as two,
    ):
        assert line(two) == "open"
        go_on(one)
        assert line(one) == "freed"
        go_on(two)
        assert line(two) == "written"
        go_on(one)
        finish(one)
        go_on(two)
        finish(two)


def test_handles_of_small_and_inner_addresses(emulated_gpu: EmulatedGpu) -> None:
    """Each allocation has its handle, and an address within has its allocation's."""
    owner = """
setup()
def text(at): return ctypes.string_at(ok(d.cuIpcGetMemHandle(at)).getPtr(), 64).hex()
p = ok(d.cuMemAlloc(6 * MIB)); small = [ok(d.cuMemAlloc(4096)) for _ in range(3)]
for i, at in enumerate(small): ok(launch("fill", at, 1024, i))
ok(d.cuCtxSynchronize())
assert text(int(p) + 2 * MIB) == text(p)
for at in small: say(text(at))
wait()
"""
    with program(emulated_gpu, owner) as one:
        texts = [line(one) for _ in range(3)]
        run(
            emulated_gpu,
            f"""
setup()
for i, text in enumerate({texts}):
    handle = d.CUipcMemHandle(); ctypes.memmove(handle.getPtr(), bytes.fromhex(text), 64)
    at = ok(d.cuIpcOpenMemHandle(handle, 1))
    assert words(at, 1024) == [word(i, j) for j in range(1024)], i
    base, size = ok(d.cuMemGetAddressRange(at)); assert (int(base), size) == (int(at), 4096)
""",
        )
        go_on(one)
        finish(one)


def test_memory_that_cannot_be_shared_or_opened(emulated_gpu: EmulatedGpu) -> None:
    with program(emulated_gpu, OWNER + "ok(d.cuMemFree(p)); say('freed'); wait()") as one:
        handle = line(one)
        assert line(one) == "freed"
        run(
            emulated_gpu,
            f"""
setup()
gone = d.CUipcMemHandle(); ctypes.memmove(gone.getPtr(), bytes.fromhex("{handle}"), 64)
assert error(d.cuIpcOpenMemHandle(gone, 1)) == "INVALID_VALUE"
assert error(d.cuIpcOpenMemHandle(d.CUipcMemHandle(), 1)) == "INVALID_VALUE"
mine = ok(d.cuIpcGetMemHandle(ok(d.cuMemAlloc(4096))))
assert error(d.cuIpcOpenMemHandle(mine, 1)) == "INVALID_CONTEXT"
assert error(d.cuIpcOpenMemHandle(mine, 0)) == "INVALID_VALUE"
for other in (ok(d.cuMemAllocManaged(4096, 1)), ok(d.cuMemAllocAsync(4096, 0)), 4096):
    assert error(d.cuIpcGetMemHandle(other)) == "INVALID_VALUE"
""",
        )
