"""What users may ask about their own jobs, and that they learn nothing of others'."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from leased.api.client import ask
from leased.api.own_job_answers import Env, Mine
from leased.cli import ctl, mine
from leased.cli.subcommand import ExitStatus
from tests.cli.conftest import Ctl
from tests.conftest import ROOT, Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, PRELOAD, Leased
from tests.slurm.processes import wait_until
from tests.support.cgroups import one_with
from tests.support.machine import open_checkout_required
from tests.support.programs import SET_UP, line, output, state, tell
from tests.support.tenant import register

NOBODY = 65534
HOLDS = (
    SET_UP
    + """
import select
p = ok(d.cuMemAlloc(32 << 20))
for _ in range(20):  # never idle: 2 s of work are always ahead
    ok(spin(100_000_000))
say("holds")
while not select.select([sys.stdin], [], [], 0.1)[0]:
    ok(spin(100_000_000))
"""
)
WAITS = SET_UP + "say('asks'); ok(spin(1000)); say('ran'); sys.stdin.readline()"


def tenant_sock(leased: Leased) -> Path:
    return leased.run_dir / "tenant.sock"


def asked_by(uid: int, path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The answer that a process of another user gets, or the error that it is told."""
    open_checkout_required()
    code = f"""
import os, json, sys
sys.path[:0] = {sys.path!r}
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
from pathlib import Path
from leased.api.client import ask
from leased.base.errors import Refused
try:
    print(json.dumps(ask(Path({str(path)!r}), {request!r})))
except Refused as fault:
    print(json.dumps({{"error": fault.sentence()}}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


@pytest.fixture
def two(tenant: Start, leased: Leased) -> tuple[Any, Any]:
    """Job 1 holds the GPU, job 2 waits for it."""
    holder = tenant(1, "tq:10m,lock:on", "-c", HOLDS)
    assert line(holder) == "holds"
    waiter = tenant(2, "tq:10m,lock:on,mem:0.5", "-c", WAITS)
    assert line(waiter) == "asks"
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
    return holder, waiter


def test_a_user_sees_who_is_before_and_since_when(
    two: tuple[Any, Any], leased: Leased, gpuctl: Ctl
) -> None:
    answer = ask(tenant_sock(leased), {"op": "mine"})
    first, second = answer["jobs"]
    assert (first["job_id"], first["state"], second["state"]) == (1, "holds", "waits")
    gpu = second["gpus"][0]
    assert gpu["before"] == 0
    assert gpu["mode"] == "exclusive"
    assert [(h["job_id"], h["own"]) for h in gpu["holders"]] == [(1, True)]
    assert 0 < gpu["quantum_left_s"] <= 600
    assert second["reason"] is None
    assert first["gpus"][0]["wanted_bytes"] == 32 << 20
    since = second["since_s"]
    wait_until(
        "time to pass",
        lambda: ask(tenant_sock(leased), {"op": "mine"})["jobs"][1]["since_s"] > since + 1.2,
    )
    text = gpuctl("mine")
    assert "job 1 has had its GPU for " in text
    assert "job 2 has waited for its GPU for " in text
    assert "GPU 0: held by job 1 of yours for " in text
    assert "GPU 0: no job waits before this one" in text
    assert "GPU 0: 32.0 MiB wanted" in text
    holder, waiter = two
    tell(holder)
    output(holder)
    assert line(waiter) == "ran"


def test_other_users_see_nothing_of_it(two: tuple[Any, Any], leased: Leased) -> None:
    assert two
    path = tenant_sock(leased)
    assert asked_by(NOBODY, path, {"op": "mine"}) == {"jobs": [], "more": 0}
    no_job = "is not a job of yours that shared a GPU of this node"
    for job in (1, 77):  # one that runs, and one that never was
        assert asked_by(NOBODY, path, {"op": "mine", "job_id": job}) == {
            "error": f"job {job} {no_job}; sacct -j {job} says where it ran, and "
            f"gpu-leasectl report -j {job} shows what it had from any host"
        }
    assert asked_by(NOBODY, path, {"op": "env"}) == {"job_id": None}
    assert "unknown question 'status'" in asked_by(NOBODY, path, {"op": "status"})["error"]


@pytest.mark.parametrize(
    ("shown", "job", "uid"), [("nothing", None, None), ("job", 1, None), ("user", 1, 0)]
)
def test_the_site_says_what_is_seen_of_others(
    short_dir: Path, emulated_gpu: EmulatedGpu, shown: str, job: int | None, uid: int | None
) -> None:
    """Two jobs of two users, as root has registered them."""
    extra = f'[limits]\nholder_shown = "{shown}"\n'
    env = os.environ | emulated_gpu.env
    with Leased(short_dir / "leased", short_dir / "run", env, extra) as leased:
        step = {"op": "register", "nodes": 1, "shards": 1, "gpus": [0]}
        for number, user in ((1, 0), (2, NOBODY)):
            ask(leased.admin_socket, {**step, "job_id": number, "uid": user, "options": "lock:on"})
        environment = leased.env | {"LD_PRELOAD": str(PRELOAD)}
        environment["GPU_LEASE_SOCKET"] = str(tenant_sock(leased))
        # This process has registered both: the last one is what its children are of.
        waits = subprocess.Popen(
            [sys.executable, "-c", WAITS], env=environment, cwd=ROOT, stdout=-1, stdin=-1, text=True
        )
        assert line(waits) == "asks"
        assert line(waits) == "ran"
        answer = asked_by(NOBODY, tenant_sock(leased), {"op": "mine", "job_id": 2})
        assert [h["own"] for h in answer["jobs"][0]["gpus"][0]["holders"]] == [True]
        # Root's process is in job 2 as well, and sees it; to root its holder is another's.
        answer = ask(tenant_sock(leased), {"op": "mine", "job_id": 1})
        holders = answer["jobs"][0]["gpus"][0]["holders"]
        assert [(h["job_id"], h["uid"]) for h in holders] == [
            (None if job is None else 2, None if uid is None else NOBODY)
        ]
        tell(waits)
        waits.communicate(timeout=60)


def test_a_job_that_has_ended_is_still_known_to_its_user(
    tenant: Start, leased: Leased, gpuctl: Ctl
) -> None:
    job = tenant(7, "", "-c", SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')")
    assert output(job) == "ran\n"
    ask(leased.admin_socket, {"op": "job_end", "job_id": 7})
    said = gpuctl("mine", "7")
    assert said.startswith("job 7 has ended\n")
    assert re.search(r"[0-9.]+ s of lease and [0-9.]+ s of waiting in [0-9.]+ s, ", said)
    assert "You have no job on this node that shares a GPU." in gpuctl("mine")


def test_a_shell_in_the_job_gets_what_its_programs_need(tenant: Start, leased: Leased) -> None:
    """As a session that Slurm has adopted into the job, whose environment is sshd's."""
    session = f"""
import os, subprocess, sys
bare = {{n: v for n, v in os.environ.items() if n not in ("LD_PRELOAD", "GPU_LEASE_SOCKET")}}
script = 'eval "$("$0" -m leased.cli.ctl --socket "$1" env)"; exec "$0" -c "$2"'
done = subprocess.run(["sh", "-c", script, sys.executable, {str(tenant_sock(leased))!r},
                       sys.argv[1]], env=bare)
sys.exit(done.returncode)
"""
    code = SET_UP + "say(spin(1000)[0].name); say(os.environ['LD_PRELOAD'])"
    ran, preload = output(tenant(3, "", "-c", session, code)).split()
    assert ran == "CUDA_SUCCESS"
    assert preload.endswith(str(CHECKED))
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    used = next(t for t in tenants if t["job_id"] == 3)["gpus"]
    assert next(iter(used.values()))["lease_s"] > 0


