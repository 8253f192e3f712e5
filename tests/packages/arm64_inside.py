"""What the packages for aarch64 do on such a machine, which qemu-user pretends to be.

Run by arm64.sh with the tree's own Python, in a tree of Debian for arm64 that has the packages'
files, the emulated GPU in /emugpu and this checkout's tests in /checkout. Prints a line for each
step; the first that is not as it should be ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PYTHON = "/usr/bin/python3"
PRIVATE = "/usr/lib/gpu-lease"
CHECKOUT = Path("/checkout")
EMUGPU = {"EMUGPU_DIR": "/run/emugpu", "LD_LIBRARY_PATH": "/emugpu"}
SOCKET = Path("/run/gpu-leased/admin.sock")
START_S = 120.0
MIB, STEPS = 160, 6  # of the 256 MiB of the GPU
sys.path.insert(0, f"{PRIVATE}/python")


def say(*words: object) -> None:
    print("--", *words, flush=True)


def said(*command: str, status: int = 0, **env: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | env,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == status, f"{command} ended with {done.returncode}: {done.stdout}"
    return done.stdout


def messages() -> None:
    """The wire extension lays them out as on every machine."""
    from leased.wire import client_messages, header
    from leased.wire.table import MESSAGES

    golden = json.loads((CHECKOUT / "tests/wire/data/wire_vectors.json").read_text())
    for row in MESSAGES.values():
        data = bytes.fromhex(golden[row.name.lower()])
        assert header.check_header(data) == row.number
        assert len(data) == row.size
    of_clients = [golden[row.name.lower()] for row in MESSAGES.values() if row.of_client]
    read = [client_messages.parse(bytes.fromhex(data)) for data in of_clients]
    say(f"{len(golden)} messages, {len(read)} of clients read")


def plugin() -> None:
    """In Slurm's own program, and the half that slurmstepd loads."""
    conf = Path("/etc/slurm/slurm.conf")
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    line = Path("/etc/slurm/plugstack.conf.d/gpu-lease.conf")
    line.parent.mkdir(exist_ok=True)
    if not line.exists():
        line.symlink_to("/usr/share/gpu-lease/slurm-conf/plugstack.conf.d/gpu-lease.conf")
    assert "tq:30s" in said("/usr/bin/sbatch", "--gpu-share=help", "--wrap", "true")
    refused = said("/usr/bin/sbatch", "--gpu-share=tq:never", "--wrap", "true", status=1)
    assert "gpu-share: tq:never is not a time" in refused
    # Its symbols are those of the program that loads it.
    (slurm,) = Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so")
    load = f"""
import ctypes
ctypes.CDLL({str(slurm)!r}, ctypes.RTLD_GLOBAL)
print(ctypes.CDLL({PRIVATE!r} + "/gpu_share_python.so"))
"""
    assert "CDLL" in said(PYTHON, "-I", "-c", load)
    say("sbatch knows --gpu-share")


def commands() -> None:
    import _gpulease_slurmdb  # noqa: F401, it has libslurm

    from leased import __version__

    assert said(PYTHON, "-I", "/usr/bin/gpu-leasectl", "--version").strip() == __version__
    say("gpu-leasectl of release", __version__)


@contextlib.contextmanager
def runs(*command: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=os.environ | env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def ask(request: dict[str, object]) -> dict[str, object]:
    """What the daemon answers, once it does."""
    from leased.api import client
    from leased.base.errors import NoAnswer

    until = time.monotonic() + START_S
    while True:
        try:
            return dict(client.ask(SOCKET, request))
        except NoAnswer:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def job(number: int) -> subprocess.Popen[str]:
    """A job's program, whose parent has registered it as slurmstepd does."""
    program = [PYTHON, "-I", str(CHECKOUT / "tests/support/plain_job.py")]
    kernels = str(CHECKOUT / "tests/emugpu/kernels.ptx")
    words = [*program, kernels, str(MIB), str(STEPS), "10", f"/tmp/{number}.step"]
    tenant = [PYTHON, "-m", "tests.support.tenant", "--admin", str(SOCKET), "--job", str(number)]
    path = f"{CHECKOUT}:{PRIVATE}/python"
    return subprocess.Popen(
        [*tenant, "--options", "tq:500ms", "--", *words],
        env=os.environ | EMUGPU | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def two_jobs() -> None:
    """Daemon, interposer and driver: two jobs that do not fit together take turns."""
    for directory in ("/run/emugpu", "/run/gpu-leased", "/run/gpu-lease"):
        Path(directory).mkdir(exist_ok=True)
    Path("/run/gpu-lease/slurm.conf").write_text("ClusterName=none\n")
    config = Path("/run/gpu-lease/daemon.toml")
    config.write_text('[daemon]\nslurm_conf = "/run/gpu-lease/slurm.conf"\n')
    server = ("/emugpu/emugpud", "--dir", "/run/emugpu", "--model", "/emugpu/emu-h200-small.ini")
    daemon = (PYTHON, "-I", "/usr/sbin/gpu-leased", "--config", str(config))
    with runs(*server), runs(*daemon, **EMUGPU):
        ask({"op": "status"})
        jobs = [job(number) for number in (7001, 7002)]
        ends = [one.communicate(timeout=300)[0] for one in jobs]
        assert ends == ["right on 1 GPUs\n"] * 2, ends
        usage = [ask({"op": "usage", "job_id": number}) for number in (7001, 7002)]
    say("two jobs took turns:", json.dumps(usage)[:400])


if __name__ == "__main__":
    for step in (messages, plugin, commands, two_jobs):
        step()
