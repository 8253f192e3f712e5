"""What gpu-leasectl report adds up and prints; sacct is a script that says what was recorded."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from leased.base.errors import Refused
from leased.cli import ctl
from leased.cli.report import as_csv, as_text, make
from leased.cli.report_sums import Use, summed, total, uses
from leased.cli.subcommand import ExitStatus
from leased.slurm.sacct import Asked, Row
from leased.slurm.step_record import StepRun
from leased.slurm.usage_record import Run
from tests.support import fake_sacct
from tests.support.together import zip_strict

HOUR = 3600.0


def row(
    job: int, since: float, until: float, user: str = "ann", gpu: int = 0, **figures: float
) -> Row:
    """A job on a GPU from then until then, in hours; its other figures in hours too."""
    said = {f"{name}_s": hours * HOUR for name, hours in figures.items()}
    gpus = {f"GPU-{gpu}": {"time_s": (until - since) * HOUR, **said}}
    run = Run("auto", gpus, {f"GPU-{gpu}": gpu}, since * HOUR, until * HOUR)
    times = int(since * HOUR), int(until * HOUR)
    return Row(job, str(job), user, 1000, f"{user}s", "node1", *times, True, run)


def moved(found: Row, into: int, out: int) -> Row:
    """With so many GiB moved on each of its devices."""
    assert found.usage is not None
    bytes_ = {"moved_bytes": (into + out) << 30, "moved_out_bytes": out << 30}
    gpus = {uuid: {**figures, **bytes_} for uuid, figures in found.usage.gpus.items()}
    return replace(found, usage=replace(found.usage, gpus=gpus))


# Two jobs by turns on one GPU, one beside them on another.
ROWS = [
    moved(row(1, 0, 4, lease=3, wait=1, measured=2, busy=1, idle_resident=0.5), 3, 1),
    row(2, 1, 5, "bob", lease=2, wait=2),
    row(3, 2, 3, "bob", 1, lease=1, measured=1, busy=0.5),
]


def found(rows: list[Row]) -> list[Use]:
    return [use for each in rows for use in uses(each)]


def test_the_nodes_of_a_job_are_added_up_once() -> None:
    """A job on two nodes had the first GPU of each, and one of them was shared with another job."""
    first = row(9, 0, 2, lease=1, wait=1).usage
    second = row(9, 0, 2, gpu=7, lease=0.5).usage
    assert first is not None
    assert second is not None
    both = replace(first, nodes={"GPU-0": "node1"}).and_also(
        replace(second, nodes={"GPU-7": "node2"}, indices={"GPU-7": 0})
    )
    job = replace(row(9, 0, 2), node="node[1-2]", usage=both)
    sums = total(found([job, row(8, 0, 4, lease=2)]))
    assert (len(sums.jobs), sums.amounts["lease_s"]) == (2, 3.5 * HOUR)
    assert sums.exclusive_s == (1 + 2 + 4) * HOUR
    assert sums.occupied_s == (4 + 2) * HOUR, "node1's for four hours, node2's for two"
    by_node = {each.name: each.amounts["lease_s"] for each in summed(found([job]), "node")}
    assert by_node == {"node1": HOUR, "node2": 0.5 * HOUR}
    devices = {each.name: len(each.jobs) for each in summed(found([job]), "device")}
    assert devices == {"node1:0": 1, "node2:0": 1}


def test_usage_is_added_up_by_user() -> None:
    ann, bob = summed(found(ROWS), "user")
    assert (ann.name, ann.jobs, ann.efficiency) == ("ann", {"1"}, 0.5)
    assert ann.amounts["lease_s"] == 3 * HOUR
    assert (bob.jobs, bob.amounts["wait_s"]) == ({"2", "3"}, 2 * HOUR)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("account", ["anns", "bobs"]),
        ("job", ["1", "2", "3"]),
        ("device", ["node1:0", "node1:1"]),
        ("node", ["node1"]),
    ],
)
def test_the_group_with_the_longest_lease_is_first(by: str, names: list[str]) -> None:
    assert [sums.name for sums in summed(found(ROWS), by)] == names


def test_the_time_that_exclusive_gpus_would_have_taken() -> None:
    """Each its time without its waiting; shared are the hours in which anybody was there."""
    sums = total(found(ROWS))
    assert sums.exclusive_s == (3 + 2 + 1) * HOUR
    assert sums.occupied_s == (5 + 1) * HOUR
    apart = total(found([row(1, 0, 1, lease=1), row(2, 5, 7, lease=1), row(3, 5.5, 6, lease=0)]))
    assert apart.occupied_s == 3 * HOUR


def test_where_only_totals_are_known_nothing_is_said_to_be_shared() -> None:
    whole = {"time_s": 8 * HOUR, "lease_s": 4 * HOUR, "wait_s": HOUR}
    cut = Run("auto", {}, {}, 0, 2 * HOUR, whole, 4)
    sums = total(uses(Row(7, "7", "ann", 1000, "a", "n", 0, 7200, True, cut)))
    assert (sums.amounts["lease_s"], sums.exclusive_s) == (4 * HOUR, 7 * HOUR)
    assert sums.occupied_s == 8 * HOUR


@pytest.mark.parametrize("by", ["user", "account", "job", "device", "node"])
def test_moved_bytes_are_added_up_in_and_out(by: str) -> None:
    made = make([*ROWS, moved(row(9, 6, 7), 2, 5)], by, Asked())
    names = ("moved_bytes", "moved_in_bytes", "moved_out_bytes")
    shown = [tuple(group.as_dict()[name] for name in names) for group in made.groups]
    assert tuple(map(sum, zip_strict(*shown))) == (11 << 30, 5 << 30, 6 << 30)
    first = next(csv.DictReader(io.StringIO(as_csv(make(ROWS[:1], by, Asked())))))
    assert [float(first[name]) / 2**30 for name in names] == [4, 3, 1]


# -- what is printed -----------------------------------------------------------------------


def test_the_report_fits_a_mail() -> None:
    rows = [*ROWS, row(4, 0, 9000, "a-user-with-a-very-long-name-indeed", lease=8999.5)]
    text = as_text(make(rows, "user", Asked()))
    assert max(map(len, text.splitlines())) <= 80
    assert "a-user-with-a-very-lo~" in text
    assert "\nred?[31m " in as_text(make([row(1, 0, 1, "red\x1b[31m")], "user", Asked()))
    years = [*rows, row(5, 0, 3e7, "用户" * 50, lease=2.5e7)]  # characters of two columns each
    wide = as_text(make(years, "user", Asked())).splitlines()[3]
    assert cell_len(wide) <= 80
    assert wide.split()[-6:] == ["1", "25000000", "0.00", "0.00", "-", "30000000"]
    assert cell_len(wide.partition("~")[0]) == 21
    lines = as_text(make(ROWS, "user", Asked())).splitlines()
    assert lines[0].startswith("GPU hours of 3 jobs on 2 shared GPUs, 1970-01-01 ")
    assert [line.split() for line in lines[2:6]] == [
        ["user", "jobs", "leased", "waited", "idle", "busy", "exclusive"],
        ["ann", "1", "3.00", "1.00", "0.50", "50%", "3.00"],
        ["bob", "2", "3.00", "2.00", "0.00", "50%", "3.00"],
        ["total", "3", "6.00", "3.00", "0.50", "50%", "6.00"],
    ]
    assert lines[7].endswith("would have needed 6.00 GPU hours.")
    assert lines[8] == "They were on shared GPUs for 6.00: nothing saved."
    assert lines[9] == "Handoffs moved 3.0 GiB to GPUs and 1.0 GiB from them."


def test_the_savings_are_shown() -> None:
    beside = [row(1, 0, 4, lease=2), row(2, 0, 4, lease=2)]
    text = as_text(make(beside, "job", Asked()))
    assert "They had 4.00 of shared GPUs: 4.00 saved, 50%." in text
    assert "  -  " in text, "nobody measured how busy it was"


def test_a_report_of_no_job_says_so() -> None:
    assert as_text(make([], "user", Asked())) == "No job here that shared a GPU and has ended."


def test_jobs_that_are_lacking_are_named() -> None:
    runs = Row(8, "8", "ann", 1000, "a", "n", 5, 0, True)
    late = Row(9, "9", "ann", 1000, "a", "n", 5, 6, True)
    plain = Row(10, "10", "ann", 1000, "a", "n", 5, 6, False)
    damaged = Row(11, "11_2", "ann", 1000, "a", "n", 5, 6, True, None, "it is damaged")
    rows = [*ROWS, runs, late, plain, damaged]
    made = make(rows, "user", Asked())
    assert made.problems == ["job 11_2: it is damaged"]
    assert made.notes == ["no record (yet) of 1 run with a shard: 9"]
    many = [replace(late, label=str(n)) for n in range(20, 30)]
    assert make(many, "user", Asked()).notes == [
        "no record (yet) of 10 runs with a shard: 20, 21, 22, 23, 24, 25 and 4 more"
    ]
    made = make([*rows, replace(late, label="12")], "user", Asked(jobs="1,8,9,12"))
    assert made.notes == []
    asked = make(rows, "user", Asked(jobs="1,10,11,99_7")).problems
    assert "job 99_7 is unknown to Slurm's accounting" in asked
    assert "job 10 has no record of its use: it shared no GPU" in asked
    assert "job 8 has no record of its use: it has not ended, or has not begun" in asked
    assert (
        "job 9 has no record of its use: it is written some seconds after the end of the job"
        in asked
    )
    with pytest.raises(Refused, match="job 99 is unknown"):
        make([], "user", Asked(jobs="99"))


# -- the command ---------------------------------------------------------------------------


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sacct that says what was recorded; a test may write another script there."""
    monkeypatch.setenv("PATH", fake_sacct.fake(tmp_path)["PATH"])
    return tmp_path / "sacct"