@pytest.fixture
def extern() -> Iterator[Path]:
    """A cgroup such as Slurm's extern step has."""
    with one_with("cgroup.procs", ["freezer", "", "unified"], "step_extern") as made:
        yield made / "step_extern"


def test_a_login_shell_in_the_extern_step_sees_to_it_by_itself(
    tenant: Start, leased: Leased, extern: Path, tmp_path: Path
) -> None:
    command = tmp_path / "gpu-leasectl"
    socket_ = ["--socket", str(tenant_sock(leased))]
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m leased.cli.ctl {shlex.join(socket_)} "$@"\n'
    )
    command.chmod(0o755)
    session = f"""
import os, subprocess, sys
bare = {{n: v for n, v in os.environ.items() if n not in ("LD_PRELOAD", "GPU_LEASE_SOCKET")}}
bare["PATH"] = {str(tmp_path)!r} + ":" + bare["PATH"]
script = ". {ROOT}/packaging/profile.d/gpu-lease.sh; printenv LD_PRELOAD; true"
print("outside", subprocess.check_output(["sh", "-c", script], env=bare, text=True).strip())
with open({str(extern)!r} + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
print("inside", subprocess.check_output(["sh", "-c", script], env=bare, text=True).strip())
with open({str(extern.parent.parent)!r} + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
"""
    outside, inside = output(tenant(3, "", "-c", session)).splitlines()
    assert outside.strip() == "outside"
    assert inside.endswith(str(CHECKED))


