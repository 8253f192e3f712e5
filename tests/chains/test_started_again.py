"""gpu-lease-component alone: what it starts again, and what it ends as."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.processes import wait_until
from tests.support.chain import COMPONENT
from tests.support.programs import line

Started = Callable[..., "subprocess.Popen[str]"]
# Instead of the interposer: the part stands in a file, which is replaced; another one says how
# often it was asked for.
ASKS = """
#include <stdio.h>
#include <stdlib.h>
void gpu_lease_chain_ask_part(unsigned *percent, unsigned *begins)
{
	FILE *file = fopen(getenv("PART"), "r"), *asked = fopen(getenv("ASKED"), "a");
	*begins = 0;
	if (!file || !asked || fscanf(file, "%u", percent) != 1)
		abort();
	fputc('.', asked);
	fclose(asked);
	fclose(file);
}
"""
RUNS = 'echo "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"; while :; do sleep 0.02; done'


@pytest.fixture(autouse=True)
def part(tmp_path: Path) -> Callable[[int], None]:
    def becomes(percent: int) -> None:
        (tmp_path / "next").write_text(str(percent))
        (tmp_path / "next").rename(tmp_path / "part")

    becomes(100)
    return becomes


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Started]:
    started: list[subprocess.Popen[str]] = []
    asks = tmp_path / "asks.so"
    build = ("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(asks))
    subprocess.run(build, input=ASKS, text=True, check=True)
    env = os.environ | {"LD_PRELOAD": str(asks), "PART": str(tmp_path / "part")}
    env |= {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "ASKED": str(tmp_path / "asked")}

    def start(trap: str, *options: str) -> subprocess.Popen[str]:
        command = [str(COMPONENT), *options, "bash", "-c", f"trap '{trap}' USR1 TERM; {RUNS}"]
        started.append(
            subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("trap", ["exit 0", "exit 138", "trap - USR1; kill -USR1 $$"])
def test_it_starts_again_what_has_ended_as_told(
    starts: Started, part: Callable[[int], None], tmp_path: Path, trap: str
) -> None:
    """And as often as it has another part."""
    component = starts(trap, "-s", "USR1")
    said = [line(component)]
    for percent in (30, 55, 100):
        part(percent)
        said.append(line(component))
    assert said == ["100", "30", "55", "100"]
    asked = tmp_path / "asked"
    enough = asked.stat().st_size + 5
    wait_until("looks at the same part", lambda: asked.stat().st_size >= enough)
    os.killpg(component.pid, signal.SIGKILL)
    assert component.stdout is not None
    assert component.stdout.read() == ""


def test_what_ends_otherwise_is_not_started_again(
    starts: Started, part: Callable[[int], None]
) -> None:
    component = starts("exit 1")
    line(component)
    part(30)
    assert component.wait() == 1


def test_a_signal_to_it_ends_both(starts: Started, part: Callable[[int], None]) -> None:
    """And nothing is started again, though the component was to be."""
    component = starts("trap - TERM; echo told; while :; do sleep 0.02; done")
    line(component)
    part(30)
    assert line(component) == "told"
    component.send_signal(signal.SIGTERM)
    assert component.wait() == -signal.SIGTERM
    assert component.stdout is not None
    assert component.stdout.read() == ""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -9 $$"), -9),
        (("/nowhere/program",), 127),
        (("/",), 126),
        ((), 2),
        (("-s", "STOP", "true"), 2),
        (("-s", "0", "true"), 2),
    ],
)
def test_outside_a_job_it_is_the_command(command: tuple[str, ...], status: int) -> None:
    done = subprocess.run([str(COMPONENT), *command], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert bool(done.stderr) == (status in (2, 126, 127))
