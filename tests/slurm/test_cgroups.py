"""Jobs that Slurm tracks by cgroup: who is a job's by it, and who only says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.processes import procfs
from leased.wire import header
from tests.connections.test_limits import HELLO
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.cgroups import delegate, private
from tests.support.machine import freezer_required

# Connects to the socket named in argv[1] and writes the answer to its HELLO to argv[2].
ASK = """
import os, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(bytes.fromhex(sys.argv[3]))
answer = sock.recv(1024)
with open(sys.argv[2] + ".new", "wb") as out:
    out.write(answer)
os.rename(sys.argv[2] + ".new", sys.argv[2])
"""
# The same from a process that has left its step's session and outlived its parents.
DETACHED = (
    """
import os, time
parent = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
"""
    + ASK
    + "time.sleep(600)\n"
)


@pytest.fixture
def site() -> Iterator[Site]:
    freezer_required()
    with sharing_site(slurm_conf=["ProctrackType=proctrack/cgroup"]) as found:
        yield found


def told(path: Path) -> bytes:
    wait_until(f"the answer in {path}", path.exists)
    return path.read_bytes()


def test_a_detached_process_is_its_jobs_and_no_other_is(
    site: Site,
) -> None:
    slurm, leased, out = site.slurm, site.leased, site.work
    program, script = out / "detached.py", out / "job.sh"
    program.write_text(DETACHED)
    script.write_text(
        f"#!/bin/sh\n/usr/bin/python3 {program} $GPU_LEASE_SOCKET {out}/detached {HELLO.hex()}\n"
        "cat /proc/self/cgroup\nexec sleep 600\n"
    )
    job = slurm.sbatch("--gres=shard:1", "-o", f"{out}/log", str(script), cwd=out, user="nobody")
    answer = told(out / "detached")
    assert header.check_header(answer) == lib.GL_WELCOME
    assert ffi.from_buffer("struct gl_welcome *", answer).job_id == job
    where = (out / "log").read_bytes().split(b"\n")
    (own,) = [line.split(b":", 2)[2] for line in where if b":freezer:" in line]
    assert b"/job_%d/step_batch" % job in own
    with private() as place:
        # The same path, in a hierarchy and below a place that Slurm did not make.
        mine = delegate(place / "user", 65534) / f"x\r4:freezer:{os.fsdecode(own)}"
        for path in (mine, place / os.fsdecode(own).lstrip("/")):
            path.mkdir(parents=True)
            liar = subprocess.Popen(
                [
                    *("/bin/sh", "-c", 'read go; exec "$@"', "sh", sys.executable, "-c", ASK),
                    *(str(leased.run_dir / "tenant.sock"), str(out / "liar"), HELLO.hex()),
                ],
                stdin=subprocess.PIPE,
                user="nobody",
                text=True,
            )
            (path / "cgroup.procs").write_text(str(liar.pid))
            assert b"job_%d" % job in b"".join(c.path for c in procfs.cgroups(liar.pid) or ())
            liar.communicate("\n", timeout=60)
            reply = ffi.from_buffer("struct gl_refused *", told(out / "liar"))
            assert (reply.header.type, reply.code) == (lib.GL_REFUSED, lib.GL_REFUSED_NO_TENANT)
            (out / "liar").unlink()
    status = ask(leased.admin_socket, {"op": "status"})
    assert [tenant["clients"] for tenant in status["tenants"]] == [1]
    # The plugin says whose the job is, and the daemon's own Slurm says the same.
    assert status["cluster"] == {"name": "gpulease", "refused": {}}
    slurm.run("scancel", str(job))
    wait_until("the end of the job", lambda: slurm.node_state() == "idle")
