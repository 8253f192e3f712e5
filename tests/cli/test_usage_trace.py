"""Jobs of Slurm's accounting as a trace; sacct is a script that says what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.base import toml_file
from leased.base.errors import Refused
from leased.cli import ctl, usage_trace
from leased.sim import trace_text
from leased.sim.jobs import GIB, S, Setting
from leased.sim.run import run
from leased.sim.trace import trace_of
from leased.slurm import usage_record
from leased.slurm.sacct import Row
from leased.slurm.usage_record import Run
from leased.usage.usage import Usage
from tests.support import fake_sacct


def row(job: int, node: str = "node1", gpu: int = 0, **figures: float) -> Row:
    """A job that began `job` seconds after 1000."""
    said = {"time_s": 100.0, "lease_s": 40.0, "wait_s": 20.0, "peak_bytes": 8.0 * GIB}
    said |= {"handoffs": 4.0, "moved_bytes": 3.0 * GIB} | figures
    usage = Run("on", {f"GPU-{gpu}": said}, {f"GPU-{gpu}": gpu}, 1000.0 + job, 1100.0 + job)
    return Row(job, str(job), "ann", 1000, "a", node, 1000, 1100, True, usage)


def test_sums_are_cut_into_bursts() -> None:
    found = usage_trace.of([row(5, measured_s=20, busy_s=15), row(1, gpu=1)], 16 * GIB)
    one, five = found.trace.jobs
    assert (one.name, one.gpus, one.submit) == ("job 1", (1,), 0)
    assert one.bursts == ((10 * S, 10 * S),) * 4
    assert five.submit == 4 * S
    assert five.gpu_ns == 30 * S, "busy for three quarters of its lease"
    assert (five.lock, five.memory, len(found.trace.gpus)) == ("on", 8 * GIB, 2)
    assert found.real is not None
    assert [job.waited for job in found.real.jobs] == [20 * S, 20 * S]
    assert (found.real.handoffs, found.real.makespan) == (8, 104 * S)


def test_the_trace_is_printed_and_read_again() -> None:
    found = usage_trace.of([row(1), row(2, handoffs=0, lease_s=33.3333)], 16 * GIB)
    assert (
        trace_of(toml_file.parse(trace_text.text(found.trace, found.notes).encode())) == found.trace
    )


def test_it_can_be_simulated() -> None:
    """Half of the time of each on the GPU: together they take less than one by one."""
    found = usage_trace.of([row(1), row(2)], 16 * GIB)
    shared, alone = (
        run(found.trace, setting) for setting in (Setting(lock="on"), Setting(exclusive=True))
    )
    assert found.trace.jobs[0].alone_ns == 80 * S
    assert shared.makespan < alone.makespan


@pytest.mark.parametrize(
    ("rows", "node", "said"),
    [
        ([], None, "no job with a record has used a GPU since then"),
        ([row(1)], "node9", "no job of node9 with a record has used a GPU"),
        ([row(1), row(2, "node2")], None, "2 nodes; name one with --node: node1, node2"),
        (
            [row(1, peak_bytes=20 * GIB)],
            None,
            "had 20.0 GiB of a GPU, which is more than --gpu-memory 16",
        ),
    ],
)
def test_jobs_that_make_no_trace_are_refused(rows: list[Row], node: str | None, said: str) -> None:
    with pytest.raises(Refused) as refused:
        usage_trace.of(rows, 16 * GIB, node)
    assert said in refused.value.sentence()


def test_one_node_of_several_is_taken() -> None:
    found = usage_trace.of([row(1), row(2, "node2")], 16 * GIB, "node2")
    assert [job.name for job in found.trace.jobs] == ["job 2"]


def test_sacct_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = Usage(time_ns=60 * S, lease_ns=30 * S, wait_ns=10 * S, handoffs=3, peak_bytes=4 * GIB)
    comment = usage_record.record({"GPU-x": used}, "auto", 1000.0, 1060.0, {"GPU-x": 0})
    monkeypatch.setenv("PATH", fake_sacct.fake(tmp_path)["PATH"])
    row = fake_sacct.line(
        *(7, 7, "ann", 5, "a", "node1", 1000, 1060, "gres/shard=1", "COMPLETED", comment)
    )
    (tmp_path / "said").write_text(row)
    monkeypatch.setattr("os.geteuid", lambda: 5)
    words = ["simulate", "--from-usage", "now-7days"]
    assert ctl.main([*words, "--gpu-memory", "16GiB"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].startswith("recorded")
    assert "Slurm's accounting has only sums" in told.err
    assert ctl.main(words) == 1
    assert "does not say how much memory the GPUs have; write for example" in (
        capsys.readouterr().err
    )
