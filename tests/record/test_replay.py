"""What was recorded is replayed to the same actions and the same state, from wherever it begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leased import policy
from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event
from leased.record import lines, snapshot
from leased.record.codec import Damaged
from leased.sim import replay
from tests.core.draws import random_scenario
from tests.core.share_mixes import sharing_scenario
from tests.core.silent import Silent
from tests.core.world import World
from tests.record.adversary_record import RELEASE, header_of, record
from tests.support.long import long
from tests.support.together import zip_strict

SEEDS = [*range(3), *long(range(3, 8))]
EVENTS = 600
EVERY = 97  # events between two snapshots


def replayed(record: list[bytes]) -> Arbiter:
    """The arbiter at the record's end; every step is as it was recorded."""
    steps = list(replay.replay(record, []))
    for step in steps:
        assert step.difference() is None
    assert len(steps) == len(record) - 1
    return steps[-1].arbiter


@pytest.mark.parametrize("policy_name", policy.names())
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_is_replayed_to_the_same_end(seed: int, policy_name: str) -> None:
    records = record(seed, EVENTS, policy_name)
    for of, end in zip_strict(records.of, records.ends):
        assert snapshot.take(replayed(of)) == snapshot.take(end)


class Twins:
    """Arbiters made from snapshots of one that runs, each of which hears what that one hears."""

    def __init__(self) -> None:
        self.twins: list[Arbiter] = []
        self.events = 0

    def began(self, arbiter: Arbiter) -> None:
        self.original, self.twins = arbiter, []

    def handled(self, now: int, event: Event, actions: list[Action]) -> None:
        for twin in self.twins:
            assert twin.handle(event, now) == actions
            assert twin.next_deadline() == self.original.next_deadline()
        self.events += 1
        if self.events % EVERY == 0:
            state = json.dumps(snapshot.take(self.original))
            twin = snapshot.restore(json.loads(state))
            assert json.dumps(snapshot.take(twin)) == state
            self.twins = [*self.twins[-1:], twin]


@pytest.mark.parametrize("policy_name", policy.names())
@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_that_was_written_goes_on_as_the_arbiter_does(seed: int, policy_name: str) -> None:
    twins = Twins()
    World(
        *(random_scenario(seed), EVENTS, twins.began, twins.handled, policy_name),
        judge=Silent,
    ).run()
    for twin in twins.twins:
        assert snapshot.take(twin) == snapshot.take(twins.original)


@pytest.mark.parametrize("seed", [12, *long([15, 26, 34])])
def test_a_state_goes_on_where_jobs_with_shares_run_side_by_side(seed: int) -> None:
    twins = Twins()
    World(sharing_scenario(seed), EVENTS, twins.began, twins.handled, judge=Silent).run()
    for twin in twins.twins:
        assert snapshot.take(twin) == snapshot.take(twins.original)


def test_a_snapshot_changes_nothing() -> None:
    """Runs of which snapshots are taken are those of which none is."""
    taken: list[str] = []

    def take(*_: object) -> None:
        taken.append(json.dumps(snapshot.take(world.a)))

    world = World(random_scenario(3), 200, handled=take, judge=Silent)
    world.run()
    alone = record(3, 200)
    assert len(taken) == sum(len(of) - 1 for of in alone.of)
    assert taken[-1] == json.dumps(snapshot.take(alone.ends[-1]))


# -- the program ------------------------------------------------------------------------


def program(path: Path, *arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leased.sim.replay", str(path), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": seed},
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def a_record() -> list[bytes]:
    found = record(8, EVENTS).of[0]
    assert len(found) > 100
    return found


@pytest.fixture
def path(tmp_path: Path, a_record: list[bytes]) -> Path:
    made = tmp_path / "record"
    made.write_bytes(b"".join(a_record))
    return made


def test_the_program_prints_the_actions_whatever_the_hashes_are(
    path: Path, a_record: list[bytes]
) -> None:
    expected = [
        {"now": entry["now"], **action}
        for entry in map(json.loads, a_record[1:])
        for action in entry["actions"]
    ]
    first, second = (program(path, seed=seed) for seed in ("1", "2"))
    assert first.returncode == second.returncode == replay.AS_RECORDED
    assert first.stdout == second.stdout
    assert [json.loads(line) for line in first.stdout.splitlines()] == expected
    assert expected
    assert f"recorded by release {RELEASE}" in first.stderr


def test_the_program_compares(path: Path, a_record: list[bytes]) -> None:
    found = program(path, "--check")
    assert found.returncode == replay.AS_RECORDED
    assert found.stdout.startswith(f"{len(a_record) - 1} events lead to the ")


def test_the_first_difference_is_shown(path: Path, a_record: list[bytes]) -> None:
    number = next(n for n, line in enumerate(a_record) if b'"type":"Grant"' in line)
    changed = a_record[number].replace(b'"idle_ns":null', b'"idle_ns":7', 1)
    assert changed != a_record[number]
    path.write_bytes(b"".join([*a_record[:number], changed, *a_record[number + 1 :]]))
    found = program(path, "--check")
    assert found.returncode == replay.DIFFERS
    words = found.stdout.splitlines()
    assert words[0].startswith(f"line {number + 1}: {{")
    assert words[1:] == [
        words[1],
        words[1].replace("recorded: ", "replayed: ").replace('"idle_ns":7', '"idle_ns":null', 1),
    ]
    assert '"idle_ns":7' in words[1]
    assert program(path).returncode == replay.AS_RECORDED


