"""gpu-leased records what its leases depend on, over restarts, reloads and its own death."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.core.events import Closed, Opened
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.record import place
from leased.record.recorder import Recorder
from leased.sim import history, observed, replay
from leased.sim.jobs import MS, Setting
from leased.sim.run import run
from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.slurm.processes import StartError, wait_until
from tests.support.programs import SET_UP, line, tell
from tests.support.tenant import register
from tests.support.together import zip_strict

pytestmark = pytest.mark.long  # each test starts a daemon

JOB = (
    SET_UP
    + """
say("ready"); sys.stdin.readline()
while not os.path.exists(sys.argv[1]):
    for _ in range(40):  # longer than its quantum, so that it is not idle when that ends
        ok(spin(5_000_000))
    ok(d.cuCtxSynchronize())
say("done"); sys.stdin.readline()
"""
)


def lines(path: Path) -> list[dict[str, Any]]:
    """What is whole of a record; nothing of one that is not there, or is just set aside."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(each) for each in content.splitlines(keepends=True) if each[-1:] == b"\n"]


def named(path: Path, key: str) -> list[str]:
    """The types of all events (key event) or actions."""
    found = [entry[key] for entry in lines(path) if key in entry]
    return [each["type"] for entry in found for each in ([entry] if key == "event" else entry)]


def checked(path: Path) -> str:
    """What the program says of a record that can be replayed."""
    done = subprocess.run(
        [sys.executable, "-m", "leased.sim.replay", "--check", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == replay.AS_RECORDED, done.stdout + done.stderr
    return done.stdout


EVENTS = {"Opened", "Requested", "Released", "Tick"}
ACTIONS = {"Grant", "Contend", "Revoke"}


def two_jobs_take_turns(tenant: Start, path: Path) -> None:
    """They go on until one had to give the GPU to the other, however slowly they come to that."""
    enough = path.with_name("enough")
    jobs = [tenant(n, "tq:100ms,lock:on", "-c", JOB, str(enough)) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "ready"
    for job in jobs:
        tell(job)
    wait_until("all that belongs to a turn", lambda: set(named(path, "event")) >= EVENTS)
    wait_until("all that follows from it", lambda: set(named(path, "actions")) >= ACTIONS)
    enough.touch()
    for job in jobs:
        assert line(job) == "done"


def test_two_jobs_are_replayed_after_the_daemon_has_ended(
    leased: Leased, tenant: Start, path: Path
) -> None:
    two_jobs_take_turns(tenant, path)
    leased.stop()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(named(path, "event")) >= EVENTS
    assert set(named(path, "actions")) >= ACTIONS
    assert lines(path)[-1] == {"end": "gpu-leased ended"}
    events = len(named(path, "event"))
    assert checked(path) == (
        f"{events} events lead to the {len(named(path, 'actions'))} actions that were recorded\n"
    )
    can_be_simulated(path)


def can_be_simulated(path: Path) -> None:
    """The same jobs, with no more work than they had time, and all of them end."""
    with path.open("rb") as record:
        found = observed.of(history.of(record, []))
    assert found.real is not None
    assert {job.name for job in found.trace.jobs} == {"job 1", "job 2"}
    for job, came in zip_strict(found.trace.jobs, found.real.jobs):
        assert (job.lock, job.quantum) == ("on", 100 * MS)
        assert 0 < job.gpu_ns <= came.end - came.start
    again = run(found.trace, Setting(found.policy))
    assert [job.name for job in again.jobs] == [job.name for job in found.real.jobs]


def test_the_record_of_a_killed_daemon_is_kept_beside_its_successors(
    leased: Leased, path: Path
) -> None:
    register(leased.admin_socket, 7)
    wait_until("the job to be recorded", lambda: "Opened" in named(path, "event"))
    leased.kill()
    events = named(path, "event")
    leased.start()
    wait_until("the next record", lambda: place.before(path).exists() and path.exists())
    assert named(place.before(path), "event") == events
    leased.stop()
    assert checked(place.before(path))
    checked(path)
    assert "Opened" in named(path, "event"), "the job goes on"


def test_a_record_is_turned_on_off_and_on_while_jobs_run(leased: Leased, path: Path) -> None:
    with_record = leased.config.read_text()
    assert leased.daemon is not None
    register(leased.admin_socket, 7)

    def reload(text: str) -> None:
        leased.config.write_text(text)
        assert leased.daemon is not None
        leased.daemon.process.send_signal(signal.SIGHUP)

    reload(with_record.replace("record =", "# record ="))
    wait_until("the record to end", lambda: lines(path)[-1:] == [{"end": CHANGED}])
    register(leased.admin_socket, 8)
    reload(with_record)
    wait_until("another record", lambda: any(entry.get("state") for entry in lines(path)))
    ask(leased.admin_socket, {"op": "set", "device": "all", "quantum": "3s"})
    leased.stop()
    assert lines(path)[0]["state"] is not None
    assert "Opened" not in named(path, "event")
    assert "QuantumSet" in named(path, "event")
    assert "LockSet" not in named(path, "event")
    assert checked(path)
    assert checked(place.before(path))


CHANGED = "the configuration was changed"


@pytest.mark.parametrize("kind", ["a text", "no directory", "others"])
def test_a_record_where_none_may_be_is_refused(leased: Leased, path: Path, kind: str) -> None:
    leased.stop()
    if kind == "a text":
        path.unlink()
        path.write_text("precious\n")
        words = (
            f"daemon.record: {path} is there and is not a record; name another file, or remove it"
        )
    elif kind == "no directory":
        text = leased.config.read_text()
        leased.config.write_text(text.replace(str(path), str(path.parent / "nowhere" / "record")))
        words = f"daemon.record: {path.parent}/nowhere is not a directory; make it first"
    else:
        if os.geteuid():
            pytest.skip("only root's daemon asks for this")
        text, open_to_all = leased.config.read_text(), path.parent / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        leased.config.write_text(text.replace(str(path), str(open_to_all / "record")))
        words = f"daemon.record: {open_to_all}/record: {open_to_all} can be written by others"
    with pytest.raises(StartError, match="ended at its start") as refused:
        leased.start()
    assert words in str(refused.value)


def test_an_event_that_the_arbiter_cannot_take_is_recorded_as_its_fault(path: Path) -> None:
    recorder = Recorder(lambda flush: flush())
    recorder.configure(path, 1 << 20)
    leases = Leases([Gpu(0, "GPU-0", "H200", 1 << 30, 1 << 30)], lambda: 5, recorder=recorder)
    with pytest.raises(ValueError, match="tenant 1"):
        leases.run(Opened(1, ("GPU-1",), "on", 10**9))
    leases.run(Closed(1))
    recorder.close()
    assert [entry.get("fault") for entry in lines(path)[-3:-1]] == ["ValueError", None]
    assert checked(path)
