"""Usage on a real Slurm's accounting: each run of each job on its own row, once, beside others'."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.cli import ctl
from leased.cli.subcommand import ExitStatus
from leased.slurm.usage_record import MARK
from tests.slurm.accounted import MIB, gpu_work, have_usage, peaks, runs, script, states
from tests.slurm.cluster import FINISHED
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.slurm.test_share import JOB

USERS = ("nobody", "daemon")
UNKNOWN_UID = 4_294_967_293  # this host has no name for it
AGAIN_S = 180.0  # for a requeued job to run: slurmctld looks at such jobs once a minute
# What it says of a job, and as it stands in AdminComment: JS1: and all of the text behind it.
STATS = {"gpus": 1, "nodes": {"node1": {"cpus": 2, "total_memory": 33554432000}}, "total_time": 77}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two nodes: Slurm puts parts of a heterogeneous job on nodes of their own."""
    with sharing_site(nodes=2) as made:
        yield made


def jobstats_blob(extra: int) -> str:
    """A blob whose base64 has so many "=" at its end (0 to 2)."""
    for length in range(3):
        packed = gzip.compress(json.dumps(STATS | {"x": "y" * length}).encode(), mtime=0)
        text = base64.b64encode(packed).decode()
        if len(text) - len(text.rstrip("=")) == extra:
            return "JS1:" + text
    pytest.fail("no such length")


def read_jobstats(comment: str) -> dict[str, Any]:
    """As jobstats documents its format, and its readers decode it: to the end of the text."""
    assert comment.startswith("JS1:")
    return dict(json.loads(gzip.decompress(base64.b64decode(comment[4:]))))


def test_each_run_of_a_requeued_job_has_its_own_usage(site: Site) -> None:
    marks = [site.work / f"run{n}" for n in range(3)]
    job = site.slurm.sbatch(
        *("--gres=shard:1", "--requeue", "-o", str(site.work / "requeued.log")),
        script(
            *(site, "requeued", "run=${SLURM_RESTART_COUNT:-0}"),
            gpu_work(f"$(( (1 + run) * {16 * MIB} ))"),
            *(f"touch {site.work}/run$run", "[ $run = 2 ] || exec sleep 600"),
        ).as_posix(),
        cwd=site.work,
    )
    for mark in marks[:2]:
        wait_until(f"{mark.name} to have used the GPU", mark.exists, timeout=AGAIN_S)
        site.requeue(job)
    state = site.slurm.wait(job, timeout=AGAIN_S)
    assert state == "COMPLETED", (site.work / "requeued.log").read_text()

    found = have_usage(site, job, 3)
    assert states(found) == ["REQUEUED", "REQUEUED", "COMPLETED"]
    assert peaks(found) == [[16], [32], [48]]
    assert all(run.usage["lock"] == "auto" for run in found)


def test_usage_that_comes_late_is_on_the_row_of_its_run(site: Site) -> None:
    mark = site.work / "late"
    job = site.slurm.sbatch(
        *("--gres=shard:1", "--requeue", "-o", str(site.work / "late.log")),
        script(
            *(site, "late", "run=${SLURM_RESTART_COUNT:-0}"),
            gpu_work(f"$(( (1 + run) * {16 * MIB} ))"),
            *(f"touch {mark}", "exec sleep 600"),
        ).as_posix(),
        cwd=site.work,
    )
    wait_until("the first run to have used the GPU", mark.exists, timeout=AGAIN_S)
    mark.unlink()
    conf = site.slurm.layout.etc / "slurm.conf"
    text = conf.read_text()
    port = site.slurm.layout.ports["slurmdbd"]
    elsewhere = site.work / "nowhere.conf"
    elsewhere.write_text(text.replace(f"AccountingStoragePort={port}", "AccountingStoragePort=9"))
    before = site.leased.config.read_text()
    site.leased.stop()
    site.leased.config.write_text(before + f'slurm_conf = "{elsewhere}"\n')
    site.leased.start()
    try:
        site.requeue(job)
        wait_until("the second run to have used the GPU", mark.exists, timeout=AGAIN_S)
        wait_until(
            "it to be said that nothing can be written",
            lambda: (
                "usage of 1 job is not in Slurm's accounting yet" in site.leased.log.read_text()
            ),
            timeout=AGAIN_S,
        )
        assert peaks(runs(site, job))[0] == []
    finally:
        site.leased.stop()
        site.leased.config.write_text(before)
        site.leased.start()
    wait_until("the first run's usage", lambda: peaks(runs(site, job))[0] == [16])
    # slurmdbd may hear of the second run's start later.
    wait_until("the states of both", lambda: states(runs(site, job)) == ["REQUEUED", "RUNNING"])
    assert peaks(runs(site, job)) == [[16], []]
    site.slurm.run("scancel", str(job))
    site.slurm.wait(job)
    wait_until("the second's", lambda: peaks(runs(site, job)) == [[16], [32]], timeout=AGAIN_S)


