"""NVML that hangs, crashes, talks garbage or is not there: said once, and leases go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.api.client import ask
from leased.gpus import known_gpus, nvml, nvml_answers
from leased.gpus.devices import Gpu
from leased.gpus.health import ILL, WELL, Health
from leased.gpus.nvml import Nvml, Silent
from leased.gpus.nvml_answers import Described, Unsound
from leased.memory.speed import Speed
from leased.processes import procfs
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import GIVES_UP_SOON, LOOKS_OFTEN, Leased
from tests.slurm.processes import wait_until
from tests.support.children import children_of
from tests.support.programs import SET_UP, line, output, tell
from tests.support.tenant import register

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
GIB = 1 << 30
STOP_S = 10.0  # far less than systemd's 15


pytestmark = [
    pytest.mark.emulated(model="emu-h200-tiny", devices=2),
    pytest.mark.daemon(hurried=LOOKS_OFTEN + GIVES_UP_SOON),
]


@pytest.fixture
def leased(leased: Leased) -> Leased:
    """With a job that shares one of the GPUs."""
    register(leased.admin_socket, 7, gpus=[0])
    return leased


def status(leased: Leased) -> dict[str, Any]:
    return ask(leased.admin_socket, {"op": "status"})


def faulty(leased: Leased) -> list[int]:
    return [device["index"] for device in status(leased)["devices"] if device["fault"]]


def errors(leased: Leased) -> list[str]:
    lines = leased.log.read_text().splitlines()
    assert not [line for line in lines if line.startswith("Traceback")]
    return [line for line in lines if " ERROR " in line]


# -- as a whole ------------------------------------------------------------------

WHOLE: dict[str, tuple[str, dict[int | str, str]]] = {
    "hang": ("NVML answers for no GPU", {0: "hang", 1: "hang"}),
    "crash": ("the process that asks NVML has ended", {0: "crash", 1: "crash"}),
    "no driver": ("NVML does not start: Driver Not Loaded", {"all": "error"}),
    "hang at its start": ("NVML does not answer within", {"all": "hang"}),
}


def end_the_child(leased: Leased) -> None:
    assert leased.daemon is not None
    for child in children_of(leased.daemon.process.pid):
        with contextlib.suppress(ProcessLookupError):  # a command of Slurm's that is over
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("case", WHOLE)
def test_nvml_as_a_whole_while_jobs_run(
    leased: Leased, emulated_gpu: EmulatedGpu, case: str
) -> None:
    words, faults = WHOLE[case]
    emulated_gpu.nvml(faults)
    if "all" in faults:
        end_the_child(leased)  # what is open already does not begin anew
    wait_until("it to be missed", lambda: words in (status(leased)["nvml_fault"] or ""))
    assert faulty(leased) == [], "silence is nothing against a device"
    register(leased.admin_socket, 8, gpus=[1])
    emulated_gpu.nvml({})
    wait_until("it to answer", lambda: status(leased)["nvml_fault"] is None, timeout=90)
    (said,) = errors(leased)  # once
    assert "leases go on" in said
    assert leased.log.read_text().count("NVML answers again") == 1


@pytest.mark.parametrize("case", WHOLE)
def test_a_daemon_that_starts_without_nvml_goes_on_with_what_it_knows(
    leased: Leased, emulated_gpu: EmulatedGpu, case: str
) -> None:
    before = [device["uuid"] for device in status(leased)["devices"]]
    leased.kill()
    emulated_gpu.nvml(WHOLE[case][1])
    leased.start()
    assert [device["uuid"] for device in status(leased)["devices"]] == before
    assert [tenant["job_id"] for tenant in status(leased)["tenants"]] == [7]
    register(leased.admin_socket, 8, gpus=[1])
    wait_until("it to be missed", lambda: status(leased)["nvml_fault"] is not None)
    emulated_gpu.nvml({})
    wait_until("it to answer", lambda: status(leased)["nvml_fault"] is None, timeout=90)
    assert faulty(leased) == []


def test_a_daemon_that_knows_nothing_does_not_start_without_nvml(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    leased.kill()
    (leased.prefix / "state" / "gpus.json").unlink()
    emulated_gpu.nvml({"all": "error"})
    with pytest.raises(RuntimeError, match="NVML does not start: Driver Not Loaded; is the NVIDIA"):
        leased.start()


@pytest.mark.parametrize("faults", [{"all": "hang"}, {0: "hang", 1: "hang"}], ids=["start", "look"])
def test_the_stop_never_waits_for_nvml(
    leased: Leased, emulated_gpu: EmulatedGpu, faults: dict[int | str, str]
) -> None:
    emulated_gpu.nvml(faults)
    if "all" in faults:
        end_the_child(leased)
    wait_until("a call to hang", emulated_gpu.nvml_hangs.exists)
    assert leased.daemon is not None
    daemon = leased.daemon.process
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(STOP_S) == 0
    assert not [line for line in errors(leased) if "has ended" not in line]


BEGINS = (
    SET_UP
    + """
