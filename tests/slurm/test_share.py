"""The whole, on a real Slurm and the emulated GPU: refusals, environments, steps, accounting."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.config.options import KEYS
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import Accounting
from tests.slurm.leased import PRELOAD
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.machine import open_checkout_required

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tests" / "demo" / "job.py"
NOBODY = "nobody"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sharing_site(plugin_args=["tq_min=50ms", "tq_max=20m"]) as made:
        yield made


AT_SUBMISSION = {
    "tq:abc": "tq:abc is not a time; write seconds (30), 30s, 500ms or 2m",
    "tq:1,tq:2": "tq is given twice; give each key once",
    "color:red": f"unknown key 'color'; the keys are {', '.join([*KEYS][:-1])} and {[*KEYS][-1]}",
    "lock": "lock has no value; write for example lock:auto",
    "": "the value is empty; write for example tq:60,lock:auto",
    "mem:150%": "mem:150% is no fraction of the device; write one above 0 and up to 1",
    "mem:2": "mem:2 is no fraction of the device; write one above 0 and up to 1",
    "tq:1ms": "tq of 0.001s is outside this site's limits; choose one between 0.05s and 1200s",
}


@pytest.mark.parametrize("value", AT_SUBMISSION)
@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_refused_before_there_is_a_job(site: Site, command: str, value: str) -> None:
    tail = ["--wrap", "true"] if command == "sbatch" else ["true"]
    done = site.slurm.run(
        command, "--gres=shard:1", f"--gpu-share={value}", *tail, check=False, cwd=site.work
    )
    assert done.returncode != 0
    assert AT_SUBMISSION[value] in done.stderr
    assert site.slurm.run("squeue", "-h").stdout == ""


@pytest.mark.parametrize("gres", ["gres/shard:1", "gres/shard=1", "gres:shard:1", "shard"])
def test_slurm_alone_says_which_spelling_of_a_shard_it_takes(site: Site, gres: str) -> None:
    asked = ("sbatch", "--test-only", f"--gres={gres}", "--wrap=true")
    plain = site.slurm.run(*asked, check=False, cwd=site.work)
    shared = site.slurm.run(*asked, "--gpu-share=tq:5", check=False, cwd=site.work)
    assert shared.returncode == plain.returncode
    assert "gpu-share" not in shared.stderr


def test_environment_is_checked_like_the_option(site: Site) -> None:
    done = site.run("--gres=shard:1", "true", env={"GPU_SHARE": "tq:never"})
    assert done.returncode != 0
    assert "from the environment variable GPU_SHARE" in done.stderr


NEEDS_OTHER_GRES = {
    "without a shard": (["--gpu-share=tq:5"], "--gpu-share without a shard; add --gres=shard:1"),
    "no shards": (["--gpu-share=tq:5", "--gres=shard:0"], "without a shard; add --gres=shard:1"),
    "no shards of a type": (
        ["--gpu-share=tq:5", "--gres=shard:a:00"],
        "without a shard; add --gres=shard:1",
    ),
    "whole GPUs": (
        ["--gpu-share=tq:5", "--gres=gpu:1"],
        "--gpu-share without a shard; ask for --gres=shard:1 instead of whole GPUs",
    ),
    "--gpus": (["--gpu-share=tq:5", "--gpus=1"], "--gres=shard:1 instead of whole GPUs"),
    "exclusive": (
        ["--gpu-share=tq:5", "--gres=shard:1", "--exclusive"],
        "with --exclusive a job has its GPUs for itself and shares none; leave out --exclusive",
    ),
    "whole GPUs and shards": (
        ["--gres=shard:1,gpu:1"],
        "a job has whole GPUs or shards, not both; leave out the shard, or the whole GPUs",
    ),
    "shards and --gpus": (["--gres=shard:1", "--gpus=1"], "has whole GPUs or shards, not both"),
    "two nodes": (
        ["--gres=shard:1", "-N2"],
        "a job on several nodes cannot share GPUs here; ask for one node (-N1), or for whole GPUs",
    ),
}


@pytest.mark.parametrize("case", NEEDS_OTHER_GRES)
@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_gres_that_cannot_share_is_refused_before_there_is_a_job(
    site: Site, command: str, case: str
) -> None:
    arguments, sentence = NEEDS_OTHER_GRES[case]
    tail = ["--wrap", "true"] if command == "sbatch" else ["true"]
    done = site.slurm.run(command, *arguments, *tail, check=False, cwd=site.work)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{command}: error: gpu-share: ")
    assert sentence in line
    assert site.slurm.run("squeue", "-h").stdout == ""


def test_options_in_the_script_are_seen(site: Site) -> None:
    script = site.work / "directives.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpu-share=tq:5\n#SBATCH -G 1\ntrue\n")
    done = site.slurm.run("sbatch", str(script), check=False, cwd=site.work)
    assert "ask for --gres=shard:1 instead of whole GPUs" in done.stderr


ON_THE_NODE = {
    "the daemon's limit": (
        ["--gres=shard:1", "--gpu-share=tq:15m"],
        "tq:900s is outside this site's limits; choose tq between 0.03s and 600s",
    ),
    "not allowed": (
        ["--gres=shard:1", "--gpu-share=memory:swap,oversub:on"],
        "memory:swap does not go with oversub:on, since",
    ),
}


@pytest.mark.parametrize("case", ON_THE_NODE)
def test_refused_on_the_node_without_draining_it(site: Site, case: str) -> None:
    arguments, sentence = ON_THE_NODE[case]
    done = site.run(*arguments, "true")
    assert done.returncode != 0
    assert f"gpu-share: {sentence}" in done.stderr
    log = site.work / "refused.log"
    job = site.slurm.sbatch(*arguments, "-o", str(log), "--wrap", "true", cwd=site.work)
    assert site.slurm.wait(job) == "FAILED"
    assert f"gpu-share: {sentence}" in log.read_text()
    site.node_works()


def test_a_refused_task_says_one_line(site: Site) -> None:
    done = site.run("-n2", "--gres=shard:1", "--gpu-share=tq:15m", "true")
    said = "gpu-share: tq:900s is outside this site's limits; choose tq between 0.03s and 600s"
    end = f"srun: error: {site.slurm.node}: tasks 0-1: Exited with exit code 1"
    assert sorted(done.stderr.splitlines()) == [said, said, end]


def test_a_limit_that_limits_nothing_is_noted_by_one_task(site: Site) -> None:
    done = site.run("-n2", "--gres=shard:1", "--gpu-share=mem:900GiB", "true")
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("srun: job ")]
    assert [line.partition(",")[0] for line in lines] == [
        "gpu-share: mem:900 GiB has no effect on GPU 0"
    ]


def test_daemon_that_is_not_running(site: Site) -> None:
    site.leased.stop()
    try:
        done = site.run("--gres=shard:1", "true")
        assert done.returncode != 0
        assert "gpu-leased is not running on this node" in done.stderr
        assert "systemctl start gpu-leased" in done.stderr
        assert site.run("--gres=gpu:1", "true").returncode == 0
    finally:
        site.leased.start()
    site.node_works()


def test_help_lists_the_keys(site: Site) -> None:
    done = site.run("--gpu-share=help")
    assert done.returncode == 0
    assert "lock:on | lock:off | lock:auto" in done.stdout


def test_submission_loads_no_python(site: Site) -> None:
    for value in ("tq:5", "tq:bad"):
        done = site.slurm.run(
            *("sbatch", "--test-only", "--gres=shard:1", f"--gpu-share={value}", "--wrap=true"),
            env={"LD_DEBUG": "libs"},
            check=False,
            cwd=site.work,
        )
        assert "gpu_share.so" in done.stderr
        assert "libpython" not in done.stderr


def preload_of(site: Site, *srun: str, before: str | None = None) -> list[str]:
    done = site.run(*srun, "printenv", "LD_PRELOAD", env={"LD_PRELOAD": before} if before else {})
    return done.stdout.strip().split(":") if done.stdout.strip() else []


def test_our_library_is_added_to_the_users(site: Site) -> None:
    theirs = "/lib/x86_64-linux-gnu/libdl.so.2"
    assert preload_of(site, "--gres=shard:1") == [str(PRELOAD)]
    assert preload_of(site, "--gres=shard:1", before=theirs) == [theirs, str(PRELOAD)]


def test_jobs_without_a_shard_are_left_alone(site: Site) -> None:
    wait_until("earlier jobs to be gone", lambda: site.tenants() == [])
    assert preload_of(site) == []
    assert preload_of(site, "--gres=gpu:1") == []
    # A user who exports what slurmd sets gains nothing.
    fake = {"SLURM_SHARDS_ON_NODE": "1", "SLURM_JOB_GPUS": "0", "SLURM_STEP_GPUS": "0"}
    assert site.run("printenv", "LD_PRELOAD", env=fake).stdout == ""
    assert site.tenants() == []


def test_steps_of_one_job_are_one_tenant(site: Site) -> None:
    script = site.work / "steps.sh"
    script.write_text(
        "#!/bin/sh\nprintenv LD_PRELOAD\nsrun printenv LD_PRELOAD\n"
        "srun sh -c 'srun --overlap printenv LD_PRELOAD'\nexec sleep 600\n"
    )
    log = site.work / "steps.log"
    apart = ("-o", str(log), "-e", f"{log}.err")  # srun says there when it had to wait for room
    job = site.slurm.sbatch("--gres=shard:1", *apart, str(script), cwd=site.work)
    wait_until("three steps", lambda: log.exists() and len(log.read_text().splitlines()) == 3)
    assert log.read_text().splitlines() == [str(PRELOAD)] * 3, "added once, also when nested"
    assert site.tenants() == [job]
    site.slurm.run("scancel", str(job))
    site.slurm.wait(job)
    wait_until("the tenant to be gone", lambda: site.tenants() == [])


def test_salloc_and_arrays(site: Site) -> None:
    done = site.slurm.run(
        *("salloc", "--gres=shard:1", "--gpu-share=tq:5", "srun", "printenv", "LD_PRELOAD")
    )
    assert done.stdout.strip() == str(PRELOAD)
    log = site.work / "array-%a.log"
    job = site.slurm.sbatch(
        *("--array=0-2", "--gres=shard:1", "-o", str(log), "--wrap", "printenv LD_PRELOAD"),
        cwd=site.work,
    )
    wait_until(
        "the array to end",
        lambda: site.slurm.run("squeue", "-h", "-j", str(job), check=False).stdout == "",
    )
    for task in range(3):
        assert (site.work / f"array-{task}.log").read_text().strip() == str(PRELOAD)


def test_job_on_two_nodes_is_refused_by_the_daemon(site: Site) -> None:
    with pytest.raises(Exception, match="several nodes cannot share GPUs here"):
        ask(
            site.leased.admin_socket,
            {"op": "register", "job_id": 4_000_000, "uid": 0, "nodes": 2, "shards": 1, "gpus": [0]},
        )


def gpu_job(site: Site, name: str, *arguments: str, user: str | None = None) -> int:
    report = site.work / f"{name}.json"
    words = [sys.executable, str(JOB), "--bytes", str(64 << 20), "--steps", "2"]
    words += ["--result", str(report)]
    script = site.work / f"{name}.sh"
    script.write_text("#!/bin/sh\n" + " ".join(words) + "\n")
    log = site.work / f"{name}.log"
    return site.slurm.sbatch(
        *("--gres=shard:1", *arguments, "-o", str(log), str(script)), cwd=site.work, user=user
    )


def finished(site: Site, job: int) -> Accounting:
    site.slurm.wait(job)
    found = site.slurm.accounting(job, usage=True)
    assert found.state == "COMPLETED"
    return found


def test_usage_is_in_plain_sacct(site: Site) -> None:
    job = gpu_job(site, "usage", "--gpu-share=tq:5,lock:on", "--hold")
    site.slurm.run("scontrol", "update", f"jobid={job}", "admincomment=the site's own")
    site.slurm.run("scontrol", "release", str(job))
    found = finished(site, job)
    (used,) = found.usage["gpus"].values()
    assert found.usage["lock"] == "on"
    assert used["lease_s"] > 0
    assert used["peak_bytes"] >= 64 << 20
    line = site.slurm.run("sacct", "-X", "-n", "-j", str(job), "-o", "SystemComment%2000").stdout
    assert re.fullmatch(r"gpu-lease: GPU 0: .* handoffs? \{\"v\":2,.*\}", line.strip()), line
    theirs = site.slurm.sacct(job, "AdminComment")
    assert theirs == {"AdminComment": "the site's own"}, "what is the site's is left alone"
    assert json.loads((site.work / "usage.json").read_text())["checksum_ok"]


def test_users_who_are_not_root(site: Site) -> None:
    open_checkout_required()
    found = finished(site, gpu_job(site, "user", "--gpu-share=mem:0.5", user=NOBODY))
    report = json.loads((site.work / "user.json").read_text())
    (used,) = found.usage["gpus"].values()
    assert used["lease_s"] > 0
    # Half of what is left beside contexts, whose size the daemon measures.
    assert 0.94 < report["total_bytes"] / (128 << 20) < 1


def test_usage_survives_a_daemon_killed_in_between(site: Site) -> None:
    job = gpu_job(site, "killed", "--gpu-share=lock:on")
    wait_until("the job to have the GPU", lambda: job in site.tenants())
    site.leased.kill()
    # Whether it held the lease or waited for it: it goes on with the next daemon.
    site.leased.start()
    (used,) = finished(site, job).usage["gpus"].values()
    assert used["lease_s"] > 0


def test_end_of_a_job_while_the_daemon_is_down(site: Site) -> None:
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null", "--wrap", "exec sleep 600"), cwd=site.work
    )
    wait_until("the tenant", lambda: job in site.tenants())
    site.leased.kill()
    site.slurm.run("scancel", str(job))
    site.slurm.wait(job)
    site.leased.start()
    assert list(site.slurm.accounting(job, usage=True).usage["gpus"].values())
    assert site.tenants() == []


HANG = """
import signal, sys
sys.path.insert(0, {root!r})
from tests.support.programs import SET_UP
exec(SET_UP)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what comes before it is cancelled
ok(spin(600_000_000_000)); ok(d.cuCtxSynchronize())  # longer than the test
"""


def test_a_job_that_hangs_is_cancelled_where_the_site_says_so(site: Site) -> None:
    """And its work cannot be stopped in mid-kernel."""
    gpu = EmulatedGpu(site.work.parent / "gpu")
    gpu.fail(0, "controls-unknown")
    before = site.leased.config.read_text()
    site.leased.config.write_text(before + '[limits]\ndrain = "300ms"\noverrun = "cancel"\n')
    ask(site.leased.admin_socket, {"op": "reload"})
    try:
        script = site.work / "hang.py"
        script.write_text(HANG.format(root=str(ROOT)))
        hangs = site.slurm.sbatch(
            *("--gres=shard:1", "--gpu-share=tq:100ms,lock:on", "-o", str(site.work / "hang.log")),
            *("--wrap", f"exec {sys.executable} {script}"),
            cwd=site.work,
        )
        holds = {"job_id": hangs, "state": "holds"}
        wait_until("it to hold the GPU", lambda: holds in tenant_states(site))
        finished(site, gpu_job(site, "after", "--gpu-share=tq:100ms,lock:on"))
        assert site.slurm.wait(hangs) == "CANCELLED"
        found = site.slurm.accounting(hangs, usage=True)
        (used,) = found.usage["gpus"].values()
        assert used["overruns"] == 1
    finally:
        gpu.fail(0, "controls-work")
        site.leased.config.write_text(before)
        ask(site.leased.admin_socket, {"op": "reload"})
    site.node_works()


def tenant_states(site: Site) -> list[dict[str, object]]:
    tenants = ask(site.leased.admin_socket, {"op": "status"})["tenants"]
    return [{"job_id": t["job_id"], "state": t["state"]} for t in tenants]
