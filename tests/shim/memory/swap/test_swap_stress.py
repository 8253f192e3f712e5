"""Memory leaves and comes at random under many threads, and beside captures that wait for it."""

from __future__ import annotations

import os
import random
import select
import subprocess
from pathlib import Path

from leased.wire import daemon_messages
from tests.emugpu.server import BUILD, EmulatedGpu
from tests.slurm.leased import CHECKED
from tests.slurm.processes import wait_until
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell

STRESS = BUILD.parent / "shim" / "memory" / "swap" / "swap_stress"
TURNS = 300
MIB = 1 << 20

# Captures that have begun, each with a call that waits for memory.
CAPTURES = r"""
import threading
LOCAL = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
def capture():
    ok(d.cuCtxSetCurrent(ctx))
    stream = ok(d.cuStreamCreate(1))
    ok(d.cuStreamBeginCapture(stream, LOCAL))
    os.write(1, b"captures\n")  # whole lines, from two threads
    ok(d.cuMemsetD32Async(p, 9, 1, stream))
    ok(d.cuStreamEndCapture(stream))
def start(n):
    threads = [threading.Thread(target=capture) for _ in range(n)]
    for thread in threads: thread.start()
    return threads
"""


def released(client: Client) -> bool:
    return bool(client.released) and client.released[-1].epoch == client.epoch


def turn(client: Client, uuid: str, chance: random.Random) -> None:
    """A lease, or one call; then memory leaves, all or some."""
    client.grant(idle_ns=chance.choice([None, 10**7]))
    client.send(daemon_messages.contended(client.epoch, 10**7, chance.choice([0, 10**6, 10**8])))
    if chance.random() < 0.5:
        client.calls()
    client.send(daemon_messages.revoke(client.epoch, 10**10))
    client.until("release", lambda: released(client))
    if chance.random() < 0.7:
        client.send(daemon_messages.evict({uuid: chance.choice([MIB, 1 << 40])}))
    if chance.random() < 0.2:
        client.step()
        client.until("release after a step", lambda: released(client))


def asks(client: Client, wants: int, job: subprocess.Popen[str]) -> bool:
    """Whether it asks once more than so many times, and not first says something."""

    def says() -> bool:
        return bool(select.select([job.stdout], [], [], 0)[0])

    wait_until("it to ask or to say something", lambda: says() or client.wants > wants)
    return not says()


def test_nothing_is_lost_in_a_crowd(emulated_gpu: EmulatedGpu, short_dir: Path, uuid: str) -> None:
    path = short_dir / "tenant.sock"
    ours = {"LD_PRELOAD": str(CHECKED), "GPU_LEASE_SOCKET": str(path)}
    with FakeDaemon(path, {uuid: 240 * MIB}, auto=False) as daemon:
        job = subprocess.Popen(
            [str(STRESS)],
            env=os.environ | emulated_gpu.env | ours,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            client = swap.client_of(daemon, job)
            chance = random.Random(1)
            for _ in range(TURNS):
                turn(client, uuid, chance)
            daemon.auto = True
            client.grant()
            out, err = job.communicate(timeout=60)
        finally:
            job.kill()
            job.communicate()
    assert job.returncode == 0, out + err
    assert all(int(turns) > 0 for turns in out.split()), out


def test_captures_do_not_hold_up_a_step(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    """Nothing of a capture executes: it goes on as soon as memory is back, and the gate shut."""
    job = program(
        CAPTURES
        + """
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
for thread in start(2): thread.join()
say("captured"); wait()
check(p, 40 * MIB, 5)
"""
    )
    client = swap.revoked(daemon, job)
    client.evict({uuid: 1 << 40})
    wants = client.wants
    tell(job)
    assert [line(job), line(job)] == ["captures"] * 2
    # One of the two may come to its call when the step that the other one has waited for is over.
    while asks(client, wants, job):
        wants = client.wants
        client.step()
        client.until("release", lambda: released(client))
    assert line(job) == "captured"
    client.grant()
    tell(job)
    swap.finish(job)


def test_a_revoke_while_memory_comes_waits_for_nobody(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    """Nobody has been let in yet. A capture that waits for the memory could not end."""
    daemon.auto = False
    one = program(
        CAPTURES
        + """
p = ok(d.cuMemAlloc(160 * MIB)); fill(p, 160 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
captured = start(1)
ok(d.cuMemsetD32(p, word(1, 0), 1))
for thread in captured: thread.join()
check(p, 160 * MIB, 1)
"""
    )
    two = program("VALUE = 2" + swap.TWO)
    a, b = swap.client_of(daemon, one), swap.client_of(daemon, two)
    a.grant()
    assert line(one) == "ready"
    a.revoke()
    a.evict({uuid: 1 << 40})
    assert line(two) == "has"
    b.grant()
    tell(two)
    assert line(two) == "filled"
    wants = a.wants
    tell(one)
    assert line(one) == "captures"
    a.until("a call that waits", lambda: a.wants > wants)
    a.grant()
    a.until("what fits", lambda: a.resident(uuid) >= 84 * MIB)
    a.revoke()
    tell(two)
    assert line(two) == "checked"
    swap.end(two)
    swap.finish(two)
    a.grant()
    swap.finish(one)