p = ok(d.cuMemAlloc(1 << 20)); ok(d.cuMemsetD8(p, 7, 1 << 20)); ok(d.cuCtxSynchronize())
say("has begun"); sys.stdin.readline()
ok(d.cuMemsetD8(p, 8, 1 << 20)); ok(d.cuCtxSynchronize()); say("went on")
"""
)


def test_processes_begin_and_take_turns_within_one_call_of_nvml(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """However long the call takes: nothing on their way waits for an answer of NVML."""
    emulated_gpu.nvml({0: "hang", 1: "hang"})
    wait_until("a call to hang", emulated_gpu.nvml_hangs.exists)
    jobs = [tenant(job, "lock:on,tq:100ms", "-c", BEGINS) for job in (8, 9)]
    for job in jobs:
        assert line(job) == "has begun"
    for job in jobs:
        tell(job)
        assert "went on" in output(job)
    assert faulty(leased) == []
    emulated_gpu.nvml({})


# -- one device ------------------------------------------------------------------

ONE = {
    "hang": "it does not answer NVML",
    "error": "NVML says: Unknown Error",
    "lost": "NVML says: GPU is lost",
}


@pytest.mark.parametrize("kind", ONE)
def test_one_device_while_jobs_run(leased: Leased, emulated_gpu: EmulatedGpu, kind: str) -> None:
    emulated_gpu.nvml({1: kind})
    wait_until("it to be seen", lambda: faulty(leased) == [1])
    assert status(leased)["devices"][1]["why"] == ONE[kind]
    assert status(leased)["nvml_fault"] is None
    register(leased.admin_socket, 8, gpus=[0])
    wait_until("the other to be seen", lambda: status(leased)["devices"][0]["fault"] is None)
    emulated_gpu.nvml({})
    wait_until("it to be in order", lambda: faulty(leased) == [], timeout=90)
    register(leased.admin_socket, 9, gpus=[1])
    assert len(errors(leased)) == 1, "it is said once"


def test_garbage_of_a_running_device_is_bounded(leased: Leased, emulated_gpu: EmulatedGpu) -> None:
    emulated_gpu.nvml({0: "garbage", 1: "garbage"})
    wait_until("a look", lambda: status(leased)["devices"][0]["busy_percent"] is not None)
    register(leased.admin_socket, 8, gpus=[1])
    assert status(leased)["devices"][0]["overhead_bytes"] == 0
    assert errors(leased) == []


def test_garbage_at_the_start(leased: Leased, emulated_gpu: EmulatedGpu) -> None:
    leased.kill()
    emulated_gpu.nvml({1: "garbage"})
    leased.start()
    assert faulty(leased) == [1]
    register(leased.admin_socket, 8, gpus=[0])


# -- the child -------------------------------------------------------------------


def child_that(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys, time, signal\nfor line in sys.stdin: {code}"]


ODD = {
    "nonsense": ("print('{', flush=True)", "has ended"),
    "another kind of thing": ("print('[]', flush=True)", "gives an answer that cannot be read"),
    "not UTF-8": ("sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush()", "has ended"),
    "deep": ("print('[' * 100000, flush=True)", "has ended"),
    "a line without end": (
        "exec(\"while True: sys.stdout.write('x' * 65536)\")",
        "has ended",
    ),
    "the end": ("sys.exit(3)", "has ended"),
    "silence": ("time.sleep(60)", "does not answer within 1 s"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_child_that_does_something_odd_is_given_up(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "LOOK_S", 1.0 if case == "silence" else 60.0)
    code, words = ODD[case]

    async def run() -> None:
        asked = Nvml(child_that(code))
        with pytest.raises(Silent, match=words):
            await asked.look([])
        assert asked.child is None
        # Not at once again, and the reason stays known.
        with pytest.raises(Silent, match=words):
            await asked.look([])
        assert asked.child is None
        asked.next_at = 0.0
        asked.command = child_that("print('{\"devices\": {}}', flush=True)")
        assert await asked.look([]) == {"devices": {}}
        asked.close()
        wait_until("its children to have ended", lambda: not asked.reap())

    asyncio.run(run())


def test_children_that_cannot_be_ended_are_not_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits in the driver: SIGKILL ends it only when the driver lets go."""
    monkeypatch.setattr(nvml, "LOOK_S", 0.2)

    async def run() -> None:
        asked = Nvml(child_that("time.sleep(60)"))
        held: list[Any] = []
        for _ in range(5):
            asked.next_at = 0.0
            with pytest.raises(Silent):
                await asked.look([])
            for child in asked.given_up:
                if child not in held:
                    held.append(child)
                    monkeypatch.setattr(child, "poll", lambda: None)
        assert len(held) == nvml.GIVEN_UP
        for child in held:
            child.wait(60)

    asyncio.run(run())


