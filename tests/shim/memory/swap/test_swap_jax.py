"""Memory as JAX has it: large objects of cuMemCreate, which could be exported, and are not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import BUILD, EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, output, programs, tell

JAX_LIKE = BUILD.parent / "shim" / "memory" / "swap" / "jax_like"
MIB = 1 << 20
ALL = 130 * MIB
SHOWN = 40 * MIB  # the object that is exported
DEVICE = 256 * MIB
TURNS = 7

Program = Callable[..., subprocess.Popen[str]]


def bare(gpu: EmulatedGpu, *arguments: str) -> str:
    """What it prints at the end, with the driver alone."""
    done = subprocess.run(
        [str(JAX_LIKE), *arguments],
        env=os.environ | gpu.env,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


@pytest.fixture
def jax_like(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Program]:
    with programs(emulated_gpu) as all_of_them:
        socket = short_dir / "tenant.sock"
        yield lambda *arguments: all_of_them.start(str(JAX_LIKE), *arguments, socket=socket)


@pytest.mark.parametrize("exports", [False, True])
def test_it_leaves_and_comes_back_until_it_is_shown_to_others(
    jax_like: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, exports: bool
) -> None:
    more = ["export"] if exports else []
    wanted = bare(emulated_gpu, str(TURNS), *more)
    job = jax_like(str(TURNS), "driven", *more)
    client = daemon.client(job.pid)
    for turn in range(TURNS):
        assert line(job) == "turn"
        daemon.auto = False
        client.revoke()
        fixed = SHOWN if exports and turn > TURNS // 2 else 0
        moves = ALL - fixed
        client.until("a report", lambda m=moves, f=fixed: client.memory[uuid] == (m, f, m))  # type: ignore[misc]
        client.evict({uuid: moves})
        assert client.memory[uuid] == (moves, fixed, 0)
        client.grant()
        daemon.auto = True
        tell(job)
    assert output(job) == wanted


@pytest.mark.usefixtures("daemon")
def test_without_room_beside_it_an_object_is_shown_by_way_of_the_host(
    jax_like: Program, emulated_gpu: EmulatedGpu
) -> None:
    wanted = bare(emulated_gpu, "1", "export")
    job = jax_like("1", "driven", "export")
    assert line(job) == "turn"
    emulated_gpu.fail(0, "oom")
    tell(job)
    assert output(job) == wanted


def test_two_jobs_of_it_compute_by_turns(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    wanted = bare(emulated_gpu, "60")
    code = f"import os; os.execv({str(JAX_LIKE)!r}, ['jax_like', '60'])"
    jobs = [tenant(n, "tq:200ms,memory:swap", "-c", code) for n in (1, 2)]
    for job in jobs:
        assert output(job, timeout=120) == wanted
    usage = [ask(leased.admin_socket, {"op": "usage", "job_id": n})["usage"] for n in (1, 2)]
    used = [next(iter(u.values())) for u in usage]
    # How many turns there are is a matter of the machine's speed. Each moves at least what the two
    # have beyond the whole device; at the first one they may not have all of it yet.
    for u in used:
        assert u["handoffs"] >= 2, "one job waited for the other one's end"
        moved = u["moved_bytes"] + u.get("clean_bytes", 0)
        assert moved >= (u["handoffs"] - 1) * (2 * ALL - DEVICE)
