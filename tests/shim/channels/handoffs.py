"""What tests of stops in mid-kernel do with every process."""

from __future__ import annotations

from typing import Any

from _gpulease import lib

from tests.emugpu.server import EmulatedGpu
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import Process, line, tell
from tests.support.swap_programs import Program, client_of, finish

LONG_NS = 20_000_000_000  # a kernel of 20 s: no test waits for it to end by itself
SHORT_NS = 1_500_000_000
# Memory with known words, and a kernel that is still running when the test goes on.
BUSY = """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7)
stream = ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize()); spin({ns}, stream); say("runs")
wait()
ok(d.cuStreamSynchronize(stream)); check_all(p, 100 * MIB, 7); say("right")
"""


def controlled(client: Client) -> None:
    client.until(
        "word of its channel groups",
        lambda: client.channels and client.channels.state == lib.GL_CHANNELS_CONTROLLED,
    )


def compute_groups(gpu: EmulatedGpu) -> list[dict[str, Any]]:
    return [group for group in gpu.stats()["groups"] if group["engine"] == "compute"]


def slices(gpu: EmulatedGpu) -> list[int]:
    return [group["slice_us"] for group in compute_groups(gpu)]


def begun(daemon: FakeDaemon, job: Process, said: str = "runs") -> Client:
    """The job has come so far, and says that its channel groups are controlled."""
    client = client_of(daemon, job)
    assert line(job) == said
    controlled(client)
    return client


def held(daemon: FakeDaemon, job: Process, said: str = "runs") -> Client:
    """The same, and from now on it has its lease until the test takes it back."""
    client = begun(daemon, job, said)
    daemon.auto = False
    return client


def busy(program: Program, daemon: FakeDaemon, ns: int = SHORT_NS) -> tuple[Process, Client]:
    """A process in mid-kernel, whose lease is taken back by the test."""
    job = program(BUSY.format(ns=ns))
    return job, held(daemon, job)


def goes_on_right(job: Process, gpu: EmulatedGpu) -> None:
    """It is told to go on, and finds what it should. Its kernel has been there for long enough."""
    gpu.end_spins()
    tell(job)
    assert line(job) == "right"
    finish(job)