def test_a_command_that_is_not_there() -> None:
    async def run() -> None:
        with pytest.raises(Silent, match="cannot start a process that asks NVML"):
            await Nvml(["/nonexistent/python"]).look([])

    asyncio.run(run())


# -- what it says ----------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
GOOD: dict[str, Any] = {
    **{"uuid": UUID, "name": "H200", "minor": 0, "memory": GIB},
    **{"generation": 5, "lanes": 16, "mig": False, "exclusive": False},
    "pci": "00000000:3B:00.0",
}


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*GOOD, "fault"]), ANYTHING))
def test_any_description_is_sound_or_refused(odd: dict[str, Any]) -> None:
    found, faults = nvml_answers.each_described({"devices": [GOOD | odd, GOOD]})
    assert len(found) + len(faults) == 2
    assert len({gpu.uuid for gpu in found}) == len(found)
    assert all(0 < gpu.memory <= 1 << 50 for gpu in found)
    assert all(fault.isprintable() and len(fault) < 200 for fault in faults.values())


@settings(deadline=None)
@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_look_is_sound_or_refused(processes: Any, busy: Any, device: Any) -> None:
    said = {"processes": processes, "busy": busy, "mig": False}
    for answer in ({"devices": {UUID: said}}, {"devices": {UUID: device}}, {"devices": device}):
        problem = ""
        try:
            seen = nvml_answers.seen(answer, UUID, GIB)
        except Unsound as fault:
            problem = str(fault)
        else:
            assert all(pid > 0 and 0 <= size <= GIB for pid, size in seen.processes.items())
            assert seen.busy is None or 0 <= seen.busy <= 100
        assert problem.isprintable()


@pytest.mark.parametrize(
    ("said", "pci"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00010002:3B:1F.7", "10002:3b:1f.7"),
        *((odd, "") for odd in (None, 7, "", "3B:00.0", "0000:3b:00.0 1\n", "0000:3b:00.8")),
    ],
)
def test_a_pci_address_is_as_the_kernel_writes_it(said: Any, pci: str) -> None:
    ((gpu,), _) = nvml_answers.each_described({"devices": [GOOD | {"pci": said}]})
    assert gpu.pci == pci


def test_two_devices_that_say_they_are_the_same() -> None:
    found, faults = nvml_answers.each_described({"devices": [GOOD, GOOD | {"name": "other"}]})
    assert [gpu.name for gpu in found] == ["H200"]
    assert faults == {1: "NVML says that it is the same as GPU 0 of NVML"}


# -- what is known ---------------------------------------------------------------

DEVICE = Described(3, UUID, "H200", 1, GIB, Speed.of_lanes(5, 16), pci="0000:3b:00.0")


def test_devices_are_known_until_the_next_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_gpus.save(tmp_path, [DEVICE])
    assert known_gpus.load(tmp_path) == [DEVICE]
    monkeypatch.setattr(procfs, "boot_id", lambda: "another")
    assert known_gpus.load(tmp_path) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text(path.read_text().replace("H200", "\\ud800")),
        lambda path: path.write_text(path.read_text().replace('"minor": 1', '"minor": -1')),
        lambda path: path.write_text(path.read_text().replace('"seen": 8', '"seen": "x"')),
        lambda path: path.write_text("[" * 100_000),
        lambda path: (path.unlink(), os.mkfifo(path)),  # type: ignore[func-returns-value]
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_file_that_is_spoilt_is_left_out(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    known_gpus.save(tmp_path, [DEVICE])
    spoil(tmp_path / known_gpus.NAME)
    assert all(gpu.name.isprintable() for gpu in known_gpus.load(tmp_path))


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path) -> None:
    known_gpus.save(tmp_path / "none", [DEVICE])
    assert known_gpus.load(tmp_path / "none") == []


# -- health ----------------------------------------------------------------------


def test_a_single_strange_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gpu-leased")
    gpu, health = Gpu(0, UUID, "H200", GIB, GIB), Health()
    for _ in range(5):
        health.seen(gpu, "odd")
        health.seen(gpu, None)
    assert health.faults == {}
    for _ in range(ILL):
        health.seen(gpu, "odd")
    for _ in range(5):
        health.seen(gpu, "odd in other words")
        health.seen(gpu, None)
    assert health.faults == {UUID: "odd"}
    for _ in range(WELL):
        health.seen(gpu, None)
    assert health.faults == {}
    assert len(caplog.records) == 2
