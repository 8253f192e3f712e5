"""Processes are checkpointed and come back on another GPU, with all that they have.

The programs, and what is done to them, are those of tests/gpu/probe_move.py, which asks a card the
same. What only a card can tell is in the README, under "Process checkpoints".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.emugpu.programs import finish, go_on, line, program
from tests.emugpu.server import EmulatedGpu

TWO = pytest.mark.emulated(model="emu-h200-medium", devices=2)
MIB = 8
# Of a program that has not come back: its next call hangs.
GIVES_UP_SOON = ("--call", "3")


def steps(gpu: EmulatedGpu, scenario: str, *arguments: str) -> list[Any]:
    """What the calls of a scenario have returned, in order, by the first words of each."""
    probe = [sys.executable, "-m", "tests.gpu.probe_move", "--mib", str(MIB)]
    command = [*probe, *arguments, "--only", scenario]
    done = subprocess.run(
        command, env=os.environ | gpu.env, capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])["steps"]
    return found


def results(found: list[Any]) -> list[tuple[str, str, str]]:
    """Of each call: its name, its result, and the state of the process after it."""
    return [(s[0].split()[0], s[1], s[3]) for s in found if len(s) == 4]


def checks(found: list[Any]) -> list[dict[str, Any]]:
    return [step[1] for step in found if step[0] == "check"]


LOCK = ("lock", "ok", "locked")
SAVE = ("checkpoint", "ok", "checkpointed")
RESTORE = ("restore", "ok", "locked")
UNLOCK = ("unlock", "ok", "running")
NOT = ("restore", "1 INVALID_VALUE", "checkpointed")
NO_ROOM = [
    ("restore", "2 OUT_OF_MEMORY", "checkpointed"),
    ("restore", "304 OPERATING_SYSTEM", "checkpointed"),
    ("unlock", "401 ILLEGAL_STATE", "checkpointed"),
]
REFUSED = [LOCK, ("checkpoint", "801 NOT_SUPPORTED", "locked"), UNLOCK]
MOVE = [LOCK, SAVE, RESTORE, UNLOCK]


@TWO
@pytest.mark.parametrize(
    ("scenario", "calls", "moves"),
    [
        ("parked, all GPUs in the map", MOVE * 2, [True, False]),
        ("in place", MOVE, [False]),
        ("only its GPU in the map", [LOCK, SAVE, NOT, RESTORE, UNLOCK], [False]),
        ("one GPU visible", [LOCK, SAVE, NOT, RESTORE, UNLOCK], [True]),
        ("not parked", MOVE, [True]),
        ("busy", [("lock", "600 NOT_READY", "running"), *MOVE], [True]),
        ("ipc", REFUSED, [False]),
        ("managed", REFUSED, [False]),
        ("of another user", MOVE, [True]),
        ("contexts on both", MOVE, [True]),
    ],
)
def test_a_program_goes_on_where_it_was_restored(
    emulated_gpu: EmulatedGpu, scenario: str, calls: list[Any], moves: list[bool]
) -> None:
    found = steps(emulated_gpu, scenario)
    assert results(found) == calls
    gpus = {bool(moved): check["gpu"] for moved, check in zip(moves, checks(found))}
    assert len(set(gpus.values())) == len(gpus)
    assert [check["wrong"] for check in checks(found)] == [0] * len(moves)


@TWO
def test_after_a_restore_without_room_the_process_is_lost(emulated_gpu: EmulatedGpu) -> None:
    """As with driver 580: what needs no room fails from then on too."""
    found = results(steps(emulated_gpu, "no room on the other GPU", *GIVES_UP_SOON))
    assert found[:5] == [LOCK, SAVE, *NO_ROOM]


@TWO
def test_another_user_may_not(emulated_gpu: EmulatedGpu) -> None:
    found = steps(emulated_gpu, "by another user")
    assert found[0] == ["init, state and lock by nobody", "0 1 1"]
    assert results(found) == MOVE


@TWO
@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
def test_a_call_that_is_to_fail_fails_once(emulated_gpu: EmulatedGpu, call: str) -> None:
    emulated_gpu.fail(0, call)
    found = results(steps(emulated_gpu, "in place", *GIVES_UP_SOON))
    assert [result for name, result, _ in found if name == call][:1] == ["304 OPERATING_SYSTEM"]


SUBMITS = """
setup()
p = ok(d.cuMemAlloc(4096)); ok(d.cuMemsetD32(p, 1, 1024)); ok(d.cuCtxSynchronize())
say(os.getpid()); wait()
for _ in range(3):
    ok(launch("add", p, 1024, 1, 1))
say("submitted"); wait()
assert words(p, 1) == [4]
"""
CHECKPOINTS = """
ok(d.cuInit(0))
library = ctypes.CDLL("libcuda.so.1")
def act(name):
    assert not getattr(library, "cuCheckpointProcess" + name)({}, None)
act("Lock"); say("locked"); wait(); act("Checkpoint"); act("Restore"); act("Unlock")
"""


def test_what_was_submitted_to_a_locked_process_is_done_when_it_is_back(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its connections have ended meanwhile, as for CRIU: it does not submit it again."""
    monkeypatch.setenv("EMUGPU_LETS_GO", "1")
    with (
        program(emulated_gpu, SUBMITS) as one,
        program(emulated_gpu, CHECKPOINTS.format(line(one))) as other,
    ):
        assert line(other) == "locked"
        go_on(one)
        assert line(one) == "submitted"
        go_on(other)
        finish(other)
        go_on(one)
        finish(one)
