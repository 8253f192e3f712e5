"""Programs are saved by CRIU and go on elsewhere; what cannot be is refused and runs on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.cli import ctl
from leased.cli.subcommand import ExitStatus
from leased.saving import criu
from leased.saving.asking import ask_runner
from leased.saving.directory import Directory
from leased.saving.hindrances import hindrances

ROOT = Path(__file__).resolve().parents[2]
JOB = f"9{os.getpid()}"  # nobody else's
# Counts for as long as its output is wanted.
COUNTS = """
import os, sys, time
parent = os.getppid()
for n in range(int(sys.argv[1])):
    print("count", n, os.getpid(), flush=True)
    while not os.path.exists(f"{sys.argv[2]}/{n}"):
        time.sleep(0.01)
"""


def has_criu() -> str:
    """Why not; "": there is one that works."""
    try:
        criu.find()
    except Refused as fault:
        return str(fault)
    return ""


needs_criu = pytest.mark.skipif(bool(has_criu()), reason=has_criu())


class Run:
    def __init__(self, tmp_path: Path):
        self.place, self.out = tmp_path / "saved", tmp_path / "out"
        self.orders = tmp_path / "orders"
        self.orders.mkdir()

    def start(self, *program: str, **env: str) -> subprocess.Popen[str]:
        command = ["-m", "leased.cli.ctl", "run", "--checkpoint", str(self.place), "--"]
        program = program or (sys.executable, "-c", COUNTS, "4", str(self.orders))
        with self.out.open("a") as out:
            return subprocess.Popen(
                [sys.executable, *command, *program],
                cwd=ROOT,
                env=os.environ | {"SLURM_JOB_ID": JOB} | env,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )

    def wait_for(self, n: int) -> int:
        """Until it counts so far; returns its pid."""
        until = time.monotonic() + 60
        while not (found := re.findall(rf"^count {n} (\d+)$", self.out.read_text(), re.MULTILINE)):
            assert time.monotonic() < until, self.out.read_text()
            time.sleep(0.01)
        return int(found[0])

    def go(self, n: int) -> None:
        (self.orders / str(n)).touch()

    def ends(self, process: subprocess.Popen[str]) -> str:
        """Let it count to its end; returns what gpu-leasectl has said."""
        for n in range(4):
            self.go(n)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return said


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    yield (made := Run(tmp_path))
    for n in range(9):
        made.go(n)


@needs_criu
def test_a_program_that_slurm_ends_goes_on_where_it_was(run: Run) -> None:
    first = run.start()
    run.go(0)
    pid = run.wait_for(1)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=60)
    assert "is saved" in said
    assert not Path(f"/proc/{pid}").exists()
    second = run.start()
    for n in (1, 2, 3):
        run.go(n)
        if n < 3:
            assert run.wait_for(n + 1) == pid
    _, said = second.communicate(timeout=60)
    assert "goes on from its checkpoint" in said
    assert second.returncode == 0
    assert run.out.read_text().count("count") == 4  # nothing of it twice
    assert not (run.place / "complete").exists()


@needs_criu
def test_a_damaged_checkpoint_is_not_restored_and_stays(run: Run) -> None:
    first = run.start()
    run.wait_for(0)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    manifest = run.place / "complete" / "checkpoint.json"
    manifest.write_text("{")
    second = run.start()
    _, said = second.communicate(timeout=60)
    assert second.returncode != 0
    assert "cannot be read" in said
    assert manifest.exists()


@needs_criu
def test_a_socket_of_the_network_is_refused_and_the_program_goes_on(run: Run) -> None:
    script = "import socket; s = socket.create_server(('127.0.0.1', 0));" + COUNTS
    process = run.start(sys.executable, "-c", script, "2", str(run.orders))
    run.wait_for(0)
    with pytest.raises(Refused, match="socket of the network open"):
        ask_runner(JOB, {"directory": str(run.place), "requeue": False})
    run.go(0)
    run.wait_for(1)
    run.ends(process)


ARRAY = str(int(JOB) - 1)


@pytest.mark.parametrize(
    ("env", "names", "others"),
    [
        ({"SLURM_ARRAY_JOB_ID": ARRAY}, [JOB, f"{ARRAY}_3"], [ARRAY, f"{ARRAY}_4"]),
        # The last task: a number of all of them is none of its own.
        ({"SLURM_ARRAY_JOB_ID": JOB}, [f"{JOB}_3"], [JOB]),
        ({"SLURM_ARRAY_TASK_ID": "", "SLURM_HET_SIZE": "2"}, [JOB, f"{JOB}+0"], [f"{JOB}+1"]),
    ],
    ids=["task", "last-task", "heterogeneous"],
)
def test_a_job_is_asked_by_each_of_its_names(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    env: dict[str, str],
    names: list[str],
    others: list[str],
) -> None:
    """It answers by a refusal here, which needs no CRIU."""
    process = run.start(**{"SLURM_ARRAY_TASK_ID": "3"} | env)
    run.wait_for(0)
    elsewhere = str(run.place.with_name("elsewhere"))
    for typed in (*names, *others):
        status = ctl.main(["checkpoint", typed, elsewhere, "--requeue"])
        assert status == ExitStatus.REFUSED
        answered = f"goes on from {run.place}, not from {elsewhere}" in capsys.readouterr().err
        assert answered == (typed in names), typed
    run.ends(process)


# Has the socket of a job of root's, as another user.
SQUATS = """
import os, socket, sys
from leased.saving.asking import socket_name
os.setuid(65534)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.bind(socket_name(sys.argv[1], 0))
if sys.argv[2] == "listens":
    sock.listen()
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("how", ["listens", "does not listen"])
def test_another_user_who_has_its_socket_does_not_keep_a_program_from_running(
    run: Run, how: str
) -> None:
    pipe = subprocess.PIPE
    squats = [sys.executable, "-c", SQUATS, JOB, how]
    with subprocess.Popen(squats, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        assert "another user has the socket" in run.ends(run.start())
        assert other.stdin is not None
        other.stdin.close()


def test_a_second_runner_of_a_job_is_refused(run: Run) -> None:
    first = run.start()
    run.wait_for(0)
    second = run.start("true")
    _, said = second.communicate(timeout=60)
    assert second.returncode == ExitStatus.REFUSED
    assert "has a program that can be saved already" in said
    run.ends(first)


def test_what_hinders_is_named() -> None:
    env = {"OMPI_COMM_WORLD_SIZE": "2", "SLURM_JOB_NUM_NODES": "3"}
    with subprocess.Popen(["sleep", "60"], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            found = " ".join(hindrances([process.pid]))
        finally:
            process.kill()
    assert "MPI program (OMPI_COMM_WORLD_SIZE)" in found
    assert "on 3 nodes" in found


@pytest.mark.parametrize("fault", ["others", "owner", "room"])
def test_a_directory_that_is_not_ones_own_is_refused(tmp_path: Path, fault: str) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    directory = Directory(place)
    if fault == "room":
        with pytest.raises(Refused, match="has room for"):
            directory.check_room(1 << 60)
        return
    if fault == "others":
        place.chmod(0o770)
    elif os.geteuid() == 0:
        os.chown(place, 1, 1)
    else:
        pytest.skip("only root makes a directory somebody else's")
    with pytest.raises(Refused, match="not yours" if fault == "owner" else "others may write"):
        directory.make(to_write=True)
