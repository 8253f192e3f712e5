"""Who a process is, tried by real processes of other users in real cgroups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.wire import header
from tests.connections.test_limits import HELLO
from tests.emugpu.programs import line
from tests.security.test_quick_procfs import ENDS
from tests.slurm.leased import Leased
from tests.support.cgroups import delegate, private
from tests.support.in_cgroup import start_in

NOBODY = 65534

# Waits for a line, then says HELLO and prints the answer; it goes on until its input ends.
# A process that registers as a slurmstepd waits for that line before it does so.
SAY_HELLO = """
import os, socket, sys
sys.stdin.readline()
for word in sys.argv[3:]:
    exec(word)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(bytes.fromhex(sys.argv[2]))
print(sock.recv(1024).hex(), flush=True)
sys.stdin.read()
"""
REGISTER = """
import sys
from pathlib import Path
from tests.support.tenant import register
sys.stdin.readline()
register(Path(sys.argv[1]), int(sys.argv[2]))
print("registered", flush=True)
sys.stdin.read()
"""


class Site:
    """A daemon, and a place of Slurm's of its own: slurmstepds and processes in cgroups."""

    def __init__(self, leased: Leased, place: Path, ends: contextlib.ExitStack):
        self.leased = leased
        self.place = place
        self.scope = place / "slurmstepd.scope"
        self.ends = ends

    def start(self, cgroup: Path, *command: str, user: str | None) -> subprocess.Popen[str]:
        """In that cgroup from before its first act on."""
        return start_in(cgroup, command, self.leased.env, user, self.ends)

    def stepd(self, job: int) -> subprocess.Popen[str]:
        """A slurmstepd that registers its step 0."""
        words = (sys.executable, "-c", REGISTER, str(self.leased.admin_socket), str(job))
        made = self.start(self.scope / f"job_{job}" / "step_0" / "slurm", *words, user=None)
        assert line(made) == "registered"
        return made

    def answer(self, cgroup: Path, *first: str, user: str | None = "nobody") -> tuple[int, int]:
        """What a process there is told when it says HELLO: the type, and the job or why not.

        first: Python that it runs before.
        """
        socket = str(self.leased.run_dir / "tenant.sock")
        words = ("/usr/bin/python3", "-c", SAY_HELLO, socket, HELLO.hex(), *first)
        reply = bytes.fromhex(line(self.start(cgroup, *words, user=user)))
        kind = header.check_header(reply)
        if kind == lib.GL_WELCOME:
            return kind, int(ffi.from_buffer("struct gl_welcome *", reply).job_id)
        return kind, int(ffi.from_buffer("struct gl_refused *", reply).code)


REFUSED = (lib.GL_REFUSED, lib.GL_REFUSED_NO_TENANT)


@pytest.fixture
def site(leased: Leased) -> Iterator[Site]:
    with private() as place, contextlib.ExitStack() as ends:
        yield Site(leased, place, ends)


def clients(site: Site) -> dict[int, int]:
    tenants = ask(site.leased.admin_socket, {"op": "status"})["tenants"]
    return {tenant["job_id"]: tenant["clients"] for tenant in tenants}


def test_processes_of_a_job_and_what_it_makes(site: Site) -> None:
    site.stepd(7)
    site.stepd(8)
    step = site.scope / "job_7" / "step_0" / "user" / "task_0"
    # Of any user: su, and what containers map.
    for user in ("nobody", "daemon", None):
        assert site.answer(step, user=user) == (lib.GL_WELCOME, 7)
    # What was given to the job's user is below the job, whatever it is called.
    for name in ("x", "\r0::" + str(step), "slurmstepd.scope/job_8/step_0", "job_8/step_0"):
        below = step / name.lstrip("/")
        assert site.answer(below) == (lib.GL_WELCOME, 7)
    assert site.answer(site.scope / "job_7" / "step_extern" / "user") == (lib.GL_WELCOME, 7)
    assert clients(site) == {7: 8, 8: 0}


@pytest.mark.parametrize("end", [*ENDS, " ", "\\n", "\\012"], ids=ascii)
def test_a_users_cgroup_of_any_name(site: Site, end: str) -> None:
    site.stepd(7)
    own = delegate(site.place / "user@65534.service", NOBODY)
    path = "/" + str((site.scope / "job_7" / "step_0").relative_to(site.place.parent))
    for start, forged in (
        ("0::", path),
        ("0::", "/system.slice/slurmstepd.scope/job_7/step_0"),
        ("4:freezer:", "/slurm/uid_0/job_7/step_0"),
        ("", path),
    ):
        assert site.answer(own / f"x{end}{start}" / forged.lstrip("/")) == REFUSED
    assert clients(site) == {7: 0}


def test_a_place_that_only_looks_like_slurms(site: Site) -> None:
    site.stepd(7)
    own = delegate(site.place / "user@65534.service", NOBODY)
    for place in (own, own / "system.slice", site.place, site.place / "node1_x"):
        assert site.answer(place / "job_7" / "step_0") == REFUSED
        if place != site.place:
            assert site.answer(place / "slurmstepd.scope" / "job_7" / "step_0") == REFUSED
    assert site.answer(site.scope / "job_70" / "step_0") == REFUSED
    assert site.answer(site.scope / "job_7") == REFUSED, "in no step"


def test_a_namespace_of_cgroups_or_of_users_changes_nothing(site: Site) -> None:
    site.stepd(7)
    own = delegate(site.place / "user@65534.service", NOBODY) / "job_7" / "step_0"
    new_cgroups = "import ctypes; assert not ctypes.CDLL(None).unshare(0x02000000)"
    new_users = "import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000)"
    step = site.scope / "job_7" / "step_0" / "user"
    assert site.answer(own, new_cgroups, user=None) == REFUSED
    assert site.answer(step, new_cgroups, user=None) == (lib.GL_WELCOME, 7)
    allowed = subprocess.run(["unshare", "--user", "true"], check=False, user="nobody")
    if allowed.returncode == 0:
        assert site.answer(own, new_users, new_cgroups) == REFUSED
        assert site.answer(step, new_users) == (lib.GL_WELCOME, 7)


def test_any_name_of_a_process(site: Site) -> None:
    site.stepd(7)
    step = site.scope / "job_7" / "step_0" / "user"
    for name in (rb"\xff", rb"a) R 1 1 (", rb"\r0::/", rb"\nUid:\t0"):
        code = f"import ctypes; ctypes.CDLL(None).prctl(15, b'{name.decode()}', 0, 0, 0)"
        assert site.answer(step, code) == (lib.GL_WELCOME, 7)
        assert site.answer(site.place / "other", code) == REFUSED


def test_the_same_after_a_restart(site: Site) -> None:
    site.stepd(7)
    step = site.scope / "job_7" / "step_0" / "user"
    site.leased.kill()
    site.leased.start()
    assert site.answer(step) == (lib.GL_WELCOME, 7)
    assert site.answer(site.place / "slurmstepd2.scope" / "job_7" / "step_0") == REFUSED


def test_a_child_whose_parents_have_gone_is_found_by_its_cgroup_only(site: Site) -> None:
    stepd = site.stepd(7)
    fork = "os.fork() and os._exit(0)"
    step = site.scope / "job_7" / "step_0" / "user"
    assert site.answer(step, fork, "os.setsid()", fork) == (lib.GL_WELCOME, 7)
    # Another step of the job ends; the processes of this one stay the job's.
    stepd.kill()
    stepd.communicate()
    assert site.answer(step) == (lib.GL_WELCOME, 7)
    assert os.getuid() == 0
