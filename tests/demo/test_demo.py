"""`make demo`, with short jobs: the same way through, and the same result file."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from leased.sim import history, spans
from tests.conftest import ROOT
from tests.demo.scenarios import PLAN

JOB_KEYS = {"job_id", "state", "exit_code", "lease_s", "wait_s", "handoffs", "moved_bytes"}


@pytest.mark.timeout(900)  # it is a minute where nothing else runs
def test_quick_demo_writes_its_result() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo.demo", "--gpu", "emulated", "--quick"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.splitlines()
    story = next(n for n, line in enumerate(shown) if line.startswith("Two jobs on one GPU ["))
    assert len(shown[story:]) < 24, "a screen, with the prompt below it"
    assert max(map(len, shown)) <= 80
    assert done.stdout.count("EMULATED GPU]") >= 2, "every table says so"
    assert "lock:on, tq:1   always" in done.stdout
    assert done.stdout.count('"lease_s"') == 1, "the JSON of one job, without its steps"
    assert done.stdout.count(" s, waited ") == 1, "what it has had, in words"
    assert "What to try next:" in done.stdout
    drawn = re.search(r"drawn: (\S+)", done.stdout)
    assert drawn is not None
    assert "<svg" in (ROOT / drawn[1]).read_text()
    result = json.loads((ROOT / "build" / "demo" / "result.json").read_text())
    assert result["gpu"]["kind"] == "emulated"
    ran = {name: [r["mode"] for r in result["scenarios"] if r["name"] == name] for name in PLAN}
    assert ran == PLAN
    for served in result["service"]:
        assert 0 < served["step_p50_ms"] <= served["step_p99_ms"]
    served = {one["mode"]: (len(one["jobs"]), one["batch_steps_s"]) for one in result["service"]}
    assert served["alone"] == (1, 0.0)
    assert all(jobs == 2 and did > 0 for jobs, did in (served["lock_off"], served["classes"]))
    for run in [*result["scenarios"], *result["service"]]:
        assert run.get("makespan_s", 1) > 0
        assert len(run["jobs"]) == 2 or run["mode"] == "alone"
        for job in run["jobs"]:
            assert set(job) == JOB_KEYS | {"checksum_ok"}
            assert (job["state"], job["exit_code"]) == ("COMPLETED", "0:0")
            assert job["checksum_ok"]
            assert job["lease_s"] > 0
    classes = [line for line in result["sacct"] if '"class":"online"' in line]
    assert len(classes) == 1
    heavy = {run["mode"]: run["jobs"] for run in result["scenarios"] if run["name"] == "heavy"}
    assert all(job["moved_bytes"] > 0 for job in heavy["tq"]), "memory was paged out and back"
    assert sum("gpu-lease: GPU 0: " in line for line in result["sacct"]) == 16
    numbers = [job["job_id"] for job in heavy["tq"]]
    with (ROOT / "build" / "demo" / "record").open("rb") as record:
        picture = spans.picture(history.of(record, []), numbers)
    lanes = [lane for device in picture.devices for lane in device.lanes]
    assert sorted(lane.job for lane in lanes) == sorted(numbers)
    assert all(any(span.kind == spans.HOLDS for span in lane.spans) for lane in lanes)
