"""What slurmctld says of a job: texts of several Slurm releases, programs that do not end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spank import allocation
from spank.allocation import MOST_GPUS, Allocation, NoAnswer, ask_slurmctld, parse

NAMES = ("gpu7", "gpu10")
OWNER = "restarts 0\npartition gpu\nqos normal\naccount \n"


def answer(gres: str, nodes: int = 1, component: int = 0) -> str:
    names = ",".join(NAMES[:nodes])
    node = f"nodes {names}\nnode {NAMES[nodes - 1]}\n"
    return f"job 5_7\n{node}start 99\ncomponent {component}\n{OWNER}gres {gres}\n"


def has(
    nodes: int, shards: int, gpus: dict[int, int], whole: int, component: bool = False
) -> Allocation:
    """gpus: by index, the shards of each."""
    names = NAMES[:nodes]
    return Allocation(
        *(names, names[-1], shards, tuple(gpus), whole, component, "5_7", 99, "gpu", "normal"),
        shards_of=tuple(gpus.values()),
    )


TEXTS = {
    "": has(1, 0, {}, 0),
    "shard:1(IDX:0)": has(1, 1, {0: 1}, 0),
    "shard:3(IDX:1)": has(1, 3, {1: 3}, 0),
    "shard:1(0/4,1/4)": has(1, 1, {1: 1}, 0),
    "shard:6(4/4,2/4,0/4)": has(1, 6, {0: 4, 1: 2}, 0),
    "shard:h200:6(4/4,2/4)": has(1, 6, {0: 4, 1: 2}, 0),
    "gpu:2(IDX:0-1)": has(1, 0, {}, 2),
    "gpu:h100:3(IDX:0,2-3)": has(1, 0, {}, 3),
    "license(CNT:3),shard:1(IDX:2)": has(1, 1, {2: 1}, 0),
    "shard:a:2(IDX:1),shard:b:1(IDX:0)": has(1, 3, {0: 1, 1: 2}, 0),
    "shard:0(0/4)": has(1, 0, {}, 0),
    "nic:1(IDX:0),gpu:1(IDX:1),mps:50(IDX:1)": has(1, 0, {}, 1),
}


@pytest.mark.parametrize("gres", TEXTS)
def test_gres_texts_of_slurm_are_understood(gres: str) -> None:
    assert parse(answer(gres)) == TEXTS[gres]


def test_nodes_and_components() -> None:
    assert parse(answer("shard:2(IDX:0)", nodes=2, component=1)) == has(2, 2, {0: 2}, 0, True)


@pytest.mark.parametrize(
    "text",
    [
        *("", "nodes 1\n", "nodes x\nnode \ncomponent 0\ngres \n", answer("shard:1((null))")),
        *(answer("shard:1(IDX:)"), answer("shard:1(IDX:0),"), answer("shard:one(IDX:0)")),
        *(answer("shard:1(IDX:0-999999999)"), answer("shard:1(IDX:0)\tx"), answer("shard:1")),
    ],
)
def test_an_unreadable_answer_is_none(text: str) -> None:
    with pytest.raises(NoAnswer):
        parse(text)


@given(st.text(alphabet="shardgpu:1(IDX:-/4,2)0 \n", max_size=60))
def test_any_text_is_read_or_no_answer(text: str) -> None:
    try:
        found = parse(answer(text))
    except NoAnswer:
        return
    assert all(0 <= gpu < MOST_GPUS for gpu in found.gpus)


def program(where: Path, *lines: str) -> str:
    path = where / "program"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


def test_the_program_is_asked(tmp_path: Path) -> None:
    owner = map(repr, OWNER.splitlines())
    here = 'nodes "gpu$1"', 'node "gpu$1"'
    lines = ("job 5_7", "start 99", *here, "component 0", *owner, "'gres shard:1(IDX:0)'")
    path = program(tmp_path, *(f"echo {line}" for line in lines))
    assert ask_slurmctld(path, 7, unsaid) == has(1, 1, {0: 1}, 0)


def unsaid(text: str) -> None:
    pytest.fail(f"slurmd's log gets: {text}")


@pytest.mark.parametrize("away", ["exit 1", "exec sleep 600"])
def test_a_slurmctld_that_is_away_is_waited_for_as_slurm_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """It refuses connections, or does not answer, for half an hour; time is the test's own."""
    now = [0.0]
    monkeypatch.setattr(allocation, "ANSWER_S", 0.2 if "sleep" in away else 30.0)
    monkeypatch.setattr(time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 60 * now[0])
    path = program(
        tmp_path,
        f"echo >> {tmp_path}/asked",
        f"[ $(wc -l < {tmp_path}/asked) -gt 9 ] || {away}",
        f"printf '%s' '{answer('shard:1(IDX:3)')}'",
    )
    said: list[str] = []
    assert ask_slurmctld(path, 1, said.append).gpus == (3,)
    assert sum(now) * 60 > 1800
    (line,) = said
    assert line.startswith("slurmctld does not say which GPUs job 1 has (")
    assert line.endswith("it is asked again for up to 60 minutes")


def test_a_slurmctld_that_comes_back_is_heard(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        f"if mkdir {tmp_path}/first 2>/dev/null; then echo 'no contact' >&2; exit 1; fi",
        f"printf '%s' '{answer('shard:1(IDX:3)')}'",
    )
    assert ask_slurmctld(path, 1, unsaid).gpus == (3,)


def test_a_slurmctld_that_stays_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "AGAIN_S", 30.0)  # there is no time to ask again
    path = program(tmp_path, "echo 'Unable to contact slurm controller' >&2", "exit 1")
    with pytest.raises(NoAnswer, match="Unable to contact slurm controller"):
        ask_slurmctld(path, 1, unsaid, patience_s=20.0)


def test_a_job_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    path = program(tmp_path, f"echo >> {tmp_path}/asked", "echo 'Invalid job id' >&2", "exit 3")
    with pytest.raises(NoAnswer, match="Invalid job id"):
        ask_slurmctld(path, 1, unsaid)
    assert (tmp_path / "asked").read_text() == "\n", "asked once"


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    path = program(tmp_path, f"echo $$ > {tmp_path}/pid", "exec sleep 600")
    with pytest.raises(NoAnswer, match="does not answer"):
        ask_slurmctld(path, 1, unsaid, patience_s=0.5)
    pid = (tmp_path / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_says_too_much(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="more than"):
        ask_slurmctld(program(tmp_path, "exec yes"), 1, unsaid, patience_s=60)


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="does not start: No such file"):
        ask_slurmctld(str(tmp_path / "none"), 1, unsaid, patience_s=0.0)
