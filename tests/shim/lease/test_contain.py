"""Under MPS a process that a signal ends has no work in flight when it does, and ends by it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.emugpu.mps_control import install
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, Process, line, tell

HOUR = 3_600_000_000_000
# Submits work and waits in C, where no handler of Python's would run. Whoever started the tests may
# have them ignore SIGHUP, as nohup does.
WORKS = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    + SET_UP
    + """
for _ in range(3): ok(spin(int(sys.argv[1])))
say(os.getpid())
ctypes.CDLL(None).pause()
"""
)
HANDLES = (
    SET_UP
    + """
import signal
ok(spin(1000)); ok(d.cuCtxSynchronize())
def handle(number, _):
    say("handles"); sys.exit(7)
if sys.argv[1] == "waits":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    say(os.getpid()); say("waits for", int(signal.sigwait([signal.SIGTERM]))); sys.exit(3)
signal.signal(signal.SIGTERM, handle if sys.argv[1] == "handles" else signal.SIG_IGN)
say(os.getpid())
sys.stdin.readline()
say("goes on")
"""
)
FORKS = (
    SET_UP
    + """
import signal
ok(spin(1000)); ok(d.cuCtxSynchronize())
child = os.fork()
if not child:
    say("child"); ctypes.CDLL(None).pause()
say("parent"); sys.stdin.readline()
os.kill(child, signal.SIGTERM)
say(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""
)


@pytest.fixture
def leased(short_dir: Path, emulated_gpu: EmulatedGpu) -> Iterator[Leased]:
    """gpu-leased on a GPU that is shared by MPS."""
    conf = f'mps_control = "{install(short_dir)}"\n[device]\nspace = "mps"\n'
    env = os.environ | emulated_gpu.env
    place = short_dir / "leased"
    with Leased(place, short_dir / "run", env, conf, preload=CHECKED) as daemon:
        yield daemon
        (pid,) = (int(file.read_text()) for file in short_dir.glob("run/mps/*/*.pid"))
    os.kill(pid, signal.SIGTERM)


def stats(gpu: EmulatedGpu, pid: int) -> dict[str, int]:
    wait_until("its end to be seen", lambda: not _of(gpu, pid)["alive"])
    return _of(gpu, pid)


def _of(gpu: EmulatedGpu, pid: int) -> dict[str, int]:
    return next(dict(one) for one in gpu.stats()["processes"] if one["pid"] == pid)


def ended(process: Process) -> int:
    """The status of the program, of which tests.support.tenant ends with the lower byte."""
    return (process.wait(120) + 128) % 256 - 128


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_work_finishes_before_a_signal_ends_the_process(
    tenant: Start, emulated_gpu: EmulatedGpu, number: signal.Signals
) -> None:
    default = WORKS.replace("import signal", "import signal; signal.signal(2, signal.SIG_DFL)")
    process = tenant(1, "", "-c", default, str(300_000_000))
    pid = int(line(process))
    os.kill(pid, number)
    assert ended(process) == -number
    found = stats(emulated_gpu, pid)
    assert (found["kernels"], found["cut_short"]) == (3, 0)


def test_work_that_does_not_finish_is_not_waited_for_for_ever(
    tenant: Start, emulated_gpu: EmulatedGpu
) -> None:
    process = tenant(1, "", "-c", WORKS, str(HOUR))
    pid = int(line(process))
    os.kill(pid, signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM
    assert stats(emulated_gpu, pid)["cut_short"] >= 3


@pytest.mark.parametrize(
    ("what", "said", "status"),
    [("handles", "handles", 7), ("ignores", "goes on", 0), ("waits", "waits for 15", 3)],
)
def test_what_the_program_does_with_a_signal_is_its_own_affair(
    tenant: Start, what: str, said: str, status: int
) -> None:
    process = tenant(1, "", "-c", HANDLES, what)
    os.kill(int(line(process)), signal.SIGTERM)
    if what == "ignores":
        tell(process)
    assert line(process) == said
    assert ended(process) == status


def test_a_forked_child_ends_at_once(tenant: Start) -> None:
    process = tenant(1, "", "-c", FORKS)
    assert {line(process), line(process)} == {"parent", "child"}
    tell(process)
    assert line(process) == str(int(signal.SIGTERM))
    assert ended(process) == 0
