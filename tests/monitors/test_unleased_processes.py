"""Processes without a lease: when they are called so, and what follows; then a real one."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.api.client import ask, ask_status
from leased.base.errors import Refused
from leased.config import config
from leased.monitors.process_monitor import target, uids
from leased.processes import process_inspector, procfs
from leased.processes.identity import ProcessId, Step, process_id
from leased.processes.process_inspector import ProcessInspector
from leased.processes.stepds import Known
from leased.processes.stray import JOBS_COUNTED, NAMED_PER_JOB, Action, End, Found, Policy, Process
from leased.processes.unleased_processes import (
    AGAIN_NS,
    CONFIRM_NS,
    CONFIRM_POLLS,
    GAP_NS,
    UnleasedProcesses,
)
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.fake_proc import process
from tests.support.programs import SET_UP, line, tell

S = 1_000_000_000
POLL = S // 2
STRAY = Process(10, 77, 1000, "python3", Step(7, "0"), False)


class Node:
    """Polls of one device at a steady pace, over processes that a test puts there."""

    def __init__(self, action: str = "end", allow: frozenset[int] = frozenset()):
        self.strays = UnleasedProcesses(Policy(action, 10 * S, allow))
        self.now = 0
        self.table: dict[int, Process] = {}

    def poll(
        self, *pids: int, clients: dict[int, bool] | None = None, device: str = "d0"
    ) -> list[Action]:
        self.now += POLL
        return self.strays.look(
            self.now, device, dict.fromkeys(pids, 1 << 20), clients or {}, self.table.get
        )

    def polls(self, seconds: float, *pids: int, **options: object) -> list[Action]:
        n = int(seconds * S / POLL)
        return [a for _ in range(n) for a in self.poll(*pids, **options)]  # type: ignore[arg-type]


def test_a_session_in_the_job_never_ends_the_job() -> None:
    """Slurm has adopted an ssh session; its step cannot be ended but with the job."""
    node = Node()
    session = replace(STRAY, step=Step(7, "extern"))
    node.table[10] = session
    found = Found(session, "d0", 1 << 20, True, True, True, False)
    assert node.polls(600, 10) == [found], "it is named and counted, no more"


def test_named_once_and_its_step_ended_after_the_grace() -> None:
    node = Node()
    node.table[10] = STRAY
    assert node.polls(2, 10) == []
    assert node.polls(7.5, 10) == [Found(STRAY, "d0", 1 << 20, True, True, True, False)]
    assert node.polls(2, 10) == [End(Step(7, "0"), STRAY)]
    assert node.polls(50, 10) == []
    assert node.polls(20, 10) == [End(Step(7, "0"), STRAY)], "it did not end: again"
    assert node.strays.status()["jobs"] == {"7": 1}
    node.poll()
    assert node.strays.status()["now"] == []
    assert node.strays.counts.total == 1


@pytest.mark.parametrize(("action", "named"), [("count", False), ("warn", True)])
def test_a_stray_is_counted_and_named_as_the_site_says(action: str, named: bool) -> None:
    node = Node(action)
    node.table[10] = STRAY
    assert node.polls(60, 10) == [Found(STRAY, "d0", 1 << 20, True, named, True, False)]
    assert node.strays.counts.of_jobs == {7: 1}


def test_a_client_that_says_hello_late_is_no_stray() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(1.5, 10)
    assert node.polls(60, 10, clients={10: True}) == []
    assert node.strays.counts.total == 0


def test_a_context_with_the_interposer_is_no_stray() -> None:
    node = Node()
    node.table[10] = replace(STRAY, interposed=True)
    assert node.polls(60, 10) == []
    # It runs another program now, without the interposer.
    node.table[10] = STRAY
    assert [type(a) for a in node.polls(20, 10)] == [Found, End]


def test_a_client_on_a_device_that_its_tenant_does_not_lease_is_named_and_not_ended() -> None:
    node = Node()
    node.table[10] = replace(STRAY, interposed=True)
    assert [type(a) for a in node.polls(60, 10, clients={10: False})] == [Found]


def test_of_no_job_or_of_an_allowed_user_is_named_and_held_against_nobody() -> None:
    node = Node(allow=frozenset({0, 995}))
    nobodys = node.table[10] = replace(STRAY, step=None)
    allowed = node.table[11] = replace(STRAY, pid=11, uid=995)
    roots = node.table[12] = replace(STRAY, pid=12, uid=0)
    # With the interposer, but of no job: none that it could have a lease of.
    login = node.table[13] = replace(STRAY, pid=13, step=None, interposed=True)
    assert node.polls(60, *node.table) == [
        Found(nobodys, "d0", 1 << 20, False, True, True, False),
        Found(allowed, "d0", 1 << 20, False, True, True, False),
        Found(roots, "d0", 1 << 20, False, True, True, False),
        Found(login, "d0", 1 << 20, False, True, False, False),
    ]
    assert node.strays.counts.total == 4
    assert node.strays.status()["jobs"] == {}
    assert [shown["pid"] for shown in node.strays.status()["now"]] == [10, 11, 12, 13]
    assert [shown["bytes"] for shown in node.strays.status()["now"]] == [1 << 20] * 4


def test_many_of_one_user_are_a_few_lines() -> None:
    node = Node("warn")
    found = []
    for pid in range(10, 40):  # one after the other, as of a timer
        node.table[pid] = replace(STRAY, pid=pid, step=None)
        found += [a for a in node.polls(3, pid) if isinstance(a, Found)]
    assert [f.named for f in found] == [True] * NAMED_PER_JOB + [False] * (30 - NAMED_PER_JOB)
    assert [n for n, f in enumerate(found) if f.last] == [NAMED_PER_JOB - 1]


def test_a_process_that_ends_before_it_was_named_is_counted() -> None:
    node = Node()
    node.table[10] = STRAY
    assert node.polls(0.5, 10) == []
    node.table.clear()
    assert node.polls(5) == [Found(STRAY, "d0", 1 << 20, True, True, True, False, brief=True)]
    assert node.strays.status()["jobs"] == {"7": 1}
    assert node.strays.seen == {}


@pytest.mark.parametrize(
    "seen", [replace(STRAY, interposed=True), None], ids=["with the interposer", "not described"]
)
def test_a_process_that_ends_before_it_was_judged_is_no_stray(seen: Process | None) -> None:
    node = Node()
    if seen:
        node.table[10] = seen
    assert node.polls(1.5, 10) == []
    assert node.polls(5) == []
    assert node.strays.counts.total == 0


def test_a_process_that_becomes_a_client_or_is_not_looked_at_is_not_counted() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(1, 10)
    assert node.polls(1, 10, clients={10: True}) == []
    assert node.polls(1) == []
    node.polls(1, 10)
    node.strays.forget("d0")  # nobody shares the device any more
    assert node.polls(1) == []
    node.polls(1, 10)
    node.now += GAP_NS
    assert node.polls(1) == []
    assert node.strays.counts.total == 0


def test_a_brief_one_on_two_devices_counts_once() -> None:
    for order in (("d0", "d1"), ("d1", "d0")):
        node = Node("warn")
        node.table[10] = STRAY
        for device in ("d0", "d1"):
            node.poll(10, device=device)
        for device in order:
            node.poll(device=device)
        assert node.strays.counts.total == 1


def test_a_process_that_leaves_one_of_its_devices_counts_once() -> None:
    node = Node("warn")
    node.table[10] = STRAY
    for _ in range(2):
        node.poll(10, device="d0")
        node.poll(10, device="d1")
    for _ in range(20):
        node.poll(device="d0")
        node.poll(10, device="d1")
    assert node.strays.counts.total == 1


def test_without_a_known_step_nothing_is_ended() -> None:
    node = Node()
    node.table[10] = replace(STRAY, step=Step(7, None))
    assert [type(a) for a in node.polls(60, 10)] == [Found]


def test_another_process_with_its_number_is_a_new_one() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(9, 10)
    later = node.table[10] = replace(STRAY, start=78, step=Step(8, "1"))
    assert node.polls(10, 10) == [Found(later, "d0", 1 << 20, True, True, True, False)]
    assert node.polls(2, 10) == [End(Step(8, "1"), later)]


def test_one_process_on_two_devices_counts_once() -> None:
    node = Node("warn")
    node.table[10] = STRAY
    for _ in range(20):
        node.poll(10, device="d0")
        node.poll(10, device="d1")
    assert node.strays.counts.total == 1
    assert len(node.strays.status()["now"]) == 2


def test_a_gap_between_looks_begins_anew() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(1.5, 10)
    node.now += GAP_NS
    assert node.polls(2, 10) == []
    assert [type(a) for a in node.polls(1, 10)] == [Found]


def test_many_of_one_job_and_many_jobs_are_bounded() -> None:
    node = Node("warn")
    for pid in range(10, 10 + 3 * NAMED_PER_JOB):
        node.table[pid] = replace(STRAY, pid=pid)
    found = [a for a in node.polls(5, *node.table) if isinstance(a, Found)]
    assert [f.named for f in found] == [True] * NAMED_PER_JOB + [False] * 2 * NAMED_PER_JOB
    assert [n for n, f in enumerate(found) if f.last] == [NAMED_PER_JOB - 1]
    assert node.strays.counts.of_jobs == {7: 3 * NAMED_PER_JOB}
    node.table = {n: replace(STRAY, pid=n, step=Step(n, "0")) for n in range(1, JOBS_COUNTED + 50)}
    node.polls(5, *node.table)
    assert len(node.strays.counts.of_jobs) == JOBS_COUNTED
    node.poll()
    assert node.strays.seen == {}


processes = st.builds(
    Process,
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([0, 1000]),
    st.just("x"),
    st.one_of(st.none(), st.builds(Step, st.integers(1, 3), st.sampled_from(["0", "batch", None]))),
    st.booleans(),
)
polls = st.lists(
    st.tuples(
        st.sampled_from(["d0", "d1"]),
        st.lists(processes, max_size=6),
        st.dictionaries(st.integers(1, 6), st.booleans(), max_size=3),
        st.integers(0, 3 * S),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(polls, st.sampled_from(["count", "warn", "end"]))
def test_no_process_is_accused_wrongly_whatever_is_seen(
    seen: list[tuple[str, list[Process], dict[int, bool], int]], action: str
) -> None:
    strays = UnleasedProcesses(Policy(action, 10 * S, frozenset({0})))
    now = 0
    since: dict[tuple[str, int], tuple[int, int]] = {}
    ended: dict[Step, int] = {}
    described: set[Process] = set()
    for device, here, clients, passed in seen:
        now += passed
        table = {p.pid: p for p in here}
        for key in [k for k in since if k[0] == device]:
            if key[1] not in table or clients.get(key[1]):
                del since[key]
        for pid in table:
            if not clients.get(pid):
                first, n = since.get((device, pid), (now, 0))
                since[device, pid] = (first, n + 1)
        asked = {pid for pid in table if not clients.get(pid) and strays.will_ask(now, device, pid)}

        def who(pid: int, asked: set[int] = asked, here: dict[int, Process] = table) -> Process:
            assert pid in asked
            described.add(here[pid])
            return here[pid]

        for act in strays.look(now, device, dict.fromkeys(table, 5), clients, who):
            process = act.process
            assert process in described
            step = process.step
            if isinstance(act, End) or act.blamed:
                assert step is not None
                assert process.uid != 0
            if isinstance(act, Found) and act.brief:
                assert process.pid not in table
                assert not process.interposed or process.step is None
                continue
            assert table[process.pid] == process
            assert not clients.get(process.pid)
            first, n = since[device, process.pid]
            assert n >= CONFIRM_POLLS
            assert now - first >= CONFIRM_NS
            assert action != "count" or (isinstance(act, Found) and not act.named)
            if isinstance(act, End):
                assert action == "end"
                assert step is not None
                assert now - first >= 10 * S
                assert step.name is not None
                assert now - ended.get(step, -AGAIN_NS) >= AGAIN_NS
                assert not process.interposed
                ended[step] = now
        assert sum(1 for key in strays.seen if key[0] == device) <= len(table)


# -- the shell around it -------------------------------------------------------------------


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with slurmstepd 5 of job 42, step batch, its child 6, and 7 of another user."""
    for pid, parent, command, maps in (
        (5, 1, "slurmstepd", ""),
        (6, 5, "py\x1b[31mthon", "7f00 r-xp 00 08:01 12 /opt/x/libgpulease.so\n"),
        (7, 1, "monitor", "7f00 r-xp 00 08:01 12 /lib/libc.so.6\n"),
    ):
        place = tmp_path / str(pid)
        (place / "fd").mkdir(parents=True)
        fields = ["S", str(parent), *["0"] * 17, str(70 + pid), "0"]
        (place / "stat").write_text(f"{pid} (a) " + " ".join(fields))
        (place / "cgroup").write_text("0::/\n")
        (place / "comm").write_text(command + "\n")
        (place / "maps").write_text(maps)
        (place / "status").write_text(f"Name:\ta\nUid:\t{1000 + pid}\t0\t0\t0\n")
        (place / "cmdline").write_bytes(b"slurmstepd: [42.batch]\0" if pid == 5 else b"x\0")
    return tmp_path


