"""A process number that is another process's by now: who opened a connection and has ended."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _gpulease import ffi, lib

from leased.config.config import Config
from leased.gpus.health import Health
from leased.gpus.nvml import Nvml
from leased.gpus.nvml_answers import Seen
from leased.monitors.device_monitor import DeviceMonitor
from leased.monitors.process_monitor import ProcessMonitor
from leased.processes.stepds import Stepds
from leased.slurm.commands import Slurm
from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.fuzz.node import GB, UUIDS, Node, quiet

LIAR, OTHER = 1, 2


def hello(fixed: int) -> bytes:
    message = header.new(lib.GL_HELLO)
    message.n_devices, message.devices[0].fixed = 1, fixed
    ffi.buffer(message.devices[0].uuid)[:] = uuid_bytes(UUIDS[0])
    return bytes(ffi.buffer(message))


def monitor(node: Node, monkeypatch: pytest.MonkeyPatch, seen: Seen) -> DeviceMonitor:
    """NVML shows this of the first device."""
    known = cast(Stepds, SimpleNamespace(known=lambda: SimpleNamespace(step_of=lambda *_: None)))
    watch = ProcessMonitor(node.leases, known, Slurm({}), Config())
    watch.witness.real_gpu = False
    nvml = cast(Nvml, SimpleNamespace(reap=lambda: False))
    made = DeviceMonitor(nvml, node.leases, watch, Health(node.leases.gpus.faults))

    async def look(_: Any) -> dict[str, Seen]:
        return {UUIDS[0]: seen}

    monkeypatch.setattr(made, "_look", look)
    return made


@pytest.mark.parametrize("ended", [False, True])
def test_what_another_process_does_is_not_taken_for_a_client_s(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """A job's process passes its connection on and ends; now a program that runs without a lease,
    of whichever job, has its number, its memory and its work."""
    node = Node()
    node.open(LIAR, 0, 0, 10**9)
    node.open(OTHER, 0, 0, 10**9)
    with quiet():
        peer = node.connect(LIAR)
        assert peer
        node.send(peer, hello(50 * GB))
        peer.sock.gone = ended
        seen = Seen({os.getpid(): 50 * GB}, busy=100, work={os.getpid(): 100})
        made = monitor(node, monkeypatch, seen)
        asyncio.run(made.beat())
    fixed = node.leases.view.device(UUIDS[0]).residency.of(LIAR).fixed
    assert fixed == (0 if ended else 50 * GB)
    assert [(u, pid) for u, pid in made.watch.strays.seen] == [(UUIDS[0], os.getpid())] * ended
