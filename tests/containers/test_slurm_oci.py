"""Slurm's own containers (`srun --container`) in jobs that share a GPU, with the line of oci.conf
that docs/admin.md has."""

from __future__ import annotations

import json
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.containers import oci, roots
from tests.containers.namespaces import Mount
from tests.slurm.leased import PRELOAD
from tests.slurm.site import Site

NOBODY = pwd.getpwnam("nobody")
PYTHON = f"PYTHONPATH={ROOT}:{ROOT}/build/meson/leased exec {sys.executable}"
# crun wants cgroups of version 2 alone, which this machine need not have: so in a namespace of its
# own, where its user is 0. What it notes is beside the bundle's configuration.
CRUN = """
exec unshare --user --map-root-user --mount --cgroup sh -c '
	mount -t cgroup2 none /sys/fs/cgroup &&
	exec crun --rootless=true --cgroup-manager=disabled --root="$3/crun" "$@"' sh "$@"
"""
# What "crun run --bundle BUNDLE NAME" of the document's line runs.
RUNTIMES = {
    "crun": CRUN,
    "namespaces": f'bundle=$3; cd {ROOT}; {PYTHON} -m tests.containers.oci "$bundle"\n',
}


def line_of_oci_conf() -> str:
    """The container's start, as docs/admin.md has it."""
    (line,) = re.findall(r"^RunTimeRun=.*$", (ROOT / "docs/admin.md").read_text(), re.MULTILINE)
    return str(line)


def put_program(site: Site, name: str, text: str) -> Path:
    program = site.work / name
    program.write_text(f"#!/bin/sh\n{text}")
    program.chmod(0o755)
    return program


def configure(site: Site, runtime: str) -> None:
    """oci.conf of the site. Slurm reads it for each step."""
    ctl = f'cd {ROOT}; {PYTHON} -m leased.cli.ctl --config {site.leased.config} "$@"\n'
    line = line_of_oci_conf()
    assert line.count("gpu-leasectl") == line.count("crun run --bundle %b ") == 1
    line = line.replace("gpu-leasectl", str(put_program(site, "gpu-leasectl", ctl)))
    line = line.replace("crun run", f"{put_program(site, 'runtime', RUNTIMES[runtime])} run")
    others = [f'RunTime{name}="/bin/true"' for name in ("Query", "Kill", "Delete")]
    (site.slurm.layout.etc / "oci.conf").write_text("\n".join([line, *others, ""]))


@pytest.fixture(params=RUNTIMES)
def runtime(site: Site, request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "crun" and shutil.which("crun") is None:
        pytest.skip("there is no crun here; `make test-containers` installs it")
    configure(site, name)
    return name


def submitted(
    site: Site, root: Path, name: str, words: list[str], *options: str
) -> tuple[int, Path]:
    """A user's job with a step in a container, and what the step writes."""
    bundle, log = site.work / name, site.work / f"{name}.log"
    shutil.rmtree(bundle, ignore_errors=True)
    shutil.copytree(root, bundle / "rootfs")
    gpu = site.slurm.env["EMUGPU_DIR"]
    made = oci.config(
        bundle / "rootfs",
        uid=0,  # as the runtime counts
        mounts=[Mount(gpu, gpu)],
        env={"PATH": "/bin", "EMUGPU_DIR": gpu},
        words=["/bin/env"],
    )
    (bundle / "config.json").write_text(json.dumps(made))
    subprocess.run(["chown", "-R", f"{NOBODY.pw_uid}:{NOBODY.pw_gid}", str(bundle)], check=True)
    log.unlink(missing_ok=True)
    script = f"srun --container={bundle} {' '.join(words)}"
    job = site.slurm.sbatch(
        *options, "-o", str(log), "--wrap", script, cwd=site.work, user="nobody"
    )
    return job, log


@pytest.mark.usefixtures("runtime")
def test_two_jobs_take_turns_each_in_its_container(site: Site, root: Path) -> None:
    shares = ("--gres=shard:1", "--gpu-share=tq:100ms,lock:on")
    words = roots.command(32, 60)
    jobs = [submitted(site, root, f"turns-{n}", words, *shares) for n in (1, 2)]
    for job, log in jobs:
        state = site.slurm.wait(job)
        assert (state, log.read_text()) == ("COMPLETED", "ready\nright\n")
        assert site.slurm.accounting(job, usage=True).usage, "it had a lease"


@pytest.mark.usefixtures("runtime")
def test_another_jobs_container_has_nothing_of_ours(site: Site, root: Path) -> None:
    job, log = submitted(site, root, "other", ["/bin/env"])
    assert site.slurm.wait(job) == "COMPLETED", log.read_text()
    said = log.read_text()
    assert "EMUGPU_DIR" in said
    assert "GPU_LEASE" not in said
    assert PRELOAD.name not in said
