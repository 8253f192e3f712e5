"""Names of jobs are asked of squeue in the background, each once, and of the configured Slurm."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from leased.cli import slurm_commands
from leased.cli.names import AGAIN_S, Names
from leased.cli.squeue import ask_squeue, asker
from tests.slurm.processes import wait_until


class Slurmctld:
    """asked: the jobs of each question. It answers while `answers` is set, and knows job 1."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.answers = threading.Event()
        self.down = False

    async def ask(self, jobs: list[int]) -> dict[int, str]:
        self.asked.append(jobs)
        while not self.answers.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.001)
        if self.down:
            raise OSError("it is down")
        return {job: "one" for job in jobs if job == 1}


def test_each_name_is_asked_for_once() -> None:
    slurm = Slurmctld()
    slurm.answers.set()
    known = Names(slurm.ask, patient=True)
    for jobs in ([1, 2], [1, 2], [2, 3]):
        known.learn(jobs)
    assert slurm.asked == [[1, 2], [3]]
    assert (known.job(2), known.job(1)) == ("", "")
    known.learn([1])
    assert known.job(1) == "one"


def test_names_do_not_wait_for_a_slurmctld_that_hangs() -> None:
    slurm = Slurmctld()
    known = Names(slurm.ask)
    for _ in range(3):  # it would not return
        known.learn([1])
        assert known.job(1) == ""
    assert len(slurm.asked) <= 1
    slurm.answers.set()

    def there() -> bool:
        known.learn([1])
        return known.job(1) == "one"

    wait_until("the name to be there", there)
    assert slurm.asked == [[1]]
    known.close()


def test_names_without_an_answer_are_asked_again_later() -> None:
    now = [0.0]
    slurm = Slurmctld()
    slurm.answers.set()
    slurm.down = True
    known = Names(slurm.ask, patient=True, clock=lambda: now[0])
    known.learn([1])
    slurm.down = False
    known.learn([1])
    assert (known.job(1), len(slurm.asked)) == ("", 1)
    now[0] = AGAIN_S
    known.learn([1])
    assert known.job(1) == "one"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run as squeue: a shell script that is still empty."""
    path = tmp_path / "squeue"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr("leased.cli.squeue.PATIENCE_S", 600.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return path


def test_the_configured_slurm_is_asked(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = 'for w; do case $w in --format=*) echo "7|$SLURM_CONF${w##*j}";; esac; done'
    program.write_text(f"#!/bin/sh\n{says}\n")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    conf = tmp_path / "gpu-leased.toml"
    conf.write_text('[daemon]\nslurm_conf = "/site/slurm.conf"\n')
    known = Names(asker(slurm_commands.environment(conf)), patient=True)
    known.learn([7])
    assert known.job(7) == "/site/slurm.conf"
    monkeypatch.setenv("SLURM_CONF", "/mine/slurm.conf")
    known = Names(asker(slurm_commands.environment(conf)), patient=True)
    known.learn([7])
    assert known.job(7) == "/mine/slurm.conf"


SQUEUE = """#!{python}
import re, sys
names = {names}
(form,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--format="))
width, end = re.fullmatch(r"%A\\|%(\\d*)j(.*)", form).groups()
for job, name in names.items():
    print(f"{{job}}|{{name[:int(width or 9**9)]:{{width}}}}{{end}}")
"""


def test_a_name_passes_for_no_other_job(program: Path) -> None:
    """Whatever characters it has, and however long it is."""
    ends = ("\n", "\x0b", "\x1c", "\x85", "\u2028", "|\r\n")
    names = {n: f"mine{end}9|fake" for n, end in enumerate(ends, 1)} | {9: "theirs"}
    names |= {7: "x" * (1 << 20), 8: "\x1b[2J\u202eevil \x9b1m"}
    program.write_text(SQUEUE.format(python=sys.executable, names=names))
    found = asyncio.run(ask_squeue([*names], {}))
    assert {n: found[n] for n in (9, 1, 8)} == {9: "theirs", 1: "mine?9|fake", 8: "?[2J?evil ?1m"}
    assert found[7] == "x" * 64
    assert all(name.isprintable() for name in found.values())


def test_a_job_that_slurm_does_not_know_is_no_fault(program: Path) -> None:
    program.write_text("#!/bin/sh\necho 'error: Invalid job id specified' >&2; exit 1\n")
    assert asyncio.run(ask_squeue([7], {})) == {}
    program.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(OSError, match="squeue failed"):
        asyncio.run(ask_squeue([7], {}))


def test_a_squeue_that_hangs_is_ended_without_a_word(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pid = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    known = Names(asker({}))
    known.learn([7])
    wait_until("squeue to run", pid.exists)
    known.close()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert capfd.readouterr().err == ""