def describe(
    proc: Path, *pids: int, known: Known | None = None, real_gpu: bool = False
) -> dict[int, Process]:
    asked = ProcessInspector(real_gpu, proc)
    asked.interposer = "libgpulease.so"
    return asyncio.run(asked.describe(pids, known or Known()))


def test_what_the_kernel_says_of_a_process(proc: Path) -> None:
    known = Known({5: (ProcessId(5, 75), 42)})
    found = describe(proc, 6, known=known)[6]
    assert found == Process(6, 76, 1006, "py?[31mthon", Step(42, "batch"), True)
    maps = proc / "6" / "maps"
    maps.write_text(maps.read_text().replace(".so\n", ".so (deleted)\n"))
    assert describe(proc, 6, known=known) == {6: found}, "updated under it"
    maps.write_text("7f00 r-xp 00 08:01 12 /opt/mylibgpulease.so\n")
    without = replace(found, interposed=False)
    other = Process(7, 77, 1007, "monitor", None, False)
    assert describe(proc, 6, 7, 99, known=known) == {6: without, 7: other}
    maps.write_text("")
    assert describe(proc, 6, known=known) == {6: found}, "it ends: nobody is accused"


def test_a_pid_that_has_no_gpu_open_is_not_the_one_that_nvml_means(proc: Path) -> None:
    assert describe(proc, 7, real_gpu=True) == {}
    (proc / "7" / "fd" / "3").symlink_to("/dev/nvidia-uvm")
    assert list(describe(proc, 7, real_gpu=True)) == [7]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[set[int], threading.Event]]:
    """The maps of those processes in the set are not read before the event."""
    pids: set[int] = set()
    may_answer = threading.Event()
    read = procfs.maps_file

    def maps_file(pid: int, name: str, proc: Path) -> bool | None:
        if pid in pids:
            may_answer.wait(60)
        return read(pid, name, proc)

    monkeypatch.setattr(procfs, "maps_file", maps_file)
    monkeypatch.setattr(process_inspector, "ASK_S", 1.0)
    yield pids, may_answer
    may_answer.set()


