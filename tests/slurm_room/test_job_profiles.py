"""What jobs did before, as Slurm's accounting says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leased.matching.profile import NAME_MOST, Kind, Profile
from leased.slurm import job_profiles
from tests.support.fake_sacct import BETWEEN, fake, line

TRAIN = Kind(5, "train")
RUN = {
    "time_s": 100.0,
    "lease_s": 80.0,
    "measured_s": 40.0,
    "busy_s": 20.0,
    "wait_s": 0.0,
    "shared_s": 0.0,
    "peak_bytes": 7,
}


def comment(*gpus: dict[str, float], text: str = "") -> str:
    said = {
        "v": 2,
        "lock": "auto",
        "from": 1.0,
        "to": 2.0,
        "gpus": {f"GPU-{n}": each for n, each in enumerate(gpus)},
    }
    return f"{text}gpu-lease: GPU 0: {json.dumps(said)}"


def found(*rows: tuple[Any, ...]) -> dict[Kind, Profile]:
    text = "".join(line(*row) for row in rows)
    return job_profiles.profiles(job_profiles.parse(text, BETWEEN))


def test_the_part_of_its_time_in_which_a_job_worked() -> None:
    told = found((5, "train", comment(RUN, text="JS1:of somebody; ")))
    assert told == {TRAIN: Profile(busy=0.4, memory=7)}
    assert told[TRAIN].burst_ms is None


def test_runs_are_weighed_by_their_time_and_told_apart_by_user_and_name() -> None:
    longer = RUN | {"time_s": 300.0, "lease_s": 0.0, "busy_s": 0.0, "peak_bytes": 9}
    told = found(
        *((5, "train", comment(RUN)), (5, "train", comment(longer))),
        *((6, "train", comment(longer)), (5, "a|b\n", comment(RUN))),
    )
    assert told[TRAIN] == Profile(0.1, 9)
    assert set(told) == {TRAIN, Kind(6, "train"), Kind(5, "a|b\n")}


@pytest.mark.parametrize(
    "beside", [{"shared_s": 50.0}, {"wait_s": 20.0}, {"shared_s": 6.0, "wait_s": 6.0}]
)
def test_runs_alone_count_before_those_beside_others(beside: dict[str, float]) -> None:
    shared = RUN | {"busy_s": 40.0, "peak_bytes": 9} | beside
    assert found((5, "train", comment(RUN)), (5, "train", comment(shared)))[TRAIN].busy == 0.4
    there = 100 - beside.get("wait_s", 0)
    assert found((5, "train", comment(shared)))[TRAIN].busy == round(80 / there, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "JS1:abc",
        'gpu-lease: GPU 0: {"v":9}',
        'gpu-lease: GPU 0: {"v":2,',
        comment(RUN, RUN),
        comment(RUN | {"measured_s": 0.0}),
        comment(RUN | {"time_s": 5.0}),
        comment({}),
    ],
)
def test_what_says_nothing_is_left_out(text: str) -> None:
    assert found((5, "train", text), (5, "other", comment(RUN))).keys() == {Kind(5, "other")}


def test_sacct_is_asked_for_everybody(tmp_path: Path) -> None:
    env = fake(tmp_path, f'echo "$@" > {tmp_path}/asked')
    (tmp_path / "said").write_text(line(5, "t" * 1000, comment(RUN)))
    assert job_profiles.ask(env) == {Kind(5, "t" * NAME_MOST): Profile(0.4, 7)}
    words = (tmp_path / "asked").read_text()
    assert words.startswith("--allocations --duplicates --noheader --parsable")
    assert words.endswith(" --format=UID,JobName,SystemComment --allusers --starttime=now-7days\n")


def test_where_sacct_does_not_answer_nothing_is_known(tmp_path: Path) -> None:
    assert job_profiles.ask(fake(tmp_path, "exit 1")) is None
    assert job_profiles.ask({"PATH": str(tmp_path / "nowhere")}) is None
