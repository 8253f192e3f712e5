"""Containers in jobs of a real Slurm: what the plugin sets and what is shipped for a runtime brings
interposer and socket into them by themselves, and nothing into those of other jobs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.containers import roots
from tests.slurm.leased import PRELOAD
from tests.slurm.site import Site

NOBODY = "nobody"
HOOK = ROOT / "packaging" / "containers" / "enroot" / "50-gpu-lease.sh"
RUNTIMES = {
    "apptainer": ["apptainer"],
    "apptainer --cleanenv": ["apptainer", "--cleanenv"],
    "apptainer --containall": ["apptainer", "--containall"],
    "enroot": ["enroot"],
    "pyxis": ["enroot", "--pyxis"],
}
# Variables that are ours, or have something of ours in them.
OURS = "env | grep -E 'GPU_LEASE|libgpulease' | sort"
BINDS = ("APPTAINER_BIND", "SINGULARITY_BIND")
PRELOADS = ("APPTAINERENV_LD_PRELOAD", "SINGULARITYENV_LD_PRELOAD")


def container(site: Site, root: Path, runtime: str, *command: str) -> list[str]:
    """The words by which a script starts a container, with the emulated GPU in it."""
    gpu = site.slurm.env["EMUGPU_DIR"]
    module, *options = RUNTIMES[runtime]
    start = [sys.executable, "-m", f"tests.containers.{module}", *options]
    if module == "apptainer":  # its user's own
        variables = {
            "APPTAINER_BIND": f"{gpu}${{APPTAINER_BIND:+,$APPTAINER_BIND}}",
            "SINGULARITY_BIND": f"{gpu}${{SINGULARITY_BIND:+,$SINGULARITY_BIND}}",
            "APPTAINERENV_EMUGPU_DIR": gpu,
        }
        before = ["env", *(f'{name}="{value}"' for name, value in variables.items())]
        return [*before, *map(shlex.quote, [*start, str(root), *command])]
    start += ["--mount", f"{gpu}:{gpu}", str(HOOK), str(root), "/bin/env", f"EMUGPU_DIR={gpu}"]
    return list(map(shlex.quote, [*start, *command]))


def submitted(site: Site, name: str, words: list[str], *options: str) -> tuple[int, Path]:
    """A batch job that runs the words in the checkout."""
    log = site.work / f"{name}.log"
    log.unlink(missing_ok=True)
    path = f"PYTHONPATH={ROOT}:{ROOT}/build/meson/leased"
    script = f"cd {ROOT} && export {path} && {' '.join(words)}"
    job = site.slurm.sbatch(*options, "-o", str(log), "--wrap", script, cwd=site.work, user=NOBODY)
    return job, log


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_two_jobs_take_turns_each_in_its_container(site: Site, root: Path, runtime: str) -> None:
    jobs = []
    for n in (1, 2):
        words = container(site, root, runtime, *roots.command(32, 60))
        options = ("--gres=shard:1", "--gpu-share=tq:100ms,lock:on")
        jobs.append(submitted(site, f"turns-{n}", words, *options))
    for job, log in jobs:
        site.slurm.wait(job)
        assert log.read_text() == "ready\nright\n"
        had = site.slurm.accounting(job, usage=True)
        assert had.usage, "it had a lease"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_another_jobs_container_has_nothing_of_ours(site: Site, root: Path, runtime: str) -> None:
    words = container(site, root, runtime, "/bin/sh", "-c", "/bin/env")
    job, log = submitted(site, "other", words)
    site.slurm.wait(job)
    said = log.read_text()
    assert "EMUGPU_DIR" in said
    assert "GPU_LEASE" not in said
    assert PRELOAD.name not in said


def variables(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def expected_binds(site: Site) -> str:
    return f"{PRELOAD}:{PRELOAD}:ro,{site.leased.run_dir}:{site.leased.run_dir}:ro"


def test_the_plugins_variables(site: Site) -> None:
    said = variables(site.run("--gres=shard:1", "sh", "-c", OURS).stdout)
    socket = str(site.leased.run_dir / "tenant.sock")
    assert said == {
        "GPU_LEASE_LIBRARY": str(PRELOAD),
        "GPU_LEASE_SOCKET": socket,
        "LD_PRELOAD": str(PRELOAD),
        **dict.fromkeys(BINDS, expected_binds(site)),
        **dict.fromkeys(PRELOADS, str(PRELOAD)),
        "APPTAINERENV_GPU_LEASE_SOCKET": socket,
        "SINGULARITYENV_GPU_LEASE_SOCKET": socket,
    }


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)], ids=["first", "second", "both"])
def test_the_users_variables_stay(site: Site, which: tuple[int, ...]) -> None:
    theirs = {BINDS[i]: f"/data{i}:/x,/y" for i in which}
    theirs |= {PRELOADS[i]: f"/lib{i}.so:/b.so" for i in which}
    theirs |= {"LD_PRELOAD": "/lib/x86_64-linux-gnu/libdl.so.2"}
    said = variables(site.run("--gres=shard:1", "sh", "-c", OURS, env=theirs).stdout)
    for i in range(2):
        one = i if i in which else 1 - i
        assert said[BINDS[i]] == f"/data{one}:/x,/y,{expected_binds(site)}"
        assert said[PRELOADS[i]] == f"/lib{one}.so:/b.so:{PRELOAD}"


def test_a_jobs_preloads_are_preloaded_in_its_containers(site: Site) -> None:
    theirs = {"LD_PRELOAD": "/lib/x86_64-linux-gnu/libdl.so.2"}
    said = variables(site.run("--gres=shard:1", "sh", "-c", OURS, env=theirs).stdout)
    assert [said[name] for name in PRELOADS] == [said["LD_PRELOAD"]] * 2
    assert said["LD_PRELOAD"] == f"{theirs['LD_PRELOAD']}:{PRELOAD}"


def test_a_step_within_a_step_has_it_once(site: Site) -> None:
    inner = shlex.join(["srun", "--overlap", "sh", "-c", OURS])
    said = variables(site.batch(inner, "--gres=shard:1"))
    assert said["APPTAINER_BIND"] == expected_binds(site)
    assert said["APPTAINERENV_LD_PRELOAD"] == str(PRELOAD)


@pytest.mark.parametrize("theirs", ["", "/data:/data"])
def test_a_job_from_within_a_sharing_job_has_nothing_of_ours(site: Site, theirs: str) -> None:
    log = site.work / "inner.log"
    log.unlink(missing_ok=True)
    inner = f"env | grep -E '^(APPTAINER|SINGULARITY|GPU_LEASE)' | sort; {OURS}"
    script = f"sbatch --wait -o {log} --wrap {shlex.quote(inner)}"
    env = {"APPTAINER_BIND": theirs} if theirs else {}
    said = site.batch(script, "--gres=shard:1", env=env)
    assert log.exists(), said
    rest = [f"{name}={theirs}" for name in BINDS] if theirs else []
    assert log.read_text().splitlines() == rest