def test_a_process_that_keeps_the_kernel_waiting_hides_no_other(
    proc: Path, hanging: tuple[set[int], threading.Event]
) -> None:
    pids, may_answer = hanging
    pids.add(7)
    for pid in (8, 9):
        process(proc, pid)
    looks = ProcessInspector(False, proc)
    looks.interposer = "libgpulease.so"
    for _ in range(3):
        found = asyncio.run(looks.describe([8, 7, 9], Known()))
        assert {pid: p.interposed for pid, p in found.items()} == {8: False, 7: True, 9: False}
        assert list(looks.stuck) == [7]
    thread = looks.stuck[7]
    may_answer.set()
    thread.join(60)
    found = asyncio.run(looks.describe([7], Known()))
    assert found[7].interposed is False
    assert looks.stuck == {}


def test_threads_that_wait_are_bounded(
    proc: Path, hanging: tuple[set[int], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, _ = hanging
    monkeypatch.setattr(process_inspector, "ASK_S", 0.05)
    many = range(100, 100 + 2 * process_inspector.STUCK)
    pids.update(many)
    for pid in many:
        process(proc, pid)
    looks = ProcessInspector(False, proc)
    for _ in range(2):
        found = asyncio.run(looks.describe(many, Known()))
        assert list(found) == list(many)
        assert all(p.interposed for p in found.values()), "nobody is accused"
        assert len(looks.stuck) == process_inspector.STUCK


def test_the_target_of_scancel() -> None:
    """7 is the number of a task, and means the whole array to Slurm."""
    assert [target(Step(7, name), "7_4") for name in ("0", "12", "batch", "extern")] == [
        *("7_4.0", "7_4.12", "7_4", "7_4")
    ]


def test_users_by_name_and_number() -> None:
    assert uids(("root", "1234", "no such user")) == {0, 1234}


def test_the_configuration_of_strays_is_checked() -> None:
    made = config.from_dict({"strays": {"action": "end", "grace": "500ms", "allow": []}})
    assert made.strays == config.StraysConfig("end", 500_000_000, ())
    for raw, words in (
        ({"action": "kill"}, "strays.action = 'kill' is not known"),
        ({"allow": [0]}, "strays.allow = .0. is not a list of users"),
        ({"allow": "root"}, "strays.allow = 'root' is not a list"),
        ({"grace": "soon"}, "strays.grace: "),
    ):
        with pytest.raises(Refused, match=words):
            config.from_dict({"strays": raw})


WITHOUT = (
    SET_UP
    + """
ok(spin(1000)); ok(d.cuCtxSynchronize())
say(os.getpid())
sys.stdin.readline()
"""
)
WITH = SET_UP + "say(os.getpid()); sys.stdin.readline()\n"


def test_a_process_without_ld_preload_is_found(
    short_dir: Path, emulated_gpu: EmulatedGpu, leased: Leased, tenant: Start
) -> None:
    del short_dir
    text = leased.config.read_text()
    leased.config.write_text(text + "[strays]\nallow = []\n")
    ask(leased.admin_socket, {"op": "reload"})
    # In one job: a process without the interposer, and one that has a context and no more.
    program = f"""
import subprocess, sys, os
bare = {{k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}}
one = subprocess.Popen([sys.executable, "-c", {WITHOUT!r}], env=bare, stdin=-1)
two = subprocess.Popen([sys.executable, "-c", {WITH!r}], stdin=-1)
sys.stdin.readline()
one.communicate(b"\\n"), two.communicate(b"\\n")
"""
    process = tenant(7, "", "-c", program)
    pids = {int(line(process)), int(line(process))}
    assert {p["pid"] for p in emulated_gpu.stats()["processes"]} == pids

    def strays() -> dict[str, Any]:
        return dict(ask(leased.admin_socket, {"op": "status"})["strays"])

    wait_until("the stray to be found", lambda: strays()["total"] == 1)
    (shown,) = strays()["now"]
    assert shown["pid"] in pids
    assert (shown["job_id"], shown["uid"]) == (7, 0)
    assert strays()["jobs"] == {"7": 1}
    (used,) = ask(leased.admin_socket, {"op": "usage", "job_id": 7})["usage"].values()
    assert used["strays"] == 1
    assert f"process {shown['pid']} (python" in leased.log.read_text()
    assert process_id(shown["pid"]) is not None, "it was not touched"
    tell(process)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert strays()["total"] == 1, "a context with the interposer is none"


CUTS_ITSELF_OFF = (
    SET_UP
    + """
import resource, socket
ok(spin(1000)); ok(d.cuCtxSynchronize())
connections = []
for name in os.listdir("/proc/self/fd"):
    try:
        with socket.socket(fileno=int(name)) as s:
            if s.type == socket.SOCK_SEQPACKET:
                connections.append(s.fileno())
            s.detach()
    except OSError:
        pass
files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, files[1]))
for number in connections:
    os.close(number)
say(os.getpid())
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, files)
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("back")
sys.stdin.readline()
"""
)


def test_a_process_that_has_cut_itself_off_with_a_lease_is_found_until_it_is_back(
    leased: Leased, tenant: Start
) -> None:
    process = tenant(7, "", "-c", CUTS_ITSELF_OFF)
    pid = int(line(process))

    def shown() -> list[int]:
        return [p["pid"] for p in ask(leased.admin_socket, {"op": "status"})["strays"]["now"]]

    wait_until("the stray to be found", lambda: shown() == [pid])
    tell(process)
    assert line(process) == "back"
    wait_until("it to be a client again", lambda: not shown())


def test_a_process_of_no_job_is_named_to_people(
    emulated_gpu: EmulatedGpu, leased: Leased, tenant: Start
) -> None:
    holder = tenant(7, "", "-c", WITH)
    line(holder)
    login = subprocess.Popen(
        [sys.executable, "-c", WITHOUT],
        env=os.environ | emulated_gpu.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        pid = int(line(login))

        def shown() -> list[dict[str, Any]]:
            return list(map(dict, ask_status(leased.admin_socket)["strays"]["now"]))

        wait_until("it to be named", lambda: bool(shown()))
        (stray,) = shown()
        assert stray.pop("bytes") > 0
        assert stray.pop("command").startswith("python")
        assert stray.pop("device").startswith("GPU-")
        assert stray == {"job_id": None, "step": None, "uid": 0, "user": "root", "pid": pid}
        said = subprocess.run(
            [
                sys.executable,
                "-m",
                "leased.cli.ctl",
                "--socket",
                str(leased.admin_socket),
                "status",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert re.search(rf"process {pid} \('python.*', user root, no job\) has .* of GPU 0", said)
        log = leased.log.read_text()
        assert re.search(rf"of no job \(uid 0\): process {pid} \(python.*\) uses GPU 0", log)
    finally:
        login.kill()
        login.communicate()
    wait_until("it to be forgotten", lambda: not shown())
    tell(holder)
    holder.communicate(timeout=60)
