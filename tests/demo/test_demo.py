"""`make demo`, with short jobs: the same way through, and the same result file."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from leased.sim import history, spans
from tests.conftest import ROOT
from tests.demo.scenarios import PLAN

JOB_KEYS = {"job_id", "state", "exit_code", "lease_s", "wait_s", "handoffs", "moved_bytes"}


def test_quick_demo_writes_its_result() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo.demo", "--gpu", "emulated", "--quick"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("EMULATED") >= 2, "every table says so"
    assert max(map(len, done.stdout.splitlines())) <= 108
    assert done.stdout.count('"time_s"') <= 2, "the JSON of one job, and of its step"
    assert done.stdout.count(" s, waited ") == 12, "what each has had, in words"
    assert "What to try next:" in done.stdout
    drawn = re.search(r"drawn: (\S+)", done.stdout)
    assert drawn is not None
    assert "<svg" in (ROOT / drawn[1]).read_text()
    result = json.loads((ROOT / "build" / "demo" / "result.json").read_text())
    assert result["gpu"]["kind"] == "emulated"
    ran = {name: [r["mode"] for r in result["scenarios"] if r["name"] == name] for name in PLAN}
    assert ran == PLAN
    for run in result["scenarios"]:
        assert run["makespan_s"] > 0
        assert len(run["jobs"]) == 2
        for job in run["jobs"]:
            assert set(job) == JOB_KEYS | {"checksum_ok"}
            assert (job["state"], job["exit_code"]) == ("COMPLETED", "0:0")
            assert job["checksum_ok"]
            assert job["lease_s"] > 0
    heavy = {run["mode"]: run["jobs"] for run in result["scenarios"] if run["name"] == "heavy"}
    assert all(job["moved_bytes"] > 0 for job in heavy["tq"]), "memory was paged out and back"
    assert sum("gpu-lease: GPU 0: " in line for line in result["sacct"]) == 12
    numbers = [job["job_id"] for job in heavy["tq"]]
    with (ROOT / "build" / "demo" / "record").open("rb") as record:
        picture = spans.picture(history.of(record, []), numbers)
    lanes = [lane for device in picture.devices for lane in device.lanes]
    assert sorted(lane.job for lane in lanes) == sorted(numbers)
    assert all(any(span.kind == spans.HOLDS for span in lane.spans) for lane in lanes)