def test_a_shell_of_no_sharing_job_gets_nothing(gpuctl: Ctl) -> None:
    assert (gpuctl("env"), gpuctl.error) == ("", "")


def test_libraries_that_are_preloaded_already_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Env(job_id=1, preload="/a b/lib.so", env={"GPU_LEASE_SOCKET": "/run/x"})
    monkeypatch.setenv("LD_PRELOAD", "/other.so")
    assert mine.env_text(answer).splitlines() == [
        "export GPU_LEASE_SOCKET=/run/x",
        "export LD_PRELOAD='/other.so:/a b/lib.so'",
    ]
    answer["preload"] = "/other.so"
    assert "LD_PRELOAD" not in mine.env_text(answer)


@pytest.mark.parametrize(
    "asked", [b"{", b"{}", b'{"op": 1}', b'{"op": "mine", "x": 1}', b'{"op":"mine","job_id":true}']
)
def test_a_question_that_makes_no_sense_is_answered_and_ended(leased: Leased, asked: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(30)
        sock.connect(str(tenant_sock(leased)))
        sock.send(asked)
        answer = json.loads(sock.recv(4096))
        assert not answer["ok"]
        assert answer["error"]
        assert sock.recv(4096) == b""


def test_a_question_is_one_packet_and_short(leased: Leased) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(30)
        sock.connect(str(tenant_sock(leased)))
        sock.send(b'{"op": "mine", "job_id": ' + b" " * 2000 + b"1}")
        assert "more than 1024 bytes" in json.loads(sock.recv(4096))["error"]


def test_where_the_socket_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Namespace(socket=None, config=tmp_path / "gpu-leased.toml")
    monkeypatch.delenv("GPU_LEASE_SOCKET", raising=False)
    assert mine.tenant_socket(chosen) == Path("/run/gpu-leased/tenant.sock")
    chosen.config.write_text('[daemon]\nruntime_dir = "/run/elsewhere"\n')
    assert mine.tenant_socket(chosen) == Path("/run/elsewhere/tenant.sock")
    monkeypatch.setenv("GPU_LEASE_SOCKET", "/of/the/job")
    assert mine.tenant_socket(chosen) == Path("/of/the/job")
    chosen.socket = Path("/given")
    assert mine.tenant_socket(chosen) == Path("/given")


@pytest.fixture
def parts(leased: Leased, gpuctl: Ctl) -> Iterator[Ctl]:
    """Tasks 3 and 4 of the array 20, of which the last one has the array's number, and a part of
    the heterogeneous job 30; all of them are this process's."""
    names = {21: "20_3", 20: "20_4", 31: "30+1"}
    for job_id, name in names.items():
        register(leased.admin_socket, job_id, name=name)
    yield gpuctl
    for job_id in names:
        ask(leased.admin_socket, {"op": "job_end", "job_id": job_id})


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("20_3", ["20_3"]),
        ("21", ["20_3"]),
        ("20", ["20_4", "20_3"]),
        ("30+1", ["30+1"]),
        ("30", ["30+1"]),
    ],
)
def test_jobs_are_named_as_slurm_names_them(parts: Ctl, typed: str, named: list[str]) -> None:
    for op, words in (("mine", "does not use"), ("park", "is parked"), ("unpark", "does not use")):
        found = re.findall(rf"^job (\S+) {words}", parts(op, typed), re.MULTILINE)
        assert sorted(found) == sorted(named), op


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("20_3", "job 20_3 has managed memory"),
        ("21", "job 20_3 has managed memory"),
        ("30+1", "job 30+1 has managed memory"),
        ("20", "job 20 is several jobs here; name one of them"),
        ("20_5", "job 20_5 is not a job of yours that shares a GPU of this node"),
    ],
)
def test_a_job_that_moves_is_named_as_slurm_names_it(parts: Ctl, typed: str, said: str) -> None:
    """Each is refused, since its memory cannot move."""
    parts("move", typed, "--to", "0", code=ExitStatus.REFUSED)
    assert said in parts.error


