"""The interposer's half of memory:swap: real bytes on the emulated GPU, under a fake daemon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes
from tests.emugpu.server import BUILD, ROOT, EmulatedGpu
from tests.slurm.leased import CHECKED
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import SET_UP, line, tell

MIB = 1 << 20
TOTAL = 240 * MIB
KNOWN = 67 * 4096  # bytes by which a device's fingerprints are tried once (fingerprinter.c)

# Blocks of memory with known words; each line that is read is one step.
PROGRAM = (
    SET_UP
    + """
MIB = 1 << 20
def fill(p, size, value):
    values = ((int(p), size // 4, value), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
    ok(d.cuLaunchKernel(kernel["fill"], 4, 1, 1, 64, 1, 1, 0, 0, values, 0))
def word(value, i):
    return (value + i * 2654435761) % 2**32
def check(p, size, value):
    # Words at both ends, and around every seam of segments.
    seams = range(2 * MIB, size, 2 * MIB)
    for at in sorted({0, size - 4, *seams, *(seam - 4 for seam in seams)}):
        host = bytearray(4)
        ok(d.cuMemcpyDtoH(host, int(p) + at, 4))
        assert int.from_bytes(host, "little") == word(value, at // 4), (hex(int(p)), size, at)
def check_all(p, size, value):
    host = bytearray(size)
    ok(d.cuMemcpyDtoH(host, int(p), size))
    words = memoryview(host).cast("I")
    for i in range(0, size // 4, 997):
        assert words[i] == word(value, i), (hex(int(p)), size, i)
    assert words[-1] == word(value, size // 4 - 1)
def wait():
    assert sys.stdin.readline()
say(os.getpid())
"""
)

Program = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def uuid(emulated_gpu: EmulatedGpu) -> str:
    return str(emulated_gpu.stats()["devices"][0]["uuid"])


@pytest.fixture
def daemon(short_dir: Path, uuid: str) -> Iterator[FakeDaemon]:
    with FakeDaemon(short_dir / "tenant.sock", {uuid: TOTAL}) as fake:
        yield fake


@pytest.fixture
def program(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Program]:
    """Start a program under the interposer; killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        ours = {"LD_PRELOAD": str(CHECKED), "GPU_LEASE_SOCKET": str(short_dir / "tenant.sock")}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            cwd=ROOT,
            env=os.environ | emulated_gpu.env | ours | {"GPU_LEASE_DEBUG": "1"} | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        sys.stderr.write("".join(process.communicate()))  # shown with a failure


def client_of(daemon: FakeDaemon, process: subprocess.Popen[str]) -> Client:
    return daemon.client(int(line(process)))


def revoked(daemon: FakeDaemon, process: subprocess.Popen[str]) -> Client:
    """It has said that it is ready, and its lease is over."""
    client = client_of(daemon, process)
    assert line(process) == "ready"
    daemon.auto = False
    client.revoke()
    return client


def free_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["free"])


def out_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["out_bytes"])


def in_bytes(gpu: EmulatedGpu, device: int = 0) -> int:
    return int(gpu.stats()["devices"][device]["in_bytes"])


def finish(process: subprocess.Popen[str]) -> str:
    """To its end; what it said on stderr."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    return err


def test_bytes_survive_and_addresses_stay(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
sizes = [100 * MIB, 3 * MIB + 512, 4096, 512, 40 * MIB]
held = [(ok(d.cuMemAlloc(size)), size, n) for n, size in enumerate(sizes)]
for one in held: fill(*one)
ok(d.cuCtxSynchronize())
for turn in range(3):
    say("ready"); wait()
    for one in held: check_all(*one)
    say("checked"); wait()
"""
    )
    client = client_of(daemon, job)
    before = free_bytes(emulated_gpu)
    for _ in range(3):
        assert line(job) == "ready"
        has = client.memory[uuid]
        assert has.resident == has.evictable == (100 + 4 + 2 + 40) * MIB
        daemon.auto = False
        client.revoke()
        client.evict({uuid: has.resident})
        assert free_bytes(emulated_gpu) >= before
        tell(job)
        client.grant()
        assert line(job) == "checked"
        tell(job)
    finish(job)


# What the program creates and maps itself, in pieces side by side.
VMM = """
prop, access = d.CUmemAllocationProp(), d.CUmemAccessDesc()
prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.location = prop.location
access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
def reserve(size): return int(ok(d.cuMemAddressReserve(size, 0, 0, 0)))
def put(at, handle, size):
    ok(d.cuMemMap(at, size, 0, handle, 0)); ok(d.cuMemSetAccess(at, size, [access], 1))
"""

RANDOM = (
    VMM
    + """
import random, threading
class Mapped:
    def __init__(self, size, chance):
        self.size = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        self.at = reserve(self.size)
        self.pieces, done = [], 0
        while done < self.size:
            piece = min(chance.choice((2, 8, 14)) * MIB, self.size - done)
            self.pieces.append((done, piece, ok(d.cuMemCreate(piece, prop, 0))))
            put(self.at + done, self.pieces[-1][2], piece)
            done += piece
    def move(self):
        ok(d.cuCtxSynchronize())
        at = reserve(self.size)
        for done, piece, handle in self.pieces:
            ok(d.cuMemUnmap(self.at + done, piece)); put(at + done, handle, piece)
        ok(d.cuMemAddressFree(self.at, self.size))
        self.at = at
    def free(self):
        ok(d.cuCtxSynchronize())
        for _, _, handle in self.pieces: ok(d.cuMemRelease(handle))
        ok(d.cuMemUnmap(self.at, self.size)); ok(d.cuMemAddressFree(self.at, self.size))
    def __int__(self): return self.at
def allocate(n, size, stream, chance):
    if n % 4 == 3: return Mapped(size, chance)
    p = ok(d.cuMemAllocAsync(size, stream) if n % 4 == 0 else d.cuMemAlloc(size))
    if n % 4 == 0: ok(d.cuStreamSynchronize(stream))
    return p
def free(p, n, stream):
    if n % 4 == 3: p.free()
    else: ok(d.cuMemFreeAsync(p, stream) if n % 4 == 0 else d.cuMemFree(p))
def work(seed, until):
    chance = random.Random(seed)
    ok(d.cuCtxSetCurrent(ctx))
    stream = ok(d.cuStreamCreate(1))
    have, most, n = [], 40 * MIB, 0
    while not until.is_set():
        size = chance.choice((512, 3000, 70_000, MIB, 5 * MIB + 4, 20 * MIB)) // 4 * 4
        if sum(one[1] for one in have) + size < most and chance.random() < 0.6:
            n += 1
            have.append((allocate(n, size, stream, chance), size, seed * 1000 + n, n))
            fill(*have[-1][:3])
        elif have:
            p, size, value, kind = have.pop(chance.randrange(len(have)))
            check(p, size, value)
            free(p, kind, stream)
        if have:
            p, size, value, kind = chance.choice(have)
            if kind % 4 == 3 and chance.random() < 0.5: p.move()
            check(p, size, value)
    for p, size, value, kind in have:
        check_all(p, size, value)
        free(p, kind, stream)
    ok(d.cuStreamSynchronize(stream))
"""
)


def leaves(client: Client, uuid: str, amount: int) -> None:
    """Evict until it has less there than now: meanwhile its threads may map some more."""
    had = client.resident(uuid)

    def less() -> bool:
        client.send(daemon_messages.evict({uuid: amount}))
        return client.resident(uuid) < max(1, had)

    wait_until("an eviction", less)


def test_random_allocations_through_many_rounds(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    """Four threads allocate, free and look while memory comes and goes under them."""
    job = program(
        RANDOM
        + """
until, faults = threading.Event(), []
def run(seed):
    try: work(seed, until)
    except BaseException as fault: faults.append(repr(fault)); raise
threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
for t in threads: t.start()
wait(); until.set()
for t in threads: t.join()
assert not faults, faults
ok(d.cuMemPoolTrimTo(ok(d.cuDeviceGetMemPool(0)), 0))
assert ok(d.cuMemGetInfo())[0] == ok(d.cuMemGetInfo())[1]
"""
    )
    client = client_of(daemon, job)
    chance = random.Random(5)
    client.until("allocations", lambda: client.resident(uuid) > 20 * MIB)
    daemon.auto = False
    for turn in range(25):
        client.revoke()
        amount = chance.choice((1, client.resident(uuid) // 2, 1 << 40))
        client.send(daemon_messages.evict({uuid: amount}))
        if turn % 2:
            leaves(client, uuid, max(1, amount))
        for _ in range(chance.randrange(3)):  # some of it comes early, and may have to go again
            client.send(daemon_messages.preload({uuid: chance.choice((1, 30 * MIB, 1 << 40))}))
            if chance.random() < 0.5:
                client.send(daemon_messages.evict({uuid: chance.choice((1, 20 * MIB, 1 << 40))}))
        calls = client.calls()
        client.grant()
        if chance.random() < 0.5:
            client.send(daemon_messages.expect({uuid: chance.choice((1, 1 << 40))}))
        if turn % 3:  # else it is taken back while memory is on its way
            wait_until("calls", lambda calls=calls: client.calls() > calls + 20)  # type: ignore[misc]
    daemon.auto = True
    tell(job)
    finish(job)


def test_what_is_preloaded_is_there_before_the_gate_opens(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
p, q = ok(d.cuMemAlloc(100 * MIB)), ok(d.cuMemAlloc(40 * MIB))
fill(p, 100 * MIB, 1); fill(q, 40 * MIB, 2); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 100 * MIB, 1); check_all(q, 40 * MIB, 2)
say("checked")
"""
    )
    client = revoked(daemon, job)
    client.evict({uuid: 140 * MIB})
    tell(job)
    calls, before = client.calls(), in_bytes(emulated_gpu)
    client.send(daemon_messages.preload({uuid: 60 * MIB}))
    client.until("a part", lambda: client.resident(uuid) >= 40 * MIB)
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.until("all of it", lambda: client.resident(uuid) == 140 * MIB)
    # It is there as soon as it has room; its bytes follow.
    wait_until("its bytes", lambda: in_bytes(emulated_gpu) - before >= 140 * MIB)
    assert client.calls() == calls, "who waits at the gate goes on waiting"
    # Nobody can have touched it, so it leaves again without a copy, and comes again.
    moved = out_bytes(emulated_gpu)
    client.evict({uuid: 100 * MIB})
    assert out_bytes(emulated_gpu) == moved
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    wait_until("its bytes", lambda: in_bytes(emulated_gpu) - before >= 240 * MIB)
    before = in_bytes(emulated_gpu)
    client.grant()
    assert line(job) == "checked"
    assert in_bytes(emulated_gpu) == before, "all had come"
    finish(job)


def test_preloading_follows_an_eviction_and_ends_with_the_next(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(140 * MIB)); fill(p, 140 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 140 * MIB, 1)
say("checked")
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 140 * MIB}))
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.until("what has left", lambda: client.resident(uuid) < 70 * MIB)
    client.until("its return", lambda: client.resident(uuid) == 140 * MIB)
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.evict({uuid: 140 * MIB})
    tell(job)
    client.grant()
    assert line(job) == "checked"
    finish(job)


def test_the_oldest_leave_first_and_only_as_many_as_must(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
a, b = (ok(d.cuMemAlloc(70 * MIB)) for _ in "ab")
fill(a, 70 * MIB, 1); fill(b, 70 * MIB, 2); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(a, 70 * MIB, 1); check_all(b, 70 * MIB, 2)
say("checked"); wait()
ok(d.cuMemFree(a)); say("freed"); wait()
check_all(b, 70 * MIB, 2)
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    client.grant()
    assert line(job) == "ready"
    client.revoke()
    moved_in, moved_out = in_bytes(emulated_gpu), out_bytes(emulated_gpu)
    client.evict({uuid: 20 * MIB})
    left = 4 * 6 * MIB  # pieces are a 32nd of what the job sees, in units of 2 MiB
    assert client.resident(uuid) == 140 * MIB - left
    assert out_bytes(emulated_gpu) - moved_out == left
    client.grant()
    tell(job)
    assert line(job) == "checked"
    assert client.resident(uuid) == 140 * MIB
    assert in_bytes(emulated_gpu) - moved_in == left + KNOWN, "only what had left"
    client.revoke()
    client.evict({uuid: 70 * MIB})
    tell(job)
    assert line(job) == "freed"
    client.until("free", lambda: client.memory[uuid].evictable == 70 * MIB)
    assert client.resident(uuid) == 70 * MIB, "it was the younger that stayed"
    tell(job)
    client.grant()
    finish(job)


def test_what_nobody_has_touched_is_not_copied_again(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
never = ok(d.cuMemAlloc(30 * MIB))  # no lease yet, and nothing in it
say("has"); wait()
p = ok(d.cuMemAlloc(60 * MIB)); fill(p, 60 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
check(p, 60 * MIB, 1); say("checked"); wait()
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    assert line(job) == "has"
    client.until("report", lambda: client.memory.get(uuid, DeviceBytes()).evictable == 30 * MIB)
    assert client.resident(uuid) == 0
    client.grant()
    client.until("memory", lambda: client.resident(uuid) == 30 * MIB)
    client.revoke()
    client.evict({uuid: 1 << 40})
    assert out_bytes(emulated_gpu) == in_bytes(emulated_gpu) == 0, "there was nothing to copy"
    client.grant()
    tell(job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    copied = out_bytes(emulated_gpu)
    assert copied == 90 * MIB
    for _ in range(3):
        client.grant()
        client.until("return", lambda: client.resident(uuid) == 90 * MIB)
        client.revoke()
        client.evict({uuid: 1 << 40})
        assert out_bytes(emulated_gpu) == copied
    client.grant()
    tell(job)
    assert line(job) == "checked"  # calls that only read, as the device finds
    copied = out_bytes(emulated_gpu)
    client.revoke()
    client.evict({uuid: 1 << 40})
    assert out_bytes(emulated_gpu) == copied
    tell(job)
    client.grant()
    finish(job)


TWO = """
p = ok(d.cuMemAlloc(160 * MIB)); say("has"); wait()
fill(p, 160 * MIB, VALUE); ok(d.cuCtxSynchronize()); say("filled"); wait()
while True:
    check(p, 160 * MIB, VALUE); say("checked")
    if sys.stdin.readline().strip() == "end": break
"""


def two_full(
    program: Program, daemon: FakeDaemon, uuid: str
) -> tuple[list[subprocess.Popen[str]], list[Client]]:
    """Two processes of 160 MiB on a device of 256: the second is there, the first away."""
    daemon.auto = False
    jobs = [program(f"VALUE = {n}" + TWO) for n in (1, 2)]
    clients = [client_of(daemon, job) for job in jobs]
    for job, client in zip(jobs, clients, strict=True):
        assert line(job) == "has"
        client.grant()
        tell(job)
        assert line(job) == "filled"
        client.revoke()
        if client is clients[0]:
            client.evict({uuid: 1 << 40})
    return jobs, clients


def end(job: subprocess.Popen[str]) -> None:
    assert job.stdin is not None
    job.stdin.write("end\n")
    job.stdin.flush()


def test_one_comes_as_the_other_leaves(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    (one, two), (a, b) = two_full(program, daemon, uuid)
    tell(one)
    a.grant()
    a.until("what fits", lambda: a.resident(uuid) >= 84 * MIB)
    for _ in range(3):
        was = a.resident(uuid)
        assert was < 160 * MIB
        b.evict({uuid: 14 * MIB})
        a.until("another piece", lambda was=was: a.resident(uuid) > was)  # type: ignore[misc]
    b.evict({uuid: 1 << 40})
    assert line(one) == "checked"
    # And the other way round, both at once.
    a.revoke()
    tell(two)
    b.grant()
    a.send(daemon_messages.evict({uuid: 1 << 40}))
    assert line(two) == "checked"
    b.revoke()
    b.send(daemon_messages.evict({uuid: 1 << 40}))
    for job, client in ((one, a), (two, b)):
        client.grant()
        end(job)
        finish(job)


def test_a_revoke_ends_a_restore_that_finds_no_room(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    (one, two), (a, b) = two_full(program, daemon, uuid)
    tell(one)
    a.grant()
    a.until("what fits", lambda: a.resident(uuid) >= 84 * MIB)
    a.revoke()
    a.evict({uuid: 1 << 40})
    b.grant()
    tell(two)
    assert line(two) == "checked"
    b.revoke()
    b.evict({uuid: 1 << 40})
    a.grant()
    assert line(one) == "checked"
    end(one)
    finish(one)
    b.grant()
    end(two)
    finish(two)


def test_an_allocation_waits_until_others_have_left(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    daemon.auto = False
    one = program(TWO.replace("VALUE", "1"))
    a = client_of(daemon, one)
    assert line(one) == "has"
    a.grant()
    tell(one)
    assert line(one) == "filled"
    a.revoke()
    two = program(
        """
ok(spin(1000)); ok(d.cuCtxSynchronize())
p = ok(d.cuMemAlloc(160 * MIB)); fill(p, 160 * MIB, 2); check(p, 160 * MIB, 2)
say("has"); wait()
assert d.cuMemAlloc(70 * MIB)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
check(p, 160 * MIB, 2)
say(ok(d.cuMemGetInfo())[0] // MIB)
"""
    )
    b = client_of(daemon, two)
    b.grant()
    b.until("a report", lambda: b.memory.get(uuid, DeviceBytes()).evictable == 160 * MIB)
    b.until("what fits", lambda: b.resident(uuid) >= 84 * MIB)
    assert b.resident(uuid) < 160 * MIB
    a.evict({uuid: 80 * MIB})
    assert line(two) == "has"
    tell(two)  # within its limit there is room for 70 more, and nobody makes it
    assert line(two) == "80"
    finish(two)
    a.grant()
    tell(one)
    assert line(one) == "checked"
    end(one)
    finish(one)


def test_a_kill_while_memory_moves_frees_the_device(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    all_of_it = free_bytes(emulated_gpu)
    (_, two), (a, b) = two_full(program, daemon, uuid)
    b.send(daemon_messages.evict({uuid: 1 << 40}))
    b.until("the first to leave", lambda: b.resident(uuid) < 160 * MIB)
    os.kill(b.pid, signal.SIGKILL)
    two.wait()
    a.grant()
    a.until("all to be there", lambda: a.resident(uuid) == 160 * MIB)
    os.kill(a.pid, signal.SIGKILL)
    wait_until("an empty device", lambda: free_bytes(emulated_gpu) == all_of_it)


def test_without_host_memory_nothing_is_lost(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
import resource
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7); ok(d.cuCtxSynchronize())
pages = int(open("/proc/self/statm").read().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 40 * MIB, before[1]))
say("ready"); wait()
check(p, 100 * MIB, 7)
resource.setrlimit(resource.RLIMIT_AS, before)
say("checked"); wait()
check_all(p, 100 * MIB, 7)
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 100 * MIB}))
    client.until("that it stays", lambda: client.memory[uuid].resident == 0)
    has = client.memory[uuid]
    assert has.evictable + has.fixed == 100 * MIB
    assert 60 * MIB <= has.fixed < 100 * MIB, "some was there for a copy, not for all"
    client.grant()
    client.until("return", lambda: client.resident(uuid) == has.evictable)
    assert client.memory[uuid].fixed == has.fixed, "there is no more room than before"
    tell(job)
    assert line(job) == "checked"
    client.revoke()
    client.evict({uuid: 100 * MIB})
    assert client.memory[uuid] == (100 * MIB, 0, 0)
    client.grant()
    tell(job)
    assert finish(job).count("there is no host memory") == 1


def test_pointers_are_known_wherever_the_bytes_are(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
A = d.CUpointer_attribute
def attribute(name, p):
    return ok(d.cuPointerGetAttribute(getattr(A, "CU_POINTER_ATTRIBUTE_" + name), p))
held = [(int(ok(d.cuMemAlloc(size))), size) for size in (50 * MIB + 4, 100, 600, MIB - 1)]
ok(spin(1000)); ok(d.cuCtxSynchronize())
def look():
    ids = set()
    for p, size in held:
        for at in (p, p + size - 1):
            base, n = ok(d.cuMemGetAddressRange(at))
            assert (int(base), n) == (p, size), (hex(at), base, n)
            assert int(attribute("RANGE_START_ADDR", at)) == p
            assert int(attribute("RANGE_SIZE", at)) == size
            assert int(attribute("DEVICE_POINTER", at)) == at
            assert attribute("MEMORY_TYPE", at) == d.CUmemorytype.CU_MEMORYTYPE_DEVICE
            assert not attribute("IS_MANAGED", at) and attribute("DEVICE_ORDINAL", at) == 0
            ids.add(attribute("BUFFER_ID", at))
        names = (A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, A.CU_POINTER_ATTRIBUTE_IS_MANAGED,
                 A.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        found = ok(d.cuPointerGetAttributes(3, list(names), p))
        assert (int(found[0]), bool(found[1]), found[2]) == (2, False, 0), found
        assert attribute("IS_LEGACY_CUDA_IPC_CAPABLE", p)
        assert d.cuMemRetainAllocationHandle(p)[0] == d.CUresult.CUDA_ERROR_INVALID_VALUE
        assert d.cuMemUnmap(p, 2 * MIB)[0] == d.CUresult.CUDA_ERROR_INVALID_VALUE
    assert len(ids) == len(held)
look(); say("looked"); wait()
look(); say("looked"); wait()
for p, _ in held: ok(d.cuMemFree(p))
for p, _ in held: assert d.cuMemGetAddressRange(p)[0] != d.CUresult.CUDA_SUCCESS
free, total = ok(d.cuMemGetInfo())
assert free == total
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "looked"
    daemon.auto = False
    client.revoke()
    client.evict({uuid: 1 << 40})
    tell(job)
    assert line(job) == "looked"
    tell(job)  # and they are freed while they are away
    finish(job)


def test_stream_ordered_memory(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
s = ok(d.cuStreamCreate(1))
a = ok(d.cuMemAllocAsync(30 * MIB, s)); b = ok(d.cuMemAllocAsync(1000, s))
MANAGED = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
assert not ok(d.cuPointerGetAttribute(MANAGED, a))
ok(d.cuStreamSynchronize(s)); fill(a, 30 * MIB, 3); fill(b, 1000, 4); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(a, 30 * MIB, 3); check(b, 1000, 4)
ok(d.cuMemFreeAsync(a, s)); ok(d.cuStreamSynchronize(s))
assert int(ok(d.cuMemAllocAsync(30 * MIB, s))) == int(a)  # kept for the next one
ok(d.cuMemFree(a)); ok(d.cuMemFreeAsync(b, s)); ok(d.cuStreamSynchronize(s))
ok(d.cuMemPoolTrimTo(ok(d.cuDeviceGetMemPool(0)), 0))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    tell(job)
    finish(job)


def test_graphs_outlive_an_eviction(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    """What was captured runs afterwards; what is captured while memory is away waits for it."""
    job = program(
        """
RELAXED = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
GLOBAL = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
s = ok(d.cuStreamCreate(1))
p, q = (ok(d.cuMemAlloc(20 * MIB)) for _ in "pq")
fill(p, 20 * MIB, 5); ok(d.cuCtxSynchronize())
def capture(mode):
    ok(d.cuStreamBeginCapture(s, mode))
    ok(d.cuMemcpyDtoDAsync(q, p, 20 * MIB, s))
    ok(d.cuMemsetD32Async(p, 9, 4, s))
    graph = ok(d.cuStreamEndCapture(s))
    return ok(d.cuGraphInstantiate(graph, 0))
run = capture(GLOBAL)
say("captured"); wait()
ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
check_all(q, 20 * MIB, 5)
fill(p, 20 * MIB, 6); ok(d.cuMemsetD8(q, 0, 20 * MIB)); ok(d.cuCtxSynchronize())
say("ran"); wait()
run = capture(GLOBAL)
ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
check_all(q, 20 * MIB, 6)
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    client.grant()
    for said in ("captured", "ran"):
        assert line(job) == said
        client.revoke()
        client.evict({uuid: 1 << 40})
        wants = client.wants
        tell(job)
        client.until("a call that waits", lambda wants=wants: client.wants > wants)  # type: ignore[misc]
        client.grant()
    finish(job)


def test_memory_moves_beside_a_capture(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    """A capture that begins while memory leaves or comes is not harmed, and frees nothing early."""
    job = program(
        """
GLOBAL = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
s = ok(d.cuStreamCreate(1))
p = ok(d.cuMemAlloc(60 * MIB)); small = ok(d.cuMemAlloc(100))
fill(p, 60 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuStreamBeginCapture(s, GLOBAL))
say("captures"); wait()
ok(d.cuMemsetD32Async(p, 9, 4, s))
ok(d.cuMemFree(small))  # waits for nothing now
graph = ok(d.cuStreamEndCapture(s))
run = ok(d.cuGraphInstantiate(graph, 0)); ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
host = bytearray(4); ok(d.cuMemcpyDtoH(host, p, 4)); assert host[0] == 9
ok(d.cuMemFree(p))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    tell(job)
    assert line(job) == "captures"
    client.evict({uuid: 1 << 40})
    tell(job)
    finish(job)


def test_a_step_brings_memory_back_first(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuMemsetD8(p, 1, 4)); say("stepped")
check(int(p) + 4, 4, word(5, 1)); say("checked")
"""
    )
    client = revoked(daemon, job)
    client.evict({uuid: 1 << 40})
    wants = client.wants
    tell(job)
    client.until("a call that waits", lambda: client.wants > wants)
    client.step()
    assert line(job) == "stepped"
    client.until("release", lambda: client.released[-1].epoch == client.epoch)
    client.evict({uuid: 1 << 40})
    client.grant()
    assert line(job) == "checked"
    finish(job)


def test_a_context_that_ends_takes_its_memory(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
own = ok(d.cuCtxCreate(None, 0, 0))
a, small = ok(d.cuMemAlloc(50 * MIB)), ok(d.cuMemAlloc(10))
ok(d.cuMemsetD32(a, 7, 50 * MIB // 4)); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(ctx))
b = ok(d.cuMemAlloc(30 * MIB)); fill(b, 30 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuCtxDestroy(own))
say("destroyed"); wait()
check_all(b, 30 * MIB, 1)
say("checked"); wait()
ok(d.cuDevicePrimaryCtxReset(0)); ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(ctx))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
c = ok(d.cuMemAlloc(30 * MIB)); ok(d.cuMemsetD32(c, 7, 4)); ok(d.cuCtxSynchronize())
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 1 << 40}))
    tell(job)  # the context ends while its memory is on its way
    assert line(job) == "destroyed"
    client.until("the rest", lambda: client.memory[uuid] == (30 * MIB, 0, 0))
    client.grant()
    tell(job)
    assert line(job) == "checked"
    tell(job)
    finish(job)


def test_an_exit_or_a_fork_while_memory_moves(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say("forked"); wait()
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.send(daemon_messages.evict({uuid: 50 * MIB}))
    tell(job)
    assert line(job) == "forked"
    client.until("half to be away", lambda: client.resident(uuid) <= 50 * MIB)
    client.send(daemon_messages.evict({uuid: 50 * MIB}))
    tell(job)
    finish(job)


def test_oversubscription_stays_managed(program: Program, short_dir: Path, uuid: str) -> None:
    with FakeDaemon(short_dir / "tenant.sock", {uuid: TOTAL}, oversub=True) as daemon:
        job = program(
            """
p = ok(d.cuMemAlloc(300 * MIB)); fill(p, 300 * MIB, 5); check(p, 300 * MIB, 5)
assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, p))
"""
        )
        daemon.client(int(line(job)))
        finish(job)


def test_devices_of_a_gang_move_together(short_dir: Path, program: Program) -> None:
    with EmulatedGpu(short_dir / "two", devices=2) as gpu:
        uuids = [str(device["uuid"]) for device in gpu.stats()["devices"]]
        with FakeDaemon(short_dir / "tenant.sock", dict.fromkeys(uuids, TOTAL)) as daemon:
            job = program(
                """
other = ok(d.cuDevicePrimaryCtxRetain(1))
ok(d.cuCtxSetCurrent(other))
q = ok(d.cuMemAlloc(60 * MIB)); ok(d.cuMemsetD32(q, 3, 15 * MIB)); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(ctx))
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 40 * MIB, 5)
ok(d.cuMemcpyPeer(int(p), ctx, int(q) + 30 * MIB, other, 30 * MIB))
host = bytearray(30 * MIB); ok(d.cuMemcpyDtoH(host, p, len(host)))
assert set(memoryview(host).cast("I")) == {3}
""",
                env=gpu.env,
            )
            client = client_of(daemon, job)
            assert line(job) == "ready"
            client.revoke()
            client.evict(dict.fromkeys(uuids, 1 << 40))
            assert [client.memory[u] for u in uuids] == [(40 * MIB, 0, 0), (60 * MIB, 0, 0)]
            tell(job)
            finish(job)


def test_who_waits_survives_its_daemon(program: Program, short_dir: Path, uuid: str) -> None:
    path = short_dir / "tenant.sock"
    with FakeDaemon(path, {uuid: TOTAL}, auto=False) as daemon:
        job = program(TWO.replace("VALUE", "1"))
        client = client_of(daemon, job)
        assert line(job) == "has"
        client.grant()
        tell(job)
        assert line(job) == "filled"
        client.revoke()
        client.send(daemon_messages.evict({uuid: 1 << 40}))
        client.until("the first to leave", lambda: client.resident(uuid) < 160 * MIB)
        pid = client.pid
    path.unlink()
    tell(job)
    with FakeDaemon(path, {uuid: TOTAL}) as daemon:
        daemon.client(pid)
        assert line(job) == "checked"
        end(job)
        finish(job)


def address_space(client: Client) -> int:
    """Bytes that the process has mapped."""
    return int(Path(f"/proc/{client.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def test_host_memory_goes_back_when_the_program_has_freed_as_much(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
check(p, 100 * MIB, 5)
say("checked"); wait()
ok(d.cuMemFree(p)); say("freed"); wait()
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    before = address_space(client)
    client.revoke()
    client.evict({uuid: 100 * MIB})
    assert address_space(client) >= before + 90 * MIB
    tell(job)
    assert line(job) == "checked"
    assert address_space(client) >= before + 90 * MIB, "kept for the next time"
    tell(job)
    assert line(job) == "freed"
    wait_until("it to go back", lambda: address_space(client) < before + 40 * MIB)
    tell(job)
    finish(job)


def test_a_broken_context_does_not_hang(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); ok(d.cuCtxSynchronize())
fill(int(p) + 29 * MIB, 2 * MIB, 5)
assert d.cuCtxSynchronize()[0] == d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
say("broken"); wait()
say(d.cuMemsetD8(p, 0, 1)[0].name)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "broken"
    daemon.auto = False
    client.revoke()
    client.send(daemon_messages.evict({uuid: 1 << 40}))
    client.until("that it stays", lambda: client.memory[uuid] == (0, 30 * MIB, 0))
    client.grant()
    tell(job)
    assert line(job) == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert "the context is broken" in finish(job)


def test_a_lost_device_is_heard_of_by_the_program(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
assert d.cuMemsetD8(p, 0, 1)[0] != d.CUresult.CUDA_SUCCESS
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    emulated_gpu.fail(0, "lost")
    tell(job)
    assert "swapped memory cannot be restored to the GPU" in finish(job)


def test_a_driver_that_cannot_map_memory_gets_managed_memory(
    program: Program, daemon: FakeDaemon, short_dir: Path, emulated_gpu: EmulatedGpu
) -> None:
    name = b"\0cuMemAddressReserve\0"
    binary = (BUILD / "libcuda.so.1").read_bytes()
    assert binary.count(name) >= 1
    old = short_dir / "driver"
    old.mkdir()
    (old / "libcuda.so.1").write_bytes(binary.replace(name, b"\0cuMemAddressReservX\0"))
    path = f"{old}:{emulated_gpu.env['LD_LIBRARY_PATH']}"
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); check(p, 30 * MIB, 5)
s = ok(d.cuStreamCreate(1)); q = ok(d.cuMemAllocAsync(MIB, s))
for m in (p, q):
    assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, m))
ok(d.cuMemFree(p)); ok(d.cuMemFreeAsync(q, s))
""",
        env={"LD_LIBRARY_PATH": path},
    )
    client_of(daemon, job)
    assert finish(job).count("memory:swap has no effect on device") == 1


def test_small_allocations_share_memory_and_never_bytes(
    program: Program, daemon: FakeDaemon
) -> None:
    job = program(
        """
import bisect, random
chance, have = random.Random(1), []  # (address, size), sorted
free, total = ok(d.cuMemGetInfo())
for n in range(4000):
    if have and (n > 3000 or chance.random() < 0.4):
        ok(d.cuMemFree(have.pop(chance.randrange(len(have)))[0]))
        continue
    size = chance.choice((1, 511, 513, 8192, chance.randrange(1, 200_000)))
    p = int(ok(d.cuMemAlloc(size)))
    i = bisect.bisect(have, (p, size))
    assert p % 512 == 0
    assert not i or sum(have[i - 1]) <= p, "over the one before"
    assert i == len(have) or p + size <= have[i][0], "over the one behind"
    have.insert(i, (p, size))
    taken = total - ok(d.cuMemGetInfo())[0]
    assert taken >= sum(one[1] for one in have)
for p, _ in have: ok(d.cuMemFree(p))
assert ok(d.cuMemGetInfo())[0] == total
"""
    )
    client_of(daemon, job)
    finish(job)
