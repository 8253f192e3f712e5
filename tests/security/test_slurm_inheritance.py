"""What a job inherits does not make it share, and what is ours is taken out where it does not.

Jobs that are submitted from within sharing jobs, defaults that a site or a user exports,
and a daemon that does not answer: none of it concerns jobs without a shard.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.security.conftest import NOBODY
from tests.slurm.leased import PRELOAD, listening
from tests.slurm.site import Site

# What there may be of ours in a job's environment.
OURS = 'env | grep -E "^(LD_PRELOAD|GPU_LEASE_SOCKET|_?SLURM.*gpu_share|SLURM_SHARDS_ON_NODE)="'
BARE = {
    "CPUs": ["-n1"],
    "a whole GPU": ["--gres=gpu:1"],
    "two nodes": ["-N2"],
    "GPUs of two nodes": ["-N2", "--gres=gpu:1"],
}


def without_plugin(site: Site) -> dict[str, str]:
    """The environment of a submit host whose plugstack.conf does not name the plugin."""
    etc = site.slurm.layout.etc
    (etc / "none.conf").touch()
    text = (etc / "slurm.conf").read_text()
    assert "PlugStackConfig" not in text
    (etc / "bare.conf").write_text(f"{text}PlugStackConfig={etc}/none.conf\n")
    return {"SLURM_CONF": str(etc / "bare.conf")}


def shared(site: Site) -> str:
    """What OURS prints in a job with one shard."""
    socket_path = site.leased.run_dir / "tenant.sock"
    lines = [f"GPU_LEASE_SOCKET={socket_path}", f"LD_PRELOAD={PRELOAD}", "SLURM_SHARDS_ON_NODE=1"]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("kind", "host"),
    [*((kind, "with the plugin") for kind in BARE), ("GPUs of two nodes", "without")],
)
def test_a_job_from_within_a_sharing_job_is_not_one(site: Site, kind: str, host: str) -> None:
    log = site.work / "inner.log"
    log.unlink(missing_ok=True)
    inner = " ".join(BARE[kind])
    env = {} if host == "with the plugin" else without_plugin(site)
    conf = env.get("SLURM_CONF", site.slurm.env["SLURM_CONF"])
    said = site.batch(
        f"env SLURM_CONF={conf} sbatch --wait {inner} -o {log} --wrap 'echo inner; {OURS}'",
        *("--gres=shard:1", "--gpu-share=tq:5"),
        user=NOBODY,
    )
    assert log.exists(), said
    rest = [line for line in log.read_text().splitlines() if "SHARDS_ON_NODE" not in line]
    assert rest == ["inner"], said


@pytest.mark.parametrize(
    ("kind", "value"),
    [*((kind, "tq:never") for kind in BARE), ("CPUs", "tq:5"), ("GPUs of two nodes", "x" * 300)],
)
def test_a_default_is_one_of_jobs_with_a_shard(site: Site, kind: str, value: str) -> None:
    env = {"GPU_SHARE": value}
    commands = ["srun", *BARE[kind], "true"], ["salloc", *BARE[kind], "srun", "true"]
    with ThreadPoolExecutor() as pool:  # three jobs beside each other, or as there is room
        steps = [
            pool.submit(site.slurm.run, *command, env=env, check=False, user=NOBODY)
            for command in commands
        ]
        assert "inner" in site.batch(f"echo inner; {OURS}", *BARE[kind], env=env, user=NOBODY)
        for step in steps:
            done = step.result()
            assert done.returncode == 0, done.stderr


def test_a_default_counts_with_a_shard(site: Site) -> None:
    say = "echo $SLURM_JOB_ID; cat > /dev/null"
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null", "--wrap", "exec sleep 600"),
        env={"GPU_SHARE": "tq:7"},
        cwd=site.work,
    )
    try:
        site.wait_for_tenant(job)
        assert [tenant["quantum_s"] for tenant in site.status()] == [7]
    finally:
        site.slurm.run("scancel", str(job))
    for value, fault in (("tq:never", "tq:never is not a time"), ("x" * 600, "longer than")):
        done = site.run("--gres=shard:1", "sh", "-c", say, env={"GPU_SHARE": value})
        assert done.returncode == 1
        assert fault in done.stderr
        assert "from the environment variable GPU_SHARE" in done.stderr
        # Where the submit host lacks the plugin, the node says it.
        env = {"GPU_SHARE": value} | without_plugin(site)
        done = site.run("--gres=shard:1", "sh", "-c", say, env=env)
        assert done.returncode == 1
        assert fault in done.stderr
        assert "from GPU_SHARE in its environment" in done.stderr


@contextmanager
def deaf_daemon(site: Site) -> Iterator[socket.socket]:
    """In the daemon's place a socket that nobody serves: who connects waits for ever."""
    site.leased.stop()
    path = site.leased.admin_socket
    path.unlink()
    with listening(path, 0o600) as deaf:
        deaf.setblocking(False)
        yield deaf
    path.unlink()
    site.leased.start()


@pytest.mark.parametrize("kind", BARE)
def test_a_job_that_does_not_share_never_asks_the_daemon(site: Site, kind: str) -> None:
    # Leftovers and forgeries may be in its environment.
    env = {"SLURM_SHARDS_ON_NODE": "1", "GPU_LEASE_SOCKET": "/x", "LD_PRELOAD": str(PRELOAD)}
    with deaf_daemon(site) as deaf:
        assert (
            site.batch(
                "echo inner; printenv LD_PRELOAD", *BARE[kind], env=env | without_plugin(site)
            )
            == "inner\n"
        )
        site.node_is_idle()  # its epilog is over
        with pytest.raises(BlockingIOError):
            deaf.accept()


def test_a_step_without_gpus_of_a_sharing_job_keeps_what_it_has(site: Site) -> None:
    said = site.batch("srun --gres=none env", "--gres=shard:1").splitlines()
    assert f"LD_PRELOAD={PRELOAD}" in said
    assert not any(line.startswith("SLURM_SHARDS_ON_NODE=") for line in said)


def test_all_kinds_of_steps_of_a_stopped_daemons_job_end(site: Site) -> None:
    """A daemon that is stopped keeps a sharing job's end from nobody but itself."""
    job = site.slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null", "--wrap", "exec sleep 600"), cwd=site.work
    )
    site.wait_for_tenant(job)
    assert site.leased.daemon is not None
    pid = site.leased.daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        site.slurm.run("scancel", str(job))
        assert site.slurm.wait(job) == "CANCELLED"
        site.node_is_idle()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_another_user_cannot_say_that_a_job_shares(site: Site) -> None:
    directory = site.leased.run_dir / "sharing-jobs"
    site.node_works()
    assert directory.stat().st_mode & 0o077 == 0
    assert directory.stat().st_uid == 0
    with pytest.raises(Refused, match="never shared"):
        ask(site.leased.admin_socket, {"op": "usage", "job_id": 4_000_000_000})
    assert list(Path(directory).iterdir()) == []
