"""Memory that the program creates and maps by itself, as PyTorch's expandable segments are."""

from __future__ import annotations

import pytest

from tests.emugpu.server import EmulatedGpu
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell

MIB = 1 << 20
VMM = (
    swap.VMM
    + """
def create(size, files=False):
    prop.requestedHandleTypes = FILE if files else NONE
    return ok(d.cuMemCreate(size, prop, 0))
NONE, FILE = (getattr(d.CUmemAllocationHandleType, "CU_MEM_HANDLE_TYPE_" + t)
              for t in ("NONE", "POSIX_FILE_DESCRIPTOR"))
READ, BOTH = (getattr(d.CUmemAccess_flags, "CU_MEM_ACCESS_FLAGS_PROT_" + f)
              for f in ("READ", "READWRITE"))
def allow(at, size, flags=BOTH):
    access.flags = flags
    ok(d.cuMemSetAccess(at, size, [access], 1))
def mapped(size, files=False):
    at, handle = reserve(size), create(size, files)
    put(at, handle, size)
    return at, handle
def error(result): return result[0].name.removeprefix("CUDA_ERROR_")
"""
)


def reports(client: Client, uuid: str, evictable: int, fixed: int, resident: int) -> None:
    """Wait until that is what it says it has."""
    memory = evictable, fixed, resident
    client.until("a report", lambda: client.memory[uuid] == memory)