@pytest.mark.usefixtures("sacct")
def test_as_json_and_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["report", "--by", "job", "--json"]) == ExitStatus.DONE
    said = json.loads(capsys.readouterr().out)
    names = sorted(group["name"] for group in said["groups"])
    assert names == ["1", "2", "3_1", "3_2", "6+0", "6+1"]
    assert (said["by"], said["problems"], said["total"]["jobs"]) == ("job", [], 6)
    assert ctl.main(["report", "--by", "job", "--csv"]) == ExitStatus.DONE
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    of_one = next(line for line in lines if line["job"] == "1")
    group = next(group for group in said["groups"] if group["name"] == "1")
    assert float(of_one["lease_s"]) == group["lease_s"] > 0


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        (
            "echo 'Invalid time specification (pos=0): x' >&2; exit 1",
            ExitStatus.USAGE,
            "Invalid time",
        ),
        ("echo 'Problem talking to the database' >&2; exit 1", ExitStatus.NO_ANSWER, "slurmdbd"),
        ("echo 'accounting storage is disabled' >&2; exit 1", ExitStatus.REFUSED, "no accounting"),
        ("exit 0", ExitStatus.REFUSED, "job 7 is unknown"),
    ],
)
def test_a_fault_is_a_line_and_an_exit_status(
    sacct: Path, capsys: pytest.CaptureFixture[str], script: str, status: int, words: str
) -> None:
    sacct.write_text(f"#!/bin/sh\n{script}\n")
    assert ctl.main(["report", "-j", "7"]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def with_steps(found: Row, **steps: tuple[float, float, float]) -> Row:
    """Its steps by name: from, to and lease, in hours."""
    assert found.usage is not None
    (uuid,) = found.usage.gpus
    said = {
        name.strip("_"): StepRun(
            *(since * HOUR, until * HOUR),
            {uuid: {"time_s": (until - since) * HOUR, "lease_s": lease * HOUR}},
        )
        for name, (since, until, lease) in steps.items()
    }
    return replace(found, usage=replace(found.usage, steps=said))


def test_by_step_the_leases_add_up_to_the_jobs_and_jobs_without_steps_stand_for_themselves() -> (
    None
):
    rows = [with_steps(ROWS[0], _0=(0, 1, 0.5), _1=(1, 4, 1.5), _2=(1, 4, 1)), ROWS[1]]
    made = make(rows, "step", Asked())
    leases = {sums.name: sums.amounts["lease_s"] / HOUR for sums in made.groups}
    assert leases == {"2": 2, "1.1": 1.5, "1.2": 1, "1.0": 0.5}
    assert sum(leases.values()) == made.total.amounts["lease_s"] / HOUR
    assert {sums.name: sums.exclusive_s / HOUR for sums in made.groups}["1.1"] == 3
    assert made.total.jobs == {"1", "2"}
    text = as_text(made)
    assert text.splitlines()[2].startswith("step ")
    assert max(map(len, text.splitlines())) <= 80
    lines = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [line["step"] for line in lines] == ["2", "1.1", "1.2", "1.0"]


@pytest.mark.parametrize(
    ("jobs", "by", "names", "hours"),
    [
        ("1.0,2", "step", ["2", "1.0"], 2.5),
        ("1.0,1", "job", ["1", "2"], 5),
        ("1.0,1.batch", "job", ["2", "1"], 2.5),
    ],
)
def test_steps_that_are_asked_for_are_shown_alone(
    jobs: str, by: str, names: list[str], hours: float
) -> None:
    rows = [with_steps(ROWS[0], _0=(0, 1, 0.5), _1=(1, 4, 1.5)), ROWS[1]]
    made = make(rows, by, Asked(jobs=jobs))
    assert [sums.name for sums in made.groups] == names
    assert made.total.amounts["lease_s"] == hours * HOUR
    lacking = ["the record of job 1 has no step batch"] if "batch" in jobs else []
    assert made.problems == lacking


def test_jobs_are_found_by_the_names_that_slurm_has() -> None:
    rows = [replace(row(7, 0, 1), label="5_3"), replace(row(9, 0, 1), label="8+1")]
    assert make(rows, "job", Asked(jobs="5,8,5_3,7,8+1,9,5_[1-3]")).problems == []
    assert make(rows, "job", Asked(jobs="5_1,8+0")).problems == [
        "job 5_1 is unknown to Slurm's accounting",
        "job 8+0 is unknown to Slurm's accounting",
    ]