def test_tasks_of_an_array_have_each_their_own(site: Site) -> None:
    array = site.slurm.sbatch(
        *("--array=1-3", "--gres=shard:1", "-o", str(site.work / "array-%a.log")),
        script(site, "array", gpu_work(f"$(( SLURM_ARRAY_TASK_ID * {16 * MIB} ))")).as_posix(),
        cwd=site.work,
    )
    found = have_usage(site, array, 3)
    assert {run.raw: run.peaks for run in found} == {f"{array}_{n}": [16 * n] for n in (1, 2, 3)}


def test_parts_of_a_heterogeneous_job_have_each_their_own(site: Site) -> None:
    path = script(
        *(site, "het"),
        f"srun --het-group=0 sh -c '{gpu_work(16 * MIB)}'",
        f"srun --het-group=1 sh -c '{gpu_work(48 * MIB)}'",
    )
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", str(site.work / "het.log"), ":", "--gres=shard:1"),
        path.as_posix(),
        cwd=site.work,
    )
    assert site.slurm.wait(job) == "COMPLETED", (site.work / "het.log").read_text()
    assert peaks(have_usage(site, job, 2)) == [[16], [48]]


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_jobstats_texts_can_be_read_beside_ours(site: Site, padding: int) -> None:
    blob = jobstats_blob(padding)
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null", script(site, "js", gpu_work(16 * MIB)).as_posix()),
        cwd=site.work,
    )
    site.slurm.run("scontrol", "update", f"jobid={job}", f"admincomment={blob}")
    site.slurm.wait(job)
    site.slurm.accounting(job, usage=True)
    assert read_jobstats(site.slurm.sacct(job, "AdminComment")["AdminComment"])["total_time"] == 77
    # It writes over whatever is there, some seconds after the end.
    site.slurm.run(
        "sacctmgr", "-i", "modify", "job", f"jobid={job}", "set", "admincomment=js1:late"
    )
    row = site.slurm.sacct(job, "AdminComment", "SystemComment")
    assert row["AdminComment"] == "js1:late"
    assert MARK in row["SystemComment"]
    assert row["SystemComment"].count(MARK) == 1


def test_usage_of_many_jobs_is_written_by_few_children(site: Site) -> None:
    jobs = [
        site.slurm.sbatch("--gres=shard:1", "-o", "/dev/null", "--wrap", "true", cwd=site.work)
        for _ in range(12)
    ]
    for job in jobs:
        assert site.slurm.wait(job) in FINISHED
        site.slurm.accounting(job, usage=True)

    def times(job: int) -> int:
        return site.leased.log.read_text().count(f"usage of job {job} is in Slurm's accounting")

    wait_until("the daemon to have written all of it", lambda: all(times(job) for job in jobs))
    assert [times(job) for job in jobs] == [1] * len(jobs)


