"""memory:swap on devices that reach each other: what is mapped again is reached again.

Two jobs, each with the same two GPUs, of which one fits: while the one computes, most of
the other's memory is away.
"""

from __future__ import annotations

import subprocess

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, tell
from tests.support.swap_programs import VMM

MIB = 1 << 20
SIZE = 50 * MIB  # of 64 on each device


pytestmark = pytest.mark.emulated(model="emu-h200-peers", devices=2)


# Each line that is read is one step.
PROGRAM = (
    SET_UP
    + f"""
MIB, SIZE = 1 << 20, {SIZE}
from tests.emugpu.server import KERNELS
other = ok(d.cuDevicePrimaryCtxRetain(1))
ok(d.cuCtxSetCurrent(other))
module = ok(d.cuModuleLoadData(KERNELS.read_bytes() + b"\\0"))
kernels = (kernel, {{n: ok(d.cuModuleGetFunction(module, n.encode())) for n in kernel}})
def on(n): ok(d.cuCtxSetCurrent((ctx, other)[n]))
def launch(n, name, p, size, *values):
    on(n)
    types = (ctypes.c_uint64, ctypes.c_uint64, *(ctypes.c_uint32 for _ in values))
    values = ((int(p), size // 4, *values), types)
    ok(d.cuLaunchKernel(kernels[n][name], 4, 1, 1, 64, 1, 1, 0, 0, values, 0))
    return d.cuCtxSynchronize()
def fill(n, p, size, value): ok(launch(n, "fill", p, size, value))
def check(n, p, size, value, added=0):
    # Around every unit of 2 MiB, copied in the context of the memory's own device.
    on(n)
    for at in sorted({{0, size - 4, *(a - 4 for a in range(2 * MIB, size, 2 * MIB))}}):
        host = bytearray(8 if at < size - 4 else 4)
        ok(d.cuMemcpyDtoH(host, int(p) + at, len(host)))
        for i in range(0, len(host), 4):
            want = (value + (at + i) // 4 * 2654435761 + added) % 2**32
            assert int.from_bytes(host[i : i + 4], "little") == want, (n, size, at + i)
def alloc(n, size=SIZE):
    on(n); return int(ok(d.cuMemAlloc(size)))
def enable(n):
    on(n); ok(d.cuCtxEnablePeerAccess((ctx, other)[1 - n], 0))
def error(result): return result[0].name.removeprefix("CUDA_ERROR_")
def step(what):
    say(what); assert sys.stdin.readline()
"""
)

NEIGHBOUR = (
    PROGRAM
    + """
p, q = alloc(0), alloc(1)
fill(0, p, SIZE, 1); fill(1, q, SIZE, 2)
while True:
    step("was there")
    check(0, p, SIZE, 1); check(1, q, SIZE, 2)
"""
)


class Two:
    """The job that is tested, and its neighbour."""

    def __init__(self, tenant: Start, leased: Leased, code: str, options: str = "memory:swap"):
        self.leased = leased
        self.job = tenant(1, f"tq:100ms,{options}", "-c", PROGRAM + code, gpus="0,1")
        self.neighbour: subprocess.Popen[str] | None = None
        self.tenant = tenant
        self.options = options

    def expect(self, said: str, job: subprocess.Popen[str] | None = None) -> None:
        job = job or self.job
        text = line(job)
        assert text == said, job.communicate("")[1]

    def away(self) -> None:
        """Have the neighbour compute on both devices, so that the job's memory leaves them."""
        if self.neighbour is None:
            # Else what the job has just allocated may pass for contexts, that need room.
            wait_until("contexts to be measured", self.measured)
            words = ("-c", NEIGHBOUR)
            self.neighbour = self.tenant(2, f"tq:100ms,{self.options}", *words, gpus="0,1")
        else:
            tell(self.neighbour)
        self.expect("was there", self.neighbour)

    def measured(self) -> bool:
        devices = ask(self.leased.admin_socket, {"op": "status"})["devices"]
        return all(0 < device["overhead_bytes"] <= MIB for device in devices)

    def go_on(self) -> None:
        tell(self.job)

    def lose_it(self) -> None:
        """When the job is ready its memory leaves; then it goes on."""
        self.expect("ready")
        self.away()
        self.go_on()

    def finish(self) -> None:
        """The job to its end. On each device its memory has left and come back."""
        output(self.job, timeout=120)
        if "swap" in self.options:
            usage = ask(self.leased.admin_socket, {"op": "usage", "job_id": 1})["usage"]
            assert len(usage) == 2
            assert all(used["moved_bytes"] >= 30 * MIB for used in usage.values()), usage


