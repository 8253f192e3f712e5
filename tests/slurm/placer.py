"""gpu-lease-placer for tests: the real service beside a private slurmctld."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import ROOT
from tests.slurm.processes import Daemon, notified, says_ready, wait_until
from tests.support.work_dir import work_dir

SHIPPED = ROOT / "slurm-conf"


def put_lua(etc: Path, alive: Path) -> None:
    """The shipped job_submit.lua and gpu_share.lua, which finds the placer's sign of life there."""
    etc.mkdir(parents=True, exist_ok=True)
    shutil.copy(SHIPPED / "job_submit.lua", etc)
    text = (SHIPPED / "gpu_share.lua").read_text()
    changed = re.sub(r'(?m)^local ALIVE = ".*"$', f'local ALIVE = "{alive}"', text)
    assert str(alive) in changed
    (etc / "gpu_share.lua").write_text(changed)


@dataclass
class PlacerService:
    """The service with a configuration of its own. hold, reserve_after: as in [placer]. hurried:
    pauses to be shorter, see hurried.py."""

    work: Path
    slurm: PrivateSlurm
    hold: str = "5m"
    reserve_after: str = "30m"
    hurried: Sequence[str] = ()
    daemons: list[Daemon] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.state, self.alive.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            f'[daemon]\nslurm_conf = "{self.slurm.layout.etc}/slurm.conf"\n'
            f'[placer]\ninterval = "100ms"\nhold = "{self.hold}"\nrate = 100\n'
            f'reserve_after = "{self.reserve_after}"\n'
            f'state_dir = "{self.state}"\nruntime_dir = "{self.alive.parent}"\n'
        )

    @property
    def config(self) -> Path:
        return self.work / "placer.toml"

    @property
    def state(self) -> Path:
        return self.work / "placer-state"

    @property
    def alive(self) -> Path:
        return self.work / "placer-run" / "alive"

    @property
    def log(self) -> str:
        return (self.work / "placer.log").read_text()

    def command(self, *more: str) -> list[str]:
        command = ["leased.placer.service", "--config", str(self.config), *more]
        if self.hurried:
            command = ["tests.slurm.hurried", *self.hurried, "--", *command]
        return [sys.executable, "-m", *command]

    def start(self) -> None:
        """Returns when it has told its service manager (us) that it is ready."""
        self.alive.unlink(missing_ok=True)
        with notified(self.slurm.run_dir / "placer.sock") as notify:
            daemon = Daemon.start(
                "gpu-lease-placer",
                self.command(),
                self.work / "placer.log",
                self.slurm.env | {"NOTIFY_SOCKET": notify.getsockname(), "PYTHONUNBUFFERED": "1"},
            )
            self.daemons.append(daemon)
            daemon.wait_ready(lambda: says_ready(notify))

    def stop(self) -> None:
        """As the service manager does: jobs are given back."""
        while self.daemons:
            self.daemons.pop().stop()

    def kill(self) -> None:
        daemon = self.daemons.pop()
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait()

    def release(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--release"),
            env=self.slurm.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )


def gpu_number(said: str) -> str:
    """IDX:1, or of later releases the shards of each GPU: 0/4,1/4."""
    if said.startswith("IDX:"):
        return said.removeprefix("IDX:")
    (index,) = [n for n, part in enumerate(said.split(",")) if not part.startswith("0/")]
    return str(index)


@dataclass
class PlacedSite:
    """A cluster without our plugin, where jobs say GPU_SHARE: its nodes run no daemon, so what a
    test sees is the placer's doing alone."""

    slurm: PrivateSlurm
    placer: PlacerService

    def submit(
        self, share: str, *arguments: str, script: str = "exec sleep 600", user: str | None = None
    ) -> int:
        env = {"GPU_SHARE": share} if share else {}
        return self.slurm.sbatch(
            *("--gres=shard:1", "-o", "/dev/null", "-D", "/tmp", *arguments, "--wrap", script),
            env=env,
            user=user,
        )

    def gpu(self, job: int | str) -> tuple[str, str]:
        """Node and GPU of a job, once it runs."""
        wait_until(f"job {job} to run", lambda: self.slurm.job(job)["JobState"] == "RUNNING")
        said = self.slurm.run("scontrol", "show", "job", "-d", "-o", str(job)).stdout
        found = re.search(r" Nodes=(\S+) .*GRES=shard[^\s(]*\(([^)]*)\)", said)
        assert found, said
        return found[1], gpu_number(found[2])

    def comment(self, job: int | str) -> str:
        text = self.slurm.run("squeue", "-h", "-j", str(job), "-o", "%k").stdout.strip()
        return "" if text == "(null)" else text

    def wait_for_comment(self, job: int | str, words: str) -> None:
        wait_until(f"job {job} to say {words!r}", lambda: words in self.comment(job))

    def waits(self, job: int | str) -> bool:
        return self.slurm.job(job)["JobState"] == "PENDING"

    def cancel(self, *jobs: int) -> None:
        for job in jobs:
            self.slurm.run("scancel", str(job))
        for job in jobs:
            self.slurm.wait(job)


@contextmanager
def placed_site(
    *,
    nodes: int = 2,
    gpus: int = 1,
    hold: str = "5m",
    reserve_after: str = "30m",
    slurm_conf: Sequence[str] = (),
    hurried: Sequence[str] = (),
) -> Iterator[PlacedSite]:
    work = work_dir()
    slurm = PrivateSlurm(
        work / "slurm",
        nodes=nodes,
        gpus=gpus,
        plugin=None,
        slurm_conf=["JobSubmitPlugins=lua", *slurm_conf],
    )
    placer = PlacerService(work, slurm, hold, reserve_after, hurried)
    put_lua(slurm.layout.etc, placer.alive)
    try:
        with slurm:
            placer.start()
            try:
                yield PlacedSite(slurm, placer)
            finally:
                placer.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
