"""Jobs and their usage out of what sacct prints, as Slurm 22.05 did."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.base.errors import NoAnswer, Refused
from leased.slurm import sacct, usage_record
from leased.slurm.sacct import Asked, Row, WrongUsage, parse
from tests.support.fake_sacct import BETWEEN, RECORDED, fake, line

UNKNOWN_UID = 4_294_967_293


def test_rows_are_what_slurm_has() -> None:
    rows = {row.label: row for row in parse(RECORDED.read_text(), BETWEEN)}
    assert sorted(rows) == ["1", "2", "3_1", "3_2", "5", "6+0", "6+1"]
    assert [rows[label].job_id for label in ("3_1", "3_2", "6+1")] == [4, 3, 7]
    assert [rows[label].shares for label in ("1", "3_2", "5")] == [True, True, False]
    assert (rows["1"].user, rows["1"].uid, rows["1"].account) == ("nobody", 65534, "(none)")
    two = rows["2"]
    assert (two.user, two.account, two.node, two.fault) == ("root", "root", "node1", "")
    assert two.end - two.start == 1
    assert two.usage is not None
    ((uuid, figures),) = two.usage.gpus.items()
    assert (two.usage.indices, figures["peak_bytes"]) == ({uuid: 0}, 10 << 20)
    assert rows["5"].usage is None


def row(
    job: int, user: str, uid: int, comment: str = "", account: str = "", *, state: str = "RUNNING"
) -> str:
    times = ("Unknown", "None")
    return line(
        *(job, job, user, uid, account, "node[1-2]", *times, "gres/shard:a=1", state, comment)
    )


def test_a_run_whose_size_has_changed_is_one_row() -> None:
    """It is not said to lack its record."""
    text = row(7, "ann", 5, state="RESIZING") + row(7, "ann", 5, state="COMPLETED")
    assert len(parse(text, BETWEEN)) == 1
    comment = usage_record.record({}, "auto", 1.0, 2.0, {})
    assert len(parse(row(7, "ann", 5, comment, state="RESIZING"), BETWEEN)) == 1


def test_text_of_users_and_times_that_are_not_known() -> None:
    """What users and others write may look like other rows."""
    theirs = 'a|b\n9|9|root|0|\n; gpu-lease: x {"v":9}'
    text = row(7, "", UNKNOWN_UID, theirs) + row(8, "ann", 5, 'gpu-lease: x {"v":2,')
    first, second = parse(text, BETWEEN)
    assert (first.job_id, first.user, first.start, first.end) == (7, str(UNKNOWN_UID), 0, 0)
    assert (first.node, first.shares) == ("node[1-2]", True)
    assert "version 9" in first.fault
    assert "is not JSON" in second.fault


@pytest.mark.parametrize(
    "text", ["nonsense", "7|@|7|@|", row(7, "ann", 5).replace("|@|5|@|", "|@|x|@|")]
)
def test_another_answer_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(Refused, match="sacct's answer cannot be read") as fault:
        parse(text, BETWEEN)
    assert "\n" not in fault.value.sentence()


# -- running it --------------------------------------------------------------------------


def test_options_are_passed_in_sacct_words(tmp_path: Path) -> None:
    env = fake(tmp_path, f'echo "$@" > {tmp_path}/asked')
    asked = Asked("7_1", "root,65534", "ROOT", "now-1hour", "2026-01-02T03:04:05")
    assert len(sacct.ask(asked, env)) == 6, "the row of nobody has no account"
    words = (tmp_path / "asked").read_text()
    assert words.startswith("--allocations --duplicates --noheader --parsable --delimiter=")
    assert words.endswith(
        " --user=0,65534 --jobs=7_1 --accounts=ROOT --starttime=now-1hour "
        "--endtime=2026-01-02T03:04:05\n"
    )


@pytest.mark.parametrize(
    ("user", "words"),
    [
        # From 25.11 on sacct knows no user of that name.
        ("nobody", " --user=65534\n"),
        # sacct refuses what this host does not know.
        (f"root,{UNKNOWN_UID}", " --allusers\n"),
        (f"root,{2**40}", " --allusers\n"),
        ("left", " --allusers\n"),
    ],
)
def test_users_are_asked_for_as_sacct_knows_them(tmp_path: Path, user: str, words: str) -> None:
    env = fake(tmp_path, f'echo "$@" > {tmp_path}/asked')
    (tmp_path / "said").write_text(row(1, "left", UNKNOWN_UID) + row(2, "nobody", 65534))
    sacct.ask(Asked(user=user), env)
    assert (tmp_path / "asked").read_text().endswith(words)


def test_a_user_whom_nobody_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match=r"knows no user 'no\?such', and none of these jobs"):
        sacct.ask(Asked(user="root,no\x1bsuch"), fake(tmp_path))


@pytest.mark.parametrize(
    ("asked", "uid", "jobs"),
    [
        (Asked(), 0, [1, 2, 3, 4]),
        (Asked(), 65534, [1]),
        (Asked(jobs="1,2,3"), 65534, [1, 2, 3, 4]),
        (Asked(user="nobody"), 0, [1]),
        (Asked(user=str(UNKNOWN_UID)), 0, [2]),
        (Asked(user="left,root"), 5, [3, 4]),
        (Asked(account="phys,chem"), 0, [2]),
        (Asked(account="chem", user="nobody"), 0, []),
    ],
)
def test_rows_that_were_not_asked_for_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked, uid: int, jobs: list[int]
) -> None:
    """Whatever sacct makes of its options."""
    env = fake(tmp_path)
    rows = row(1, "nobody", 65534) + row(2, "", UNKNOWN_UID, account="chem") + row(3, "root", 0)
    rows += row(4, "left", UNKNOWN_UID - 1)
    (tmp_path / "said").write_text(rows)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    found: list[Row] = sacct.ask(asked, env)
    assert [each.job_id for each in found] == jobs


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        # As Slurm 22.05 says it.
        (
            "sacct: error: Problem talking to the database: Connection refused",
            NoAnswer,
            "slurmdbd does not answer",
        ),
        (
            "sacct: fatal: Could not establish a configuration source",
            Refused,
            "finds no slurm.conf",
        ),
        ("Slurm accounting storage is disabled", Refused, "keeps no accounting"),
        ("sacct: fatal: Unable to process configuration file", Refused, "finds no slurm.conf"),
        ("Invalid time specification (pos=0): garbage", WrongUsage, "Invalid time"),
        ("sacct: fatal: Bad job/step specified: x1", WrongUsage, "^Bad job/step"),
        ("sacct: error: Invalid user id: nobody1", WrongUsage, "^Invalid user id"),
        ("sacct: fatal: Bad job array element specified: 3", WrongUsage, "^Bad job array"),
        (
            "sacct: error: Start time (9) requested is after end time (1).",
            WrongUsage,
            "is after end time",
        ),
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
