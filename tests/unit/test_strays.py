"""Processes without a lease: when they are called so, and what follows; then a real one."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased import config, watch
from leased.ctl import ask
from leased.devices import Gpu
from leased.errors import Refused
from leased.identity import ProcessId, Step, process_id
from leased.leases import Leases, Tenant
from leased.slurm import Slurm
from leased.stepds import Known, Stepds
from leased.store import Store
from leased.strays import (
    AGAIN_NS,
    CONFIRM_NS,
    CONFIRM_POLLS,
    GAP_NS,
    JOBS_COUNTED,
    NAMED_PER_JOB,
    Action,
    End,
    Found,
    Policy,
    Process,
    Strays,
)
from leased.watch import describe, target, uids
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.unit.test_shim import SET_UP, line, tell

S = 1_000_000_000
POLL = S // 2
STRAY = Process(10, 77, 1000, "python3", Step(7, "0"), False)


class Node:
    """Polls of one device at a steady pace, over processes that a test puts there."""

    def __init__(self, action: str = "end", allow: frozenset[int] = frozenset()):
        self.strays = Strays(Policy(action, 10 * S, allow))
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
    found = Found(session, "d0", 1 << 20, True, True, False)
    assert node.polls(600, 10) == [found], "it is named and counted, no more"


def test_named_once_and_its_step_ended_after_the_grace() -> None:
    node = Node()
    node.table[10] = STRAY
    assert node.polls(2, 10) == []
    assert node.polls(7.5, 10) == [Found(STRAY, "d0", 1 << 20, True, True, False)]
    assert node.polls(2, 10) == [End(Step(7, "0"), STRAY)]
    assert node.polls(50, 10) == []
    assert node.polls(20, 10) == [End(Step(7, "0"), STRAY)], "it did not end: again"
    assert node.strays.status()["jobs"] == {"7": 1}
    node.poll()
    assert node.strays.status()["now"] == []
    assert node.strays.total == 1


@pytest.mark.parametrize(("action", "named"), [("count", False), ("warn", True)])
def test_less_than_ended(action: str, named: bool) -> None:
    node = Node(action)
    node.table[10] = STRAY
    assert node.polls(60, 10) == [Found(STRAY, "d0", 1 << 20, named, True, False)]
    assert node.strays.counts == {7: 1}


def test_a_client_that_says_hello_late_is_no_stray() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(1.5, 10)
    assert node.polls(60, 10, clients={10: True}) == []
    assert node.strays.total == 0


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


def test_of_no_job_or_of_an_allowed_user_is_only_counted() -> None:
    node = Node(allow=frozenset({0, 995}))
    node.table[10] = replace(STRAY, step=None)
    node.table[11] = replace(STRAY, pid=11, uid=995)
    assert node.polls(60, 10, 11) == []
    assert node.strays.total == 2
    assert node.strays.status()["jobs"] == {}
    assert [shown["pid"] for shown in node.strays.status()["now"]] == [10, 11]


def test_without_a_known_step_nothing_is_ended() -> None:
    node = Node()
    node.table[10] = replace(STRAY, step=Step(7, None))
    assert [type(a) for a in node.polls(60, 10)] == [Found]


def test_another_process_with_its_number_is_a_new_one() -> None:
    node = Node()
    node.table[10] = STRAY
    node.polls(9, 10)
    later = node.table[10] = replace(STRAY, start=78, step=Step(8, "1"))
    assert node.polls(10, 10) == [Found(later, "d0", 1 << 20, True, True, False)]
    assert node.polls(2, 10) == [End(Step(8, "1"), later)]


def test_one_process_on_two_devices_counts_once() -> None:
    node = Node("warn")
    node.table[10] = STRAY
    for _ in range(20):
        node.poll(10, device="d0")
        node.poll(10, device="d1")
    assert node.strays.total == 1
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
    assert node.strays.counts == {7: 3 * NAMED_PER_JOB}
    node.table = {n: replace(STRAY, pid=n, step=Step(n, "0")) for n in range(1, JOBS_COUNTED + 50)}
    node.polls(5, *node.table)
    assert len(node.strays.counts) == JOBS_COUNTED
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
def test_whatever_is_seen_nobody_is_accused_wrongly(
    seen: list[tuple[str, list[Process], dict[int, bool], int]], action: str
) -> None:
    strays = Strays(Policy(action, 10 * S, frozenset({0})))
    now = 0
    since: dict[tuple[str, int], tuple[int, int]] = {}
    ended: dict[Step, int] = {}
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
        for act in strays.look(now, device, dict.fromkeys(table, 5), clients, table.get):
            process = act.process
            assert table[process.pid] == process
            assert process.step is not None
            assert process.uid != 0
            assert not clients.get(process.pid)
            first, n = since[device, process.pid]
            assert n >= CONFIRM_POLLS
            assert now - first >= CONFIRM_NS
            assert action != "count" or (isinstance(act, Found) and not act.named)
            if isinstance(act, End):
                assert action == "end"
                assert now - first >= 10 * S
                assert process.step.name is not None
                assert now - ended.get(process.step, -AGAIN_NS) >= AGAIN_NS
                assert not process.interposed
                ended[process.step] = now
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


def test_what_the_kernel_says_of_a_process(proc: Path) -> None:
    known = Known({5: (ProcessId(5, 75), 42)})
    found = describe(6, known, "libgpulease.so", False, proc)
    assert found == Process(6, 76, 1006, "py?[31mthon", Step(42, "batch"), True)
    maps = proc / "6" / "maps"
    maps.write_text(maps.read_text().replace(".so\n", ".so (deleted)\n"))
    assert describe(6, known, "libgpulease.so", False, proc) == found, "updated under it"
    maps.write_text("7f00 r-xp 00 08:01 12 /opt/mylibgpulease.so\n")
    assert describe(6, known, "libgpulease.so", False, proc) == replace(found, interposed=False)
    other = describe(7, known, "libgpulease.so", False, proc)
    assert other == Process(7, 77, 1007, "monitor", None, False)
    assert describe(99, known, "libgpulease.so", False, proc) is None


def test_a_pid_that_has_no_gpu_open_is_not_the_one_that_nvml_means(proc: Path) -> None:
    assert describe(7, Known(), "libgpulease.so", True, proc) is None
    (proc / "7" / "fd" / "3").symlink_to("/dev/nvidia-uvm")
    assert describe(7, Known(), "libgpulease.so", True, proc) is not None


def test_a_process_that_the_kernel_cannot_describe_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    asked, may_answer = [], threading.Event()

    def stuck(pid: int, *_: object) -> Process | None:
        asked.append(pid)
        may_answer.wait(60)
        return STRAY

    monkeypatch.setattr(watch, "describe", stuck)
    monkeypatch.setattr(watch, "ASK_S", 0.01)
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(0, S).__next__)
    gpu = Gpu(0, "GPU-0", "fake", 1 << 30, 1 << 30)
    leases = Leases([gpu], time.monotonic_ns)
    leases.open(Tenant(7, 0, "", "on", S, False, {"GPU-0": 1 << 30}))
    looks = watch.Watch(leases, Stepds(Store(tmp_path / "usage.db")), Slurm({}), config.Config())
    looks.strays.policy = Policy("count")

    async def poll(times: int) -> None:
        for _ in range(times):
            await looks.look(gpu, {10: 1 << 20})

    asyncio.run(poll(10))
    assert asked == [10], "not again while it has not answered"
    may_answer.set()
    assert looks.thread is not None
    looks.thread.join(60)
    monkeypatch.setattr(watch, "ASK_S", 60)
    asyncio.run(poll(10))
    assert looks.strays.counts == {7: 1}


def test_what_scancel_is_told() -> None:
    assert [target(Step(7, name)) for name in ("0", "12", "batch", "extern")] == [
        *("7.0", "7.12", "7", "7")
    ]


def test_users_by_name_and_number() -> None:
    assert uids(("root", "1234", "no such user")) == {0, 1234}


def test_configuration() -> None:
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