@pytest.mark.parametrize("when", ["before", "after", "away", "pool"])
def test_a_kernel_reaches_a_peers_memory_that_came_back(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, when: str
) -> None:
    """Access is given before there is memory, after it, while it is away; or to a pool."""
    code = f"""
when = {when!r}
if when == "before": enable(0)
if when == "pool":
    pool, open_to = ok(d.cuDeviceGetDefaultMemPool(1)), d.CUmemAccessDesc()
    open_to.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    open_to.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(d.cuMemPoolSetAccess(pool, [open_to], 1))
    on(1); q = int(ok(d.cuMemAllocAsync(SIZE, 0)))
else:
    q = alloc(1)
p = alloc(0)
small = [alloc(n, 5000) for n in (0, 1)][1]
fill(1, q, SIZE, 3); fill(1, small, 5000, 4); fill(0, p, SIZE, 5)
if when == "after": enable(0)
for turn in range(1, 4):
    step("ready")
    if when == "away" and turn == 1: enable(0)
    ok(launch(0, "add", q, SIZE, 7, 1)); ok(launch(0, "add", small, 5000, 9, 1))
    check(1, q, SIZE, 3, 7 * turn); check(1, small, 5000, 4, 9 * turn); check(0, p, SIZE, 5)
late = alloc(1, 3 * MIB)  # what comes later is reached, too
fill(0, late, 3 * MIB, 8); check(1, late, 3 * MIB, 8)
"""
    two = Two(tenant, leased, code)
    for _ in range(3):
        two.lose_it()
    two.finish()
    # Over the link between the devices, and in one direction alone.
    crossed = [device["peer_bytes"] for device in emulated_gpu.stats()["devices"]]
    assert crossed[0] >= 3 * SIZE
    assert crossed[1] == 0


def test_memory_mapped_for_two_devices_is_restored_for_both(tenant: Start, leased: Leased) -> None:
    """Access to a mapping, given before it is away or meanwhile, and not to others beside it."""
    code = """
prop.location.id = 1
def allow(at, size, *devices):
    access = [d.CUmemAccessDesc() for _ in devices]
    for one, n in zip(access, devices):
        one.location.type, one.location.id = prop.location.type, n
        one.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(d.cuMemSetAccess(at, size, access, len(access)))
def may(n, at):
    where = d.CUmemLocation(); where.type, where.id = prop.location.type, n
    return bool(int(ok(d.cuMemGetAccess(where, at))))
p = alloc(0); fill(0, p, SIZE, 5)
q = reserve(SIZE + 4 * MIB)
low, high = 26 * MIB, 24 * MIB
for at, size in ((q, low), (q + low, high), (q + SIZE, 4 * MIB)):
    ok(d.cuMemMap(at, size, 0, ok(d.cuMemCreate(size, prop, 0)), 0))
allow(q, low, 0, 1); allow(q + low, high + 4 * MIB, 1)
fill(1, q, SIZE, 3); ok(launch(0, "add", q, low, 7, 1))
step("ready")
allow(q + low, high, 0)
step("ready")
ok(launch(0, "add", q, SIZE, 7, 1))
assert [may(n, q + SIZE) for n in (0, 1)] == [False, True]
check(1, q, low, 3, 14); check(0, p, SIZE, 5)
step("ready")
ok(launch(0, "add", q + low, high, 7, 1)); check(1, q, low, 3, 14)
check(1, q + low, high, 3 + low // 4 * 2654435761, 14)
"""
    two = Two(tenant, leased, VMM + code)
    for _ in range(3):
        two.lose_it()
    two.finish()


def test_access_that_is_disabled_again(tenant: Start, leased: Leased) -> None:
    """The driver's answers stay what they are; swapped memory stays in reach, and whole."""
    code = """
q, p = alloc(1), alloc(0)
fill(1, q, SIZE, 3); fill(0, p, SIZE, 5)
enable(0)
assert error(d.cuCtxEnablePeerAccess(other, 0)) == "PEER_ACCESS_ALREADY_ENABLED"
ok(launch(0, "add", q, SIZE, 7, 1))
on(0); ok(d.cuCtxDisablePeerAccess(other))
assert error(d.cuCtxDisablePeerAccess(other)) == "PEER_ACCESS_NOT_ENABLED"
step("ready")
check(1, q, SIZE, 3, 7); check(0, p, SIZE, 5)
on(0); ok(d.cuMemcpyDtoD(p, q, SIZE)); check(0, p, SIZE, 3, 7)
assert error(d.cuCtxDisablePeerAccess(other)) == "PEER_ACCESS_NOT_ENABLED"
ok(launch(0, "add", q, SIZE, 1, 1))
step("ready")
enable(0); ok(launch(0, "add", q, SIZE, 1, 1)); check(1, q, SIZE, 3, 9)
"""
    two = Two(tenant, leased, code)
    for _ in range(2):
        two.lose_it()
    two.finish()