def test_a_segment_that_grows_leaves_and_comes_back(
    program: swap.Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Many small pieces side by side, one large one, and memory of cuMemAlloc among them."""
    job = program(
        VMM
        + """
at = reserve(200 * MIB)
for i in range(10):
    ok(d.cuMemMap(at + 4 * i * MIB, 4 * MIB, 0, create(4 * MIB, files=True), 0))
    if i % 5 == 4: allow(at + 4 * (i - 4) * MIB, 20 * MIB)
p = ok(d.cuMemAlloc(30 * MIB))
large, _ = mapped(50 * MIB)
blocks = [(at, 40 * MIB, 1), (p, 30 * MIB, 2), (large, 50 * MIB, 3)]
for block in blocks: fill(*block)
ok(d.cuCtxSynchronize())
for turn in range(3):
    say("ready"); wait()
    for block in blocks: check_all(*block)
    # It grows further, beside what was there.
    more = at + 40 * MIB + turn * 2 * MIB
    put(more, create(2 * MIB), 2 * MIB)
    blocks.append((more, 2 * MIB, 10 + turn)); fill(*blocks[-1]); ok(d.cuCtxSynchronize())
    say("checked"); wait()
"""
    )
    client = swap.client_of(daemon, job)
    for turn in range(3):
        size = (120 + 2 * turn) * MIB
        assert line(job) == "ready"
        client.revoke()
        reports(client, uuid, size, 0, size)
        client.evict({uuid: size})
        assert client.memory[uuid] == (size, 0, 0)
        assert swap.free_bytes(emulated_gpu) >= 200 * MIB, "it has left the device"
        tell(job)
        assert line(job) == "checked"
        tell(job)
    swap.finish(job)


def test_handles_are_the_programs_wherever_the_memory_is(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        VMM
        + """
one, handle = mapped(20 * MIB)
two, released = mapped(10 * MIB)
ok(d.cuMemRelease(released))
assert error(d.cuMemRelease(released)) == "INVALID_VALUE"
fill(one, 20 * MIB, 1); fill(two, 10 * MIB, 2); ok(d.cuCtxSynchronize())
say("ready"); wait()
found = ok(d.cuMemGetAllocationPropertiesFromHandle(handle))
assert found.location.id == 0 and found.type == prop.type
assert int(ok(d.cuMemRetainAllocationHandle(one + 5 * MIB))) == int(handle)
ok(d.cuMemRelease(handle))
again = ok(d.cuMemRetainAllocationHandle(two))
assert int(again) == int(released)
say("asked"); wait()
assert int(ok(d.cuMemGetAccess(prop.location, one))) == int(BOTH)
base, size = ok(d.cuMemGetAddressRange(one + MIB)); assert int(base) <= one + MIB
kind = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
assert int(ok(d.cuPointerGetAttribute(kind, two))) == 2
# Other addresses, the same memory.
ok(d.cuMemUnmap(one, 20 * MIB))
moved = reserve(40 * MIB)
put(moved + 4 * MIB, handle, 20 * MIB)
check_all(moved + 4 * MIB, 20 * MIB, 1); check_all(two, 10 * MIB, 2)
say("moved"); wait()
check_all(moved + 4 * MIB, 20 * MIB, 1); check_all(two, 10 * MIB, 2)
for at, size, last in ((moved + 4 * MIB, 20 * MIB, handle), (two, 10 * MIB, again)):
    ok(d.cuMemUnmap(at, size)); ok(d.cuMemRelease(last))
ok(d.cuMemAddressFree(one, 20 * MIB))
say("freed"); wait()
"""
    )
    client = swap.revoked(daemon, job)
    client.evict({uuid: 30 * MIB})
    assert client.memory[uuid] == (30 * MIB, 0, 0)
    tell(job)
    assert line(job) == "asked", "whose memory is away may ask for handles"
    wants = client.wants
    tell(job)
    client.until("a request", lambda: client.wants > wants)
    client.grant()
    assert line(job) == "moved"
    client.revoke()
    client.evict({uuid: 30 * MIB})
    tell(job)
    client.grant()
    assert line(job) == "freed"
    reports(client, uuid, 0, 0, 0)
    tell(job)
    swap.finish(job)


# How much stays, in MiB, and why.
STAYS = {
    "shown to others": (
        4,
        """
at, handle = mapped(4 * MIB, files=True)
file = ok(d.cuMemExportToShareableHandle(handle, FILE, 0))
twin = reserve(4 * MIB); put(twin, ok(d.cuMemImportFromShareableHandle(file, FILE)), 4 * MIB)
""",
    ),
    "mapped twice": (
        4,
        "at, handle = mapped(4 * MIB); twin = reserve(4 * MIB); put(twin, handle, 4 * MIB)",
    ),
    "shown to others and larger than a piece": (
        20,
        """
at, handle = mapped(20 * MIB, files=True)
fill(at, 20 * MIB, 9)
file = ok(d.cuMemExportToShareableHandle(handle, FILE, 0))
twin = reserve(20 * MIB); put(twin, ok(d.cuMemImportFromShareableHandle(file, FILE)), 20 * MIB)
check_all(twin, 20 * MIB, 9)
""",
    ),
    "mapped in part": (
        20,
        """
handle = create(20 * MIB); at, twin = reserve(20 * MIB), reserve(4 * MIB)
put(at, handle, 20 * MIB); fill(at, 20 * MIB, 9); ok(d.cuCtxSynchronize())
ok(d.cuMemMap(twin, 4 * MIB, 0, handle, 0)); allow(twin, 4 * MIB)
ok(d.cuMemUnmap(at, 20 * MIB)); put(at, handle, 4 * MIB)
check_all(twin, 4 * MIB, 9)
""",
    ),
}


@pytest.mark.parametrize("how", STAYS)
def test_memory_that_others_may_know_stays(
    program: swap.Program, daemon: FakeDaemon, uuid: str, how: str
) -> None:
    size, code = STAYS[how]
    job = program(
        VMM
        + code
        + """
p = ok(d.cuMemAlloc(20 * MIB))
fill(at, 4 * MIB, 5); fill(p, 20 * MIB, 6); ok(d.cuCtxSynchronize())
check_all(twin, 4 * MIB, 5)
say("ready"); wait()
check_all(p, 20 * MIB, 6); fill(twin, 4 * MIB, 7); check_all(at, 4 * MIB, 7)
"""
    )
    client = swap.revoked(daemon, job)
    reports(client, uuid, 20 * MIB, size * MIB, 20 * MIB)
    client.evict({uuid: 20 * MIB})
    assert client.memory[uuid] == (20 * MIB, size * MIB, 0)
    tell(job)
    client.grant()
    swap.finish(job)


def test_read_only_memory_stays_until_it_can_be_written(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        VMM
        + """
at, handle = mapped(4 * MIB); fill(at, 4 * MIB, 5); ok(d.cuCtxSynchronize())
ok(d.cuMemUnmap(at, 4 * MIB)); ok(d.cuMemMap(at, 4 * MIB, 0, handle, 0)); allow(at, 4 * MIB, READ)
say("ready"); wait()
check_all(at, 4 * MIB, 5); allow(at, 4 * MIB)
say("ready"); wait()
check_all(at, 4 * MIB, 5)
"""
    )
    client = swap.client_of(daemon, job)
    for fixed in (4 * MIB, 0):
        assert line(job) == "ready"
        reports(client, uuid, 4 * MIB - fixed, fixed, 4 * MIB - fixed)
        tell(job)
    swap.finish(job)


def test_exported_memory_has_lost_no_work(program: swap.Program, daemon: FakeDaemon) -> None:
    """Threads go on writing to memory while it becomes one object of the driver's."""
    job = program(
        VMM
        + """
import threading
at, handle = mapped(8 * MIB, files=True)
def add(p, value):
    types = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32
    values = ((p, 8 * MIB // 4, value, 1), types)
    ok(d.cuLaunchKernel(kernel["add"], 4, 1, 1, 64, 1, 1, 0, 0, values, 0))
fill(at, 8 * MIB, 0)
begun, shown, n = threading.Barrier(3), threading.Event(), [0, 0]
def work(i):
    ok(d.cuCtxSetCurrent(ctx)); add(at, 1); n[i] += 1; begun.wait()
    while not shown.is_set(): add(at, 1); n[i] += 1; ok(d.cuCtxSynchronize())
threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
for thread in threads: thread.start()
begun.wait()
file = ok(d.cuMemExportToShareableHandle(handle, FILE, 0))
shown.set()
for thread in threads: thread.join()
twin = reserve(8 * MIB); put(twin, ok(d.cuMemImportFromShareableHandle(file, FILE)), 8 * MIB)
add(twin, 1)
check_all(at, 8 * MIB, sum(n) + 1)
say("ready"); wait()
check_all(twin, 8 * MIB, sum(n) + 1)
"""
    )
    client = swap.revoked(daemon, job)
    tell(job)
    client.grant()
    swap.finish(job)


@pytest.mark.usefixtures("daemon")
def test_memory_in_pieces_cannot_be_exported_during_a_capture(program: swap.Program) -> None:
    """Its bytes would have to be moved, which waits for the end of captures."""
    job = program(
        VMM
        + """
at, handle = mapped(20 * MIB, files=True)
stream = ok(d.cuStreamCreate(1))
RELAXED = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
ok(d.cuStreamBeginCapture(stream, RELAXED))
assert error(d.cuMemExportToShareableHandle(handle, FILE, 0)) == "STREAM_CAPTURE_UNSUPPORTED"
ok(d.cuStreamEndCapture(stream))
ok(d.cuMemExportToShareableHandle(handle, FILE, 0))
"""
    )
    swap.finish(job)


def test_without_a_lease_memory_is_shown_at_once(program: swap.Program, daemon: FakeDaemon) -> None:
    """No work is under way; so it waits for no turn."""
    job = program(
        VMM
        + """
at, handle = mapped(20 * MIB, files=True)
fill(at, 20 * MIB, 3); ok(d.cuCtxSynchronize())
ok(d.cuMemUnmap(at, 20 * MIB))
say("ready"); wait()
ok(d.cuMemExportToShareableHandle(handle, FILE, 0))
say("shown"); wait()
put(at, handle, 20 * MIB)
check_all(at, 20 * MIB, 3)
"""
    )
    client = swap.revoked(daemon, job)
    wants = client.wants
    tell(job)
    assert line(job) == "shown"
    assert client.wants == wants
    client.grant()
    tell(job)
    swap.finish(job)