def test_usage_and_status_name_them_too(parts: Ctl) -> None:
    assert re.findall(r"^(20_[34]|30\+1) ", parts("status"), re.MULTILINE) == [
        *("20_4", "20_3", "30+1")
    ]
    for _ in ("open", "ended"):
        parts("usage", "20_3")
        parts("usage", "20", code=ExitStatus.REFUSED)
        assert "20 is several jobs here: 20_4, 20_3; name one of them" in parts.error
        for job_id in (20, 21):
            ask(parts.leased.admin_socket, {"op": "job_end", "job_id": job_id})
    ended = re.findall(r"^job (\S+) has ended", parts("mine", "20"), re.MULTILINE)
    assert ended == ["20_3", "20_4"]
    log = parts.leased.log.read_text()
    assert "job 20_3 has managed memory" in log
    assert "job 21 " not in log


NO_JOB = "is not a job as squeue shows it, such as 7, 7_3 or 12+1"
NO_JOBS = {
    **dict.fromkeys(["7_", "_3", "0", "job", "4294967296", "0_[1-3]", "0.batch"], NO_JOB),
    "7_[1-3]": "are tasks that have not begun: 7 is all that have, and 7_1 is one",
    "7_3.batch": "is a step: 7_3 is its job, of which usage shows each step",
}


@pytest.mark.parametrize("word", NO_JOBS)
def test_what_is_no_job_is_wrong_usage(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"move": ["--to", "1"], "checkpoint": ["/nowhere"]}
    for op in ("mine", "park", "unpark", "usage", "move", "checkpoint"):
        with pytest.raises(SystemExit) as ended:
            ctl.main([op, word, *more.get(op, [])])
        assert ended.value.code == ExitStatus.USAGE
        assert NO_JOBS[word] in capsys.readouterr().err


def test_a_host_without_a_daemon_is_said_in_words_for_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ctl.main(["--socket", str(tmp_path / "none"), "mine"])
    assert status == ExitStatus.NO_ANSWER
    said = capsys.readouterr().err
    assert "gpu-leased does not answer at" in said
    assert "; ask on the node where your job runs, which squeue shows" in said


def own_jobs(number: int) -> Mine:
    """A job that has so many GPUs and processes, and so many more jobs."""
    gpu: dict[str, Any] = {"index": 0, "holders": [], "quantum_left_s": None, "wanted_bytes": 0}
    gpu |= {"resident_bytes": 0, "lease_s": 1.0, "wait_s": 0.0}
    job: dict[str, Any] = {"job_id": 7, "job": "7", "state": "holds", "stopped": False}
    job |= {"since_s": 2.0, "lock": "auto", "memory": "swap", "quantum_s": 30.0, "reason": None}
    job |= {"parked": None, "clients": number, "gpus": [gpu] * number}
    return cast(Mine, {"jobs": [job], "more": number})


@pytest.mark.parametrize(
    ("number", "its", "more"), [(1, "its GPU", "job"), (2, "its GPUs", "jobs")]
)
def test_words_go_with_their_number(number: int, its: str, more: str) -> None:
    text = mine.text(own_jobs(number))
    assert text.startswith(f"job 7 has had {its} for 2.0 s (")
    assert text.endswith(f"\n\nand {number} more {more}")


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("a move", "has been on its way to another GPU for 2.0 s"),
        ("a checkpoint", "has stood still for a checkpoint for 2.0 s"),
        ("a policy", "is parked by a policy for 2.0 s: none of its memory is on its GPU"),
    ],
)
def test_a_job_is_moved_or_saved_or_parked(by: str, words: str) -> None:
    """Of one that moves, the memory may be on the GPU to which it goes."""
    answer = own_jobs(1)
    answer["jobs"][0]["state"] = "parked"
    answer["jobs"][0]["parked"] = {"since_s": 2.0, "by": by}
    assert mine.text(answer).startswith(f"job 7 {words} (lock:auto")
    also = "it is not parked besides" in mine.park_text(answer)
    assert also == (by != "a policy")


def test_a_terminal_s_edge_cuts_no_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mine, "ask_own", lambda *_: own_jobs(1))
    monkeypatch.setenv("COLUMNS", "60")
    ctl.main(["mine"])
    whole = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ctl.main(["mine"])
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, whole.splitlines())) > 60 >= max(map(len, shown))
    assert shown[1].startswith("  tq:30, ")
    assert " ".join(shown).split() == whole.split()