COPIES = """
q, p = alloc(1), alloc(0)
small = [alloc(n, 3000) for n in (0, 1)]
s = []
for n in (0, 1): on(n); s.append(ok(d.cuStreamCreate(1)))
def graph(to, source, size, n):
    ok(d.cuStreamBeginCapture(s[n], d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    ok(d.cuMemcpyDtoDAsync(to, source, size, s[n]))
    run = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(s[n])), 0))
    return d.cuGraphLaunch(run, s[n])
hows = {
    "Peer": lambda to, source, size, n: d.cuMemcpyPeer(to, ctx, source, other, size),
    "PeerAsync": lambda to, source, size, n: d.cuMemcpyPeerAsync(
        to, ctx, source, other, size, s[n]),
    "DtoD": lambda to, source, size, n: d.cuMemcpyDtoD(to, source, size),
    "DtoDAsync": lambda to, source, size, n: d.cuMemcpyDtoDAsync(to, source, size, s[n]),
    "any": lambda to, source, size, n: d.cuMemcpy(to, source, size),
    "graph": graph,
}
value = 0
def copies(names):
    # From device 1 to device 0, in the context of either; across seams of segments.
    global value
    for name in names:
        for n in (0, 1):
            value += 1
            fill(1, q, SIZE, value); fill(1, small[1], 3000, value)
            on(n)
            ok(hows[name](p, q, SIZE, n)); ok(hows[name](small[0], small[1], 3000, n))
            ok(d.cuStreamSynchronize(s[n]))
            check(0, p, SIZE, value); check(0, small[0], 3000, value)
"""


@pytest.mark.parametrize("how", ["Peer", "DtoD", "DtoDAsync", "any", "graph"])
def test_copies_between_devices_as_of_memory_that_is_not_swapped(
    tenant: Start, leased: Leased, how: str
) -> None:
    """No peer access is enabled: the driver copies cuMemAlloc's memory all the same."""
    names = ("Peer", "PeerAsync") if how == "Peer" else (how,)
    two = Two(tenant, leased, COPIES + f"copies({names}); step('ready'); copies({names})")
    two.lose_it()
    two.finish()


def test_host_copies_and_calls_that_are_wrong(tenant: Start, leased: Leased) -> None:
    """In the context of another device; and what the driver refuses stays refused."""
    code = """
q, p = alloc(1), alloc(0)
fill(0, p, SIZE, 5)
step("ready")
on(0)
data = os.urandom(4096)
host = int(ok(d.cuMemHostAlloc(4096, 1))); s = ok(d.cuStreamCreate(1))
ok(d.cuMemcpyHtoD(q + 8, data, 4096))
back = bytearray(4096); ok(d.cuMemcpyDtoH(back, q + 8, 4096)); assert back == data
ok(d.cuMemcpyDtoHAsync(host, q + 8, 4096, s)); ok(d.cuStreamSynchronize(s))
assert ctypes.string_at(host, 4096) == data
for bad in (d.cuMemcpyDtoH(back, q + SIZE - 4, 64), d.cuMemsetD32(q + 2, 0, 1),
            d.cuMemcpyDtoD(p, q, 2 * SIZE)):
    assert error(bad) == "INVALID_VALUE"
check(0, p, SIZE, 5)
"""
    two = Two(tenant, leased, code)
    two.lose_it()
    two.finish()


def test_memory_that_the_driver_pages_is_reached_as_well(tenant: Start, leased: Leased) -> None:
    code = """
enable(0)
q, p = alloc(1), alloc(0)
assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, q))
fill(1, q, SIZE, 3); fill(0, p, SIZE, 5)
step("ready")
ok(launch(0, "add", q, SIZE, 7, 1)); check(1, q, SIZE, 3, 7)
on(0); ok(d.cuCtxDisablePeerAccess(other)); ok(d.cuMemcpyPeer(p, ctx, q, other, SIZE))
check(0, p, SIZE, 3, 7)
"""
    two = Two(tenant, leased, code, options="memory:managed")
    two.lose_it()
    two.finish()


@pytest.mark.emulated(model="emu-a100-tiny", devices=2)
def test_devices_that_are_no_peers(tenant: Start, leased: Leased) -> None:
    """Copies that name both contexts work. Others are refused, and nothing breaks."""
    code = (
        COPIES
        + """
on(0)
assert error(d.cuCtxEnablePeerAccess(other, 0)) == "PEER_ACCESS_UNSUPPORTED"
copies(["Peer", "PeerAsync"])
step("ready")
on(0)
assert error(d.cuMemcpyDtoD(p, q, SIZE)) == "INVALID_VALUE"
check(0, p, SIZE, value); check(1, q, SIZE, value)
copies(["Peer"])
"""
    )
    two = Two(tenant, leased, code)
    two.lose_it()
    two.finish()
