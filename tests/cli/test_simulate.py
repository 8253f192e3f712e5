"""gpu-leasectl simulate: what it prints, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leased.cli import ctl
from tests.conftest import ROOT

TRACE = """
[gpu]
memory = "16GB"
[[job]]
name = "pair"
count = 2
memory = "15GB"
gpu = "5s"
cpu = "5s"
cycles = 4
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.toml"
    path.write_text(TRACE)
    return str(path)


def test_a_table_of_settings_fits_80_columns(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", trace, "--tq", "2,60,1h", "--lock", "on,off", "--policy", "fcfs,fair"]
    assert ctl.main([*arguments, "--jobs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split()[:3] for line in lines[1:10]]
    assert rows[0] == ["one", "by", "one"]
    assert rows[1:5] == [["fcfs", "on", "2"], ["fcfs", "on", "60"], ["fcfs", "on", "3600"],
                         ["fcfs", "off", "-"]]  # fmt: skip
    assert "80.00 s" in lines[1]
    assert sum(line.startswith("pair.1 ") for line in lines) == 9


def test_json_has_every_setting_and_job(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["simulate", "--json", trace, "--tq", "500ms"]) == 0
    one_by_one, shared = json.loads(capsys.readouterr().out)
    assert one_by_one["exclusive"]
    assert one_by_one["makespan_s"] == 80
    assert [job["end_s"] for job in one_by_one["jobs"]] == [40, 80]
    assert (shared["policy"], shared["lock"], shared["quantum_s"]) == ("fcfs", None, 0.5)
    assert 40 < shared["makespan_s"] < 80
    assert shared["handoffs"] == sum(job["handoffs"] for job in shared["jobs"])
    assert shared["moved_bytes"] == sum(job["moved_bytes"] for job in shared["jobs"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tq", "soon"], "--tq = 'soon' is not a time; write seconds"),
        (["--tq", ""], "--tq = '' is not a time"),
        (["--lock", "on,half"], "--lock = 'half' is not known; write one of on, off, auto"),
        (
            ["--policy", "lottery"],
            "--policy = 'lottery' is not known; write one of elastic, fair, fcfs",
        ),
    ],
)
def test_a_bad_list_is_refused(
    trace: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert ctl.main(["simulate", trace, *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_missing_trace_is_refused_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["simulate", "--json", "/nowhere/trace.toml"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["error"] == "there is no trace /nowhere/trace.toml"
    assert told.err == "gpu-leasectl: there is no trace /nowhere/trace.toml; docs/simulate.md shows one\n"  # fmt: skip  # noqa: E501


# -- of a record ---------------------------------------------------------------------------

RECORD = str(ROOT / "tests" / "sim" / "data" / "turns-2s.record")


def test_a_record_is_simulated_beside_what_really_happened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ctl.main(["simulate", "--from-record", RECORD, "--tq", "2", "--lock", "on"]) == 0
    told = capsys.readouterr()
    names = [line.split()[0] for line in told.out.splitlines()[1:4]]
    assert names == ["recorded", "one", "fcfs"]
    assert max(map(len, told.out.splitlines())) <= 80
    assert "the recorder stopped here: gpu-leased ended" in told.err


def test_the_trace_of_a_record_is_printed_and_simulates_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ctl.main(["simulate", "--from-record", RECORD, "--print-trace"]) == 0
    path = tmp_path / "printed.toml"
    path.write_text(capsys.readouterr().out)
    assert ctl.main(["simulate", str(path), "--json"]) == 0
    of_trace = json.loads(capsys.readouterr().out)
    assert ctl.main(["simulate", "--from-record", RECORD, "--json"]) == 0
    recorded, *of_record = json.loads(capsys.readouterr().out)
    assert of_trace == of_record
    assert (recorded["policy"], recorded["exclusive"]) == ("recorded", False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory); see docs/daemon.md, A record"),
        (TRACE, "line 1: this is not a line of a record; name a file that daemon.record has named"),
        ("", "there is no record in it; name a file"),
    ],
)
def test_anything_but_a_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    path = tmp_path / "record"
    if content is not None:
        path.write_text(content)
    assert ctl.main(["simulate", "--from-record", str(path)]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error


def test_one_source_is_needed(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], [trace, "--from-record", RECORD]):
        with pytest.raises(SystemExit) as ended:
            ctl.main(["simulate", *words])
        assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