def test_a_line_that_a_crash_cut_off_is_no_damage(path: Path, a_record: list[bytes]) -> None:
    for cut in (1, len(a_record[-1]) - 1):
        path.write_bytes(b"".join(a_record)[:-cut])
        found = program(path, "--check")
        assert found.returncode == replay.AS_RECORDED
        assert found.stdout.startswith(f"{len(a_record) - 2} events")


def test_a_fault_of_the_arbiter_is_replayed(path: Path, a_record: list[bytes]) -> None:
    """An event that it could not take, as of a device that is not there."""
    event = b'{"now":1,"event":{"type":"DrainSet","device":"none","drained":true},"fault":"%s"}\n'
    path.write_bytes(a_record[0] + event % b"KeyError")
    assert program(path, "--check").returncode == replay.AS_RECORDED
    assert program(path).stdout == '{"now":1,"fault":"KeyError"}\n'
    path.write_bytes(a_record[0] + event % b"ValueError")
    assert program(path, "--check").returncode == replay.DIFFERS


def test_the_end_of_a_record_is_said(path: Path, a_record: list[bytes]) -> None:
    path.write_bytes(b"".join(a_record) + lines.end_line(lines.End("no room")))
    found = program(path, "--check")
    assert found.returncode == replay.AS_RECORDED
    assert found.stderr.splitlines()[-1].endswith("record: the recorder stopped here: no room")


TICK = b'{"now":5,"event":{"type":"Tick"},"actions":[]}\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no record in it"),
        (b'{"gpu_lease_rec', "there is no record in it"),
        (b"\0\0\0\n", "line 1: this is not a line of a record"),
        (b"[1]\n", "line 1: this is not a line of a record"),
        (b"[" * 100_000 + b"\n", "line 1: this is not a line of a record"),
        (TICK, "line 1: no record of gpu-leased begins like this"),
        (b'{"gpu_lease_record":2}\n', "line 1: the record has version 2, this program reads 1"),
        (b'{"gpu_lease_record":1}\n', "line 1: Header has the fields ''"),
        (b"HEAD" + TICK + TICK[:-2] + b"\n" + TICK, "line 3: this is not a line of a record"),
        (b"HEAD" + TICK.replace(b"Tick", b"Tock"), "line 2: 'Tock' is not known here"),
        (b"HEAD" + TICK.replace(b"5", b'"5"'), "line 2: '5' is not of type int"),
        (b"HEAD" + TICK.replace(b"actions", b"deeds"), "line 2: it has the fields"),
        (b"HEAD" + TICK.replace(b"[]", b"{}"), "line 2: {} is not of type list"),
        (b"HEADHEAD", "line 2: it has the fields"),
        (
            b"POLICYother",
            ": the arbiter cannot begin like this: 'other' is not a policy; known",
        ),
        (b"STATE[7]", ": the arbiter's state is damaged"),
        (b"STATE[{}]", ": the arbiter's state is damaged"),
        (b"STATE[]", ": the arbiter's state is damaged"),
        (b'STATE[{"class":"subprocess.Popen","fields":{}}]', "has an object of 'subprocess.Popen'"),
        (b'STATE[{"class":"leased.core.arbiter.Mapping","fields":{}}]', "has an object of"),
        (b'STATE[{"class":"leased.usage.usage.Usage","fields":{"__class__":1}}]', "has a field"),
        (b'STATE[{"class":"leased.usage.usage.Usage","fields":{}}]', "it is not an arbiter"),
        (b'STATE[{"list":[{"method":[[0],"append"]}]}]', "the arbiter's state is damaged"),
        (b'STATE[{"list":[[-1]]}]', "has an object of a number below 0"),
    ],
)
def test_a_record_that_cannot_be_replayed_gets_one_line(
    path: Path,
    a_record: list[bytes],
    content: bytes,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content.startswith(b"STATE"):
        state = content.removeprefix(b"STATE")
        content = a_record[0].replace(b'"state":null', b'"state":' + state)
    if content.startswith(b"POLICY"):
        content = a_record[0].replace(b"fcfs", content.removeprefix(b"POLICY"), 1)
    path.write_bytes(content.replace(b"HEAD", a_record[0]))
    assert replay.run(path, check=True) == replay.UNREADABLE
    err = capsys.readouterr().err
    said = [line for line in err.splitlines() if "recorded by release" not in line]
    assert len(said) == 1
    assert said[0].startswith(f"{path}: ")
    assert words in said[0]


def test_no_file_gets_one_line(tmp_path: Path) -> None:
    found = program(tmp_path / "none")
    assert found.returncode == replay.UNREADABLE
    assert found.stderr == f"{tmp_path}/none: No such file or directory\n"


def test_a_state_with_one_other_object_is_an_arbiter_or_is_damaged() -> None:
    records = record(2, 300)
    state = json.loads(header_of(records.ends[-1]))["state"]
    for n in range(len(state)):
        others: list[Any] = [None, 3, [], {"dict": [[1]]}, {"class": "leased.core.state.Lease"}]
        for other in others:
            changed = [*state[:n], other, *state[n + 1 :]]
            try:
                assert isinstance(snapshot.restore(changed), Arbiter)
            except Damaged:
                continue
