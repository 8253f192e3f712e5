"""What starts from the template finds what it would find after a real start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.template import Template

ROOT = Path(__file__).resolve().parents[2]
PROBE = [sys.executable, "-m", "tests.support.start_probe"]


@pytest.fixture
def template(monkeypatch: pytest.MonkeyPatch) -> Iterator[Template]:
    """Its programs find our modules in whatever directory they start."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    made = Template()
    yield made
    made.close()


def test_it_is_as_after_a_real_start(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, env = [*PROBE, "a word", "", "0"], os.environ | {"NAMED": "by the test"}
    usual = os.umask(0o037)
    (tmp_path / "given").touch()
    given = os.open(tmp_path / "given", os.O_RDONLY)
    try:
        with (tmp_path / "real").open("w") as out:
            subprocess.run(
                command,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                pass_fds=[given],
                start_new_session=True,
            )
        with (tmp_path / "forked").open("w") as out:
            assert template.start(command, env, out.fileno(), [given]).wait(60) == 0
    finally:
        os.umask(usual)
        os.close(given)
    real = json.loads((tmp_path / "real").read_text().replace("/real", "/forked"))
    forked = json.loads((tmp_path / "forked").read_text())
    assert real.pop("parent") == os.getpid()
    assert forked.pop("parent") == template.process.pid
    assert forked == real


def test_its_status_is_that_of_its_end(template: Template, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as out:
        ends = template.start([*PROBE, "7"], os.environ, out.fileno(), [])
        assert ends.wait(60) == 7
        assert ends.poll() == ends.returncode == 7


def test_one_that_is_killed_ends_with_the_signal(template: Template, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    reads = [sys.executable, "-m", "tests.support.start_waiting", str(read_end)]
    with (tmp_path / "log").open("w") as out:
        waits = template.start(reads, os.environ, out.fileno(), [read_end])
        os.close(read_end)
        assert waits.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(0.01)
        waits.send_signal(signal.SIGKILL)
        assert waits.wait(60) == -signal.SIGKILL
    os.close(write_end)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "PYTHONDEVMODE"])
def test_what_counts_before_the_first_line_is_started_for_real(
    template: Template, name: str
) -> None:
    assert template.serves(PROBE, os.environ)
    assert not template.serves(PROBE, os.environ | {name: "another"})
    assert not template.serves(["/bin/true"], os.environ)
