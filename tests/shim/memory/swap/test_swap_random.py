"""Random allocations of several threads while their memory is evicted and restored."""

from __future__ import annotations

import random

from leased.wire import daemon_messages
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import tell
from tests.support.swap_programs import MIB, VMM, Program, client_of, finish

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