def test_a_report_reads_back_what_was_written(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(site, "reported", gpu_work(16 * MIB)).as_posix()
    job = site.slurm.sbatch("--gres=shard:1", "-o", "/dev/null", path, cwd=site.work)
    site.slurm.wait(job)
    site.slurm.accounting(job, usage=True)
    [run] = runs(site, job)
    [(uuid, figures)] = run.usage["gpus"].items()
    index = site.devices().index(uuid)
    text = site.slurm.sacct(job, "SystemComment")["SystemComment"]
    assert re.match(rf"gpu-lease: GPU {index}: [0-9.]+ s of [0-9.]+ s, waited ", text)

    monkeypatch.setenv("SLURM_CONF", site.slurm.env["SLURM_CONF"])
    assert ctl.main(["report", "-j", str(job), "--by", "device", "--json"]) == ExitStatus.DONE
    report = json.loads(capsys.readouterr().out)
    (group,) = report["groups"]
    assert re.fullmatch(rf"\S+:{index}", group["name"])
    assert {key: group[key] for key in ("time_s", "lease_s", "wait_s", "handoffs")} == {
        key: figures[key] for key in ("time_s", "lease_s", "wait_s", "handoffs")
    }
    assert ctl.main(["report", "-j", str(job), "-u", "root", "-S", "now-1hour"]) == ExitStatus.DONE
    assert "\nroot " in capsys.readouterr().out

    unknown = str(job + 100_000)
    assert ctl.main(["report", "-j", unknown]) == ExitStatus.REFUSED
    assert f"job {unknown} is unknown" in capsys.readouterr().err
    assert ctl.main(["report", "-S", "garbage"]) == ExitStatus.USAGE
    conf = Path(site.slurm.env["SLURM_CONF"]).read_text()
    silent = site.work / "silent.conf"
    silent.write_text(re.sub("AccountingStoragePort=[0-9]+", "AccountingStoragePort=1", conf))
    monkeypatch.setenv("SLURM_CONF", str(silent))
    assert ctl.main(["report", "-j", str(job)]) == ExitStatus.NO_ANSWER
    assert "slurmdbd does not answer" in capsys.readouterr().err


def test_a_report_knows_whose_each_job_is(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of users without associations, which a site without sacctmgr's users has. The jobs end
    when slurmdbd knows their start: what it hears of the end or of a step before that makes a row
    of root's."""
    known = site.work / "known"
    waits = f"until [ -e {known} ]; do sleep 0.1; done"
    path = script(site, "whose", gpu_work(16 * MIB), waits).as_posix()
    words = ("--gres=shard:1", "-o", "/dev/null", path)
    jobs = {user: site.slurm.sbatch(*words, user=user, cwd=site.work) for user in USERS}

    def theirs() -> bool:
        rows = {user: site.slurm.sacct(job, "User").get("User") for user, job in jobs.items()}
        return all(user == found for user, found in rows.items())

    wait_until("slurmdbd to know whose they are", theirs)
    known.touch()
    for job in jobs.values():
        assert site.slurm.wait(job) in FINISHED
        site.slurm.accounting(job, usage=True)
    monkeypatch.setenv("SLURM_CONF", site.slurm.env["SLURM_CONF"])
    listed = ",".join(map(str, jobs.values()))

    def told(*words: str) -> dict[str, int]:
        assert ctl.main(["report", "--json", *words]) == ExitStatus.DONE
        groups = json.loads(capsys.readouterr().out)["groups"]
        return {group["name"]: group["jobs"] for group in groups}

    assert told("-j", listed, "--by", "user") == dict.fromkeys(USERS, 1)
    for user, job in jobs.items():
        since = ("-S", "now-1hour", "--by", "job")
        assert told("-u", user, *since) == {str(job): 1}
        assert told("-u", f"{UNKNOWN_UID},{user}", *since) == {str(job): 1}


def test_steps_are_told_apart_and_add_up_to_their_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps one after the other, then two at once, of which one ends with the other."""
    done, log = site.work / "step3.json", site.work / "steps.log"
    program = f"{sys.executable} {JOB} --steps 2 --bytes"
    path = script(
        *(site, "steps", f"srun {program} {16 * MIB} --result /dev/null || exit 1"),
        f"srun {program} {48 * MIB} --result /dev/null || exit 1",
        f"srun --overlap {program} {32 * MIB} --until {done} --result /dev/null &",
        f"srun --overlap {program} {64 * MIB} --pause-ms 500 --result {done} || exit 1",
        "wait $!",
    )
    job = site.slurm.sbatch("--gres=shard:1", "-o", str(log), path.as_posix(), cwd=site.work)
    assert site.slurm.wait(job) == "COMPLETED", log.read_text()
    (run,) = have_usage(site, job, 1)
    ((uuid, of_job),) = run.usage["gpus"].items()
    steps = run.usage["steps"]
    size = {name: step["gpus"][uuid]["peak_bytes"] // MIB for name, step in steps.items()}
    assert (size["0"], size["1"], {size["2"], size["3"]}) == (16, 48, {32, 64})
    assert steps["0"]["to"] <= steps["1"]["from"] <= steps["1"]["to"] <= steps["2"]["from"]
    assert max(steps[n]["from"] for n in "23") < min(steps[n]["to"] for n in "23")
    monkeypatch.setenv("SLURM_CONF", site.slurm.env["SLURM_CONF"])
    assert ctl.main(["report", "-j", str(job), "--by", "step", "--json"]) == ExitStatus.DONE
    report = json.loads(capsys.readouterr().out)
    groups = report["groups"]
    assert {group["name"] for group in groups} == {f"{job}.{name}" for name in "0123"}
    for figure in ("lease_s", "busy_s", "measured_s"):
        total = sum(group[figure] for group in groups)
        assert total == pytest.approx(of_job[figure], abs=0.01), figure
    assert all(group["lease_s"] > 0 for group in groups)
