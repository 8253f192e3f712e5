"""What a process of a job says of its memory, against the real daemon: by another user, without
the interposer, on an emulated GPU that shows what is there."""

from __future__ import annotations

import os

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.conftest import Start
from tests.connections.test_limits import HELLO
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, state, tell

LIAR = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(os.environ["GPU_LEASE_SOCKET"])
for text in sys.argv[1:]:
    sock.send(bytes.fromhex(text))
assert sock.recv(1024)
print("said", flush=True)
sys.stdin.readline()
"""
HAS = SET_UP + "p = ok(d.cuMemAlloc(160 << 20)); say('has')\n"
RUNS = HAS + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')"


def memory(uuid: str, *amounts: int) -> bytes:
    made = header.new(lib.GL_MEMORY)
    made.n_devices = 1
    ffi.buffer(made.devices[0].uuid)[:] = uuid_bytes(uuid)
    made.devices[0].bytes, made.devices[0].fixed, made.devices[0].resident = amounts
    return bytes(ffi.buffer(made))


@pytest.mark.parametrize("fixed", [250 << 20, 16 << 40])
def test_one_message_keeps_no_job_from_its_gpu(tenant: Start, leased: Leased, fixed: int) -> None:
    if os.getuid():
        pytest.skip("to be another user takes root")
    uuid = ask(leased.admin_socket, {"op": "status"})["devices"][0]["uuid"]
    honest = tenant(1, "memory:swap", "-c", HAS + "sys.stdin.readline()\n" + RUNS[len(HAS) :])
    assert line(honest) == "has"
    # NVML has shown the honest one, so what the other one says is looked at.
    wait_until("NVML", lambda: _overhead(leased) > 0)
    liar = tenant(2, "", "-c", LIAR, HELLO.hex(), memory(uuid, 0, fixed, 0).hex())
    assert line(liar) == "said"
    wait_until("the daemon to hear it", lambda: _peak(leased) >= 200 << 20)
    tell(honest)
    assert line(honest) == "ran"
    assert state(leased, 2) == "idle"
    assert liar.poll() is None, "it says so still"
    tell(liar)
    output(liar)


def _overhead(leased: Leased) -> int:
    return int(ask(leased.admin_socket, {"op": "status"})["devices"][0]["overhead_bytes"])


def _peak(leased: Leased) -> int:
    usage = ask(leased.admin_socket, {"op": "usage", "job_id": 2})["usage"]
    return max(int(used["peak_bytes"]) for used in usage.values())


# A client in name only: what it has it has from the bare driver.
HIDES = (
    """
import os, socket, sys
if "LD_PRELOAD" in os.environ:
    del os.environ["LD_PRELOAD"]
    with open("/proc/self/cmdline") as file:
        os.execv(sys.executable, file.read().split("\\0")[:-1])
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(os.environ["GPU_LEASE_SOCKET"])
sock.send(bytes.fromhex(sys.argv[1]))
assert sock.recv(1024)
"""
    + SET_UP
    + "p = ok(d.cuMemAlloc(int(sys.argv[2]))); say('has'); sys.stdin.readline()"
)
SEES = SET_UP + "say(ok(d.cuMemGetInfo())[1]); sys.stdin.readline()"


@pytest.mark.parametrize("hidden", [60 << 20, 140 << 20])
def test_a_job_that_hides_memory_takes_little_of_what_later_ones_see(
    tenant: Start, leased: Leased, hidden: int
) -> None:
    hides = tenant(1, "", "-c", HIDES, HELLO.hex(), str(hidden))
    assert line(hides) == "has"
    wait_until("NVML to show it", lambda: _overhead(leased) >= hidden)
    later = [tenant(job, "", "-c", SEES) for job in (2, 3, 4)]
    assert min(int(line(job)) for job in later) > 200 << 20
    tell(hides)
    output(hides)
    for job in later:
        tell(job)
        output(job)
    wait_until("NVML to show that all are gone", lambda: _overhead(leased) == 0)
    last = tenant(5, "", "-c", SEES)
    assert int(line(last)) > 225 << 20
    tell(last)
    output(last)
