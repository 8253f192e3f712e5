"""Jobs and their usage out of sacct's JSON, as Slurm 22.05 said it, and in the forms of later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leased.base.errors import NoAnswer, Refused
from leased.slurm import sacct
from leased.slurm.sacct import Asked, WrongUsage, parse

# Recorded on a private cluster: jobs 1 and 2, an array 3 of two tasks, and 4, which has no shard.
RECORDED = Path(__file__).parent / "data" / "sacct_22_05.json"


def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text()))


def newer() -> dict[str, Any]:
    """The same as Slurm 24.11 writes it: states in lists, numbers with "set"."""

    def number(value: int | None) -> dict[str, Any]:
        return {"set": value is not None, "infinite": False, "number": value or 0}

    said = recorded()
    for job in said["jobs"]:
        job["state"]["current"] = [job["state"]["current"]]
        job["array"]["task_id"] = number(job["array"]["task_id"])
        job["het"]["job_offset"] = number(job["het"]["job_offset"])
    return said


@pytest.mark.parametrize("said", [recorded(), newer()], ids=["22.05", "24.11"])
def test_rows_are_what_slurm_has(said: dict[str, Any]) -> None:
    rows = {row.label: row for row in parse(json.dumps(said))}
    assert sorted(rows) == ["1", "2", "3_1", "3_2", "4"]
    assert {row.state for row in rows.values()} == {"COMPLETED"}
    assert [rows[label].shares for label in ("1", "3_2", "4")] == [True, True, False]
    one = rows["1"]
    assert (one.user, one.account, one.node, one.fault) == ("root", "root", "node1", "")
    assert one.usage is not None
    ((uuid, figures),) = one.usage.gpus.items()
    assert (one.usage.indices, figures["peak_bytes"]) == ({uuid: 0}, 16 * (1 << 20) + 8)
    assert rows["4"].usage is None


def test_a_part_of_a_heterogeneous_job_is_named_as_sacct_does() -> None:
    said = recorded()
    said["jobs"] = said["jobs"][:1]
    said["jobs"][0]["het"] = {"job_id": 20, "job_offset": 1}
    said["jobs"][0]["nodes"] = "node[1-2]"
    (row,) = parse(json.dumps(said))
    assert (row.label, row.node) == ("20+1", "node[1-2]")


def test_a_damaged_record_is_said_of_its_job_alone() -> None:
    said = recorded()
    said["jobs"][0]["comment"]["system"] = 'gpu-lease: x {"v":9}'
    said["jobs"][1]["comment"]["system"] = 'gpu-lease: x {"v":2,'
    rows = parse(json.dumps(said))
    assert "version 9" in rows[0].fault
    assert "is not JSON" in rows[1].fault
    assert rows[2].usage is not None


def test_nothing_found_is_no_fault() -> None:
    error = {"error": "Nothing found with query", "description": "Nothing found"}
    assert parse(json.dumps({"jobs": [], "errors": [error]})) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "sacct's answer cannot be read"),
        ("[]", "sacct's answer cannot be read"),
        ('{"jobs": [{}]}', "sacct's answer cannot be read"),
        ('{"jobs": 7}', "sacct's answer cannot be read"),
        ('{"jobs": [], "errors": [{"description": "Access\\ndenied"}]}', "refuses: Access"),
    ],
)
def test_another_answer_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as fault:
        parse(text)
    assert "\n" not in fault.value.sentence()


# -- running it --------------------------------------------------------------------------


def fake(folder: Path, script: str) -> dict[str, str]:
    """An environment in which sacct is this script."""
    program = folder / "sacct"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_options_are_passed_in_sacct_words(tmp_path: Path) -> None:
    env = fake(tmp_path, f'echo "$@" > {tmp_path}/said; cat {RECORDED}')
    asked = Asked("7_1", "ann,bob", "--json", "now-1hour", "2026-01-02T03:04:05")
    assert len(sacct.ask(asked, env)) == 5
    assert (tmp_path / "said").read_text() == (
        "--json --duplicates --jobs=7_1 --user=ann,bob --accounts=--json --starttime=now-1hour "
        "--endtime=2026-01-02T03:04:05\n"
    )


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        # As Slurm 22.05 says it.
        (
            "sacct: error: Problem talking to the database: Connection refused",
            NoAnswer,
            "slurmdbd does not answer",
        ),
        ("Slurm accounting storage is disabled", Refused, "keeps no accounting"),
        ("Invalid time specification (pos=0): garbage", WrongUsage, "Invalid time"),
        ("sacct: fatal: Bad job/step specified: x1", WrongUsage, "^Bad job/step"),
        ("sacct: error: Invalid user id: nobody1", WrongUsage, "^Invalid user id"),
        ("sacct: fatal: no\x1b[31m idea", Refused, r"sacct failed: no\?\[31m idea"),
        ("", Refused, "sacct failed: it says nothing"),
    ],
)
def test_errors_of_sacct_become_sentences(
    tmp_path: Path, said: str, kind: type[Refused], words: str
) -> None:
    (tmp_path / "words").write_text(said)
    with pytest.raises(kind, match=words) as fault:
        sacct.ask(Asked(), fake(tmp_path, f"cat {tmp_path}/words >&2; exit 1"))
    assert type(fault.value) is kind


def test_where_there_is_no_sacct(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be run"):
        sacct.ask(Asked(), {"PATH": str(tmp_path)})
