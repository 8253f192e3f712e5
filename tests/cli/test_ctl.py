"""gpu-leasectl against the real daemon: what it shows, sets, drains, and how it says no."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leased.api.client import ask
from leased.base.errors import NoAnswer, Refused
from leased.base.requests import OF_DEVICE, OF_NODE
from leased.cli import top
from leased.cli.subcommand import ExitStatus
from tests.cli.conftest import Ctl
from tests.conftest import ROOT, Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.store.test_store import REGISTER
from tests.support.programs import SET_UP, line, tell

# wmem_default of a usual kernel: no answer may be larger than a packet.
PACKET = 212_992
HOLDER = SET_UP + "ok(spin(1000)); say('has it'); sys.stdin.readline()\n"
# Keeps the GPU busy without a pause until it is told to stop: 2 s of work are always ahead.
BUSY = (
    SET_UP
    + """
import select
for _ in range(20):
    ok(spin(100_000_000))
say("has it")
while not select.select([sys.stdin], [], [], 0.1)[0]:
    ok(spin(100_000_000))
say("again")
"""
)


@pytest.fixture
def wide(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Ctl]:
    """A node with 8 GPUs."""
    with EmulatedGpu(short_dir / "gpu", devices=8) as gpu:
        env = os.environ | gpu.env
        with Leased(short_dir / "leased", short_dir / "run", env) as leased:
            yield Ctl(leased, capsys)


def register(leased: Leased, job_id: int, options: str = "", **fields: object) -> dict[str, Any]:
    request = REGISTER | {"job_id": job_id, "options": options} | fields
    return ask(leased.admin_socket, request)


# -- set -------------------------------------------------------------------------


def test_settings_survive_a_restart_and_are_given_back(gpuctl: Ctl) -> None:
    usable = gpuctl.device()["usable_bytes"]
    gpuctl("set", "--device", "0", "lock=on", "quantum=5s", "reserve=50%")
    for end in (gpuctl.leased.stop, gpuctl.leased.kill):
        end()
        gpuctl.leased.start()
        device = gpuctl.device()
        assert (device["lock"], device["quantum_s"]) == ("on", 5.0)
        assert device["usable_bytes"] < usable * 0.6
        assert (device["mode"], device["why"]) == ("exclusive", "set by the site: lock on")
    listed = {(s["device"], s["key"], s["value"]) for s in gpuctl.json("status")["settings"]}
    uuid = device["uuid"]
    assert listed == {(uuid, "lock", "on"), (uuid, "quantum", "5s"), (uuid, "reserve", "50%")}
    gpuctl("set", "lock=user", "quantum=user", "reserve=config")
    device = gpuctl.device()
    assert (device["lock"], device["quantum_s"], device["usable_bytes"]) == (None, None, usable)
    assert gpuctl.json("status")["settings"] == []


def test_a_device_goes_before_all_and_all_replaces_devices(wide: Ctl) -> None:
    def locks() -> list[str | None]:
        return [device["lock"] for device in wide.json("status")["devices"]]

    wide("set", "lock=on")
    wide("set", "--device", "3", "lock=user")
    wide("set", "--device", "5", "lock=off")
    wanted = ["on", "on", "on", None, "on", "off", "on", "on"]
    assert locks() == wanted
    wide.leased.kill()
    wide.leased.start()
    assert locks() == wanted
    wide("set", "lock=auto")
    assert locks() == ["auto"] * 8
    wide("set", "lock=user")
    assert locks() == [None] * 8


def test_site_says_at_run_time_what_users_may_choose(gpuctl: Ctl) -> None:
    leased = gpuctl.leased
    gpuctl("set", "user-lock-off=no", "user-oversub=no", "quantum-min=10s", "quantum-max=1m")
    leased.kill()
    leased.start()
    for options, words in {
        "lock:off": "lock:off is not allowed on this site",
        "oversub:on": "oversub:on is not allowed on this site",
        "tq:5": "choose tq between 10s and 60s",
        "tq:90": "choose tq between 10s and 60s",
    }.items():
        with pytest.raises(Refused) as caught:
            register(leased, 1, options)
        assert words in caught.value.sentence()
    # What the site set stays when the file is read again; the rest follows the file.
    ask(leased.admin_socket, {"op": "reload"})
    with pytest.raises(Refused):
        register(leased, 1, "lock:off")
    gpuctl("set", "user-lock-off=config", "quantum-min=user", "quantum-max=config")
    register(leased, 1, "lock:off,tq:500ms")
    assert gpuctl.json("status")["limits"] == {
        "quantum_min_s": 0.03,
        "quantum_max_s": 600.0,
        "user_lock_off": True,
        "user_oversub": False,
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lock=maybe", "lock 'maybe' is not known; use on, off, auto or user"),
        ("quantum=soon", "quantum=soon: soon is not a time; use a time such as 30s, or user"),
        ("quantum=0", "a quantum is from 1ms to 1440m; use a time such as 30s, or user"),
        (
            "reserve=much",
            "much is not an amount; use auto, a share such as 5%, a size such as 2GiB, or config",
        ),
        ("reserve=100%", "leaves nothing of the"),
        ("user-oversub=perhaps", "user-oversub 'perhaps' is not known; use yes, no or config"),
        ("quantum-max=5s", "jobs that ask for nothing would be refused: tq:30s is outside"),
        ("quantum-min=20m", "quantum-min 1200s is above quantum-max 600s"),
        (
            "--device 0 user-oversub=no",
            "user-oversub applies to the whole node; leave --device out",
        ),
        ("--device 9 lock=on", "no device 9; there are 0 (GPU-"),
    ],
)
def test_settings_that_are_refused_change_nothing(kept: Ctl, words: str, sentence: str) -> None:
    # With one that is good beside it: all or nothing.
    answer = kept.json(
        "set", *words.split(" "), *(["quantum=7s"] * ("quantum=" not in words)), code=1
    )
    assert sentence in f"{answer['error']}; {answer['hint']}"
    assert sentence in kept.error
    status = kept.json("status")
    assert status["settings"] == []
    assert status["devices"][0]["quantum_s"] is None


# -- drain -----------------------------------------------------------------------


@pytest.mark.parametrize("words", [["drain", ""], ["resume", ""], ["set", "--device=", "lock=on"]])
def test_an_empty_name_is_no_device(kept: Ctl, words: list[str]) -> None:
    """It is a variable of a script's that is not set; it took all devices out of use."""
    kept(*words, code=ExitStatus.REFUSED)
    assert kept.error.startswith("gpu-leasectl: no device ''; there are 0 (GPU-")
    assert kept.device()["drain"] is None


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [(">&-", 0, ""), (">/dev/full", 1, "gpu-leasectl: not all could be written: No space left")],
)
@pytest.mark.parametrize("words", ["status", "status --json", "mine --json"])
def test_an_output_that_takes_nothing(
    kept: Ctl, words: str, output: str, status: int, said: str
) -> None:
    command = f'exec "$0" -m leased.cli.ctl --config "$1" {words} {output}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(kept.leased.config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == (1 if said else 0)


def test_drain_lets_the_holder_go_on_and_keeps_others_waiting(gpuctl: Ctl, tenant: Start) -> None:
    leased = gpuctl.leased
    leased.config.write_text(leased.config.read_text() + '[limits]\nin_flight = "5s"\n')
    ask(leased.admin_socket, {"op": "reload"})
    holder = tenant(1, "lock:on,tq:600", "-c", BUSY)
    assert line(holder) == "has it"
    gpuctl("drain", "0")
    assert gpuctl.device()["drain"] == "draining"
    assert gpuctl.device()["mode"] == "draining"
    answer = gpuctl.json("drain", "0", "--wait", "--timeout", "0.3", code=ExitStatus.TOO_LATE)
    assert "job 1 still holds it" in answer["error"]
    waiter = tenant(2, "lock:on", "-c", SET_UP + "ok(spin(1000)); say('at last')\n")
    wait_until("the waiter to wait", lambda: gpuctl.state(2) == "waits")
    # The end of the holder's quantum is the end of its lease.
    gpuctl("set", "quantum=100ms")
    assert gpuctl("drain", "0", "--wait") == "GPU 0: drained\n"
    assert gpuctl.device()["drain"] == "drained"
    wait_until("the holder to wait too", lambda: gpuctl.state(1) == "waits")
    assert gpuctl.state(2) == "waits"
    tell(holder)
    assert gpuctl("resume", "0") == "GPU 0: resumed\n"
    assert (line(waiter), line(holder)) == ("at last", "again")
    assert gpuctl.device()["drain"] is None


def test_drained_device_stays_so_over_a_restart_and_holds_up_new_jobs(
    gpuctl: Ctl, tenant: Start
) -> None:
    leased = gpuctl.leased
    gpuctl("drain", "all")
    leased.kill()
    leased.start()
    job = tenant(1, "", "-c", SET_UP + "ok(spin(1000)); say('at last')\n")
    wait_until("the job to wait", lambda: gpuctl.state(1) == "waits")
    assert "GPU 0 is drained: set by the site" in gpuctl("status")
    gpuctl("resume", "0")
    assert line(job) == "at last"
    gpuctl.leased.kill()
    gpuctl.leased.start()
    assert gpuctl.device()["drain"] is None, "one device resumed, though all were drained"


# -- who may ---------------------------------------------------------------------

ASK = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
s.send(sys.argv[2].encode())
print(s.recv(1 << 20).decode())
"""


def ask_as(leased: Leased, request: Mapping[str, object], *groups: int) -> dict[str, Any]:
    """Ask as a user who is not root, with these supplementary groups."""
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", ASK, str(leased.admin_socket), json.dumps(request)],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        user=65534,
        group=65534,
        extra_groups=list(groups),
    )
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_admin_group_counts_as_a_supplementary_group(
    short_dir: Path, emulated_gpu: EmulatedGpu
) -> None:
    group = grp.getgrnam("daemon")
    run_dir = short_dir / "run"
    leased = Leased(short_dir / "leased", run_dir, os.environ | emulated_gpu.env)
    text = leased.config.read_text()
    leased.config.write_text(text.replace("[daemon]\n", '[daemon]\nadmin_group = "daemon"\n'))
    others = [g.gr_gid for g in grp.getgrall() if g.gr_gid not in (0, group.gr_gid)][:3]
    with leased:
        with pytest.raises(subprocess.CalledProcessError):
            ask_as(leased, {"op": "status"}, *others)  # the socket is not open to them
        assert ask_as(leased, {"op": "set", "lock": "on"}, *others, group.gr_gid)["ok"]
        assert ask_as(leased, {"op": "drain"}, group.gr_gid)["ok"]
        assert ask_as(leased, {"op": "resume"}, group.gr_gid)["ok"]
        answer = ask_as(leased, {"op": "job_end", "job_id": 1}, group.gr_gid)
        assert answer["error"] == "only root may ask for job_end"
        # A site may open the socket further: looking is free then, setting is not.
        leased.admin_socket.chmod(0o666)
        assert ask_as(leased, {"op": "status"}, *others)["ok"]
        for request in ({"op": "set", "lock": "on"}, {"op": "drain"}, {"op": "resume"}):
            answer = ask_as(leased, request, *others)
            assert answer["error"] == f"only root and the admin group may ask for {request['op']}"


# -- what requests may have --------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"op": "status", "color": 1}, "status knows no field 'color'"),
        (REGISTER | {"job_id": 1, "gpu": 1}, "register knows no field 'gpu'"),
        (REGISTER | {"job_id": True}, "job_id is True"),
        (REGISTER | {"job_id": 1, "gpus": [[0]]}, r"gpus is \[0\]; it must be an integer"),
        (REGISTER | {"job_id": 1, "gpus": "0"}, "gpus must be a list"),
        (REGISTER | {"job_id": 1, "gpus": [True]}, "gpus is True"),
        (REGISTER | {"job_id": 1, "options": "tq:5\ud800"}, "options must be a text"),
        (REGISTER | {"job_id": 1, "options": "tq:5\n"}, "options must be a text"),
        ({"op": "set", "lock": ["on"]}, "lock must be a text"),
        ({"op": "set", "device": {}, "lock": "on"}, "device must be a text"),
        ({"op": "status", "after": -1}, "after is -1"),
        ({"op": ["status"]}, r"unknown op \['status'\]"),
    ],
)
def test_fields_at_fault_are_named(
    kept_leased: Leased, request_: dict[str, object], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        ask(kept_leased.admin_socket, request_)


OPS = ["register", "job_end", "status", "usage", "set", "drain", "resume"]
NAMES = ["job_id", "uid", "nodes", "shards", "gpus", "options", "device", "after", "more"]
ODD = st.none() | st.booleans() | st.integers(-2, 2**65) | st.floats() | st.text(max_size=300)
VALUES = (
    ODD | st.lists(ODD | st.lists(ODD, max_size=2), max_size=4) | st.dictionaries(st.text(), ODD)
)
GOOD = st.sampled_from(["on", "5s", "all", "0", "yes", "auto", "", "10%", [0], 1])


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    op=st.sampled_from(OPS),
    fields=st.dictionaries(st.sampled_from([*NAMES, *OF_DEVICE, *OF_NODE]), GOOD | VALUES),
)
def test_no_request_is_more_than_refused(
    leased: Leased, op: str, fields: dict[str, object]
) -> None:
    # An answer at all: a fault inside would end the connection without one.
    with contextlib.suppress(Refused):
        try:
            ask(leased.admin_socket, fields | {"op": op})
        except NoAnswer:
            pytest.fail(f"no answer to {op} {fields}")


def test_256_tenants_on_8_devices(wide: Ctl) -> None:
    leased = wide.leased
    for job in range(1, 257):
        register(leased, job, gpus=list(range(8)))
    with pytest.raises(Refused, match="this node has 256 sharing jobs already"):
        register(leased, 257, gpus=[0])
    answer = wide.json("status")
    assert [t["job_id"] for t in answer["tenants"]] == list(range(1, 257))
    assert all(len(t["gpus"]) == 8 for t in answer["tenants"])
    assert "next" not in answer
    first = ask(leased.admin_socket, {"op": "status"})
    assert 0 < len(json.dumps(first)) < PACKET * 3 / 4
    assert "256" in wide("status")
    assert len(json.dumps(answer)) > PACKET, "one packet would have done"


# -- how it says things ------------------------------------------------------------


def test_each_failure_has_its_exit_status(gpuctl: Ctl) -> None:
    assert gpuctl.json("usage", "5", code=ExitStatus.REFUSED)["error"].startswith(
        "job 5 never shared"
    )
    for words in (["set"], ["set", "color=red"], ["set", "lock"], ["usage", "x"], ["dance"]):
        with pytest.raises(SystemExit) as caught:
            gpuctl(*words)
        assert caught.value.code == ExitStatus.USAGE
    with pytest.raises(SystemExit) as caught:
        gpuctl("top", "--interval", "0")
    assert caught.value.code == ExitStatus.USAGE
    gpuctl.leased.stop()
    for words in (
        ["status"],
        ["top", "--once"],
        ["drain", "0"],
        ["usage", "1"],
        ["set", "lock=on"],
    ):
        answer = gpuctl.json(*words, code=ExitStatus.NO_ANSWER)
        assert answer["hint"] == "run systemctl start gpu-leased"
    gpuctl.leased.config.write_text("[demon]\n")
    gpuctl("status", code=ExitStatus.REFUSED)
    assert "[demon] is not known" in gpuctl.error
    with pytest.raises(SystemExit):
        gpuctl("--help")
    assert "3   the daemon does not answer" in gpuctl.capsys.readouterr().out


def test_usage_of_a_job_that_runs_and_that_has_ended(gpuctl: Ctl) -> None:
    register(gpuctl.leased, 5)
    for _ in range(2):
        (used,) = gpuctl.json("usage", "5")["usage"].values()
        assert used["lease_s"] == 0
        assert "GPU-" in gpuctl("usage", "5")
        ask(gpuctl.leased.admin_socket, {"op": "job_end", "job_id": 5})
    assert gpuctl.json("status")["tenants"] == []


def test_status_for_people(gpuctl: Ctl, tenant: Start) -> None:
    job = tenant(7, "lock:on", "-c", HOLDER)
    assert line(job) == "has it"
    text = gpuctl("status")
    assert re.search(r"^0 +Emulated H200… by turns +7 .* jobs' *$", text, re.M), text
    assert re.search(r"^7 +root .* 0 +holds +managed .* on +30 s +1 *$", text, re.M), text
    assert "users may choose a quantum of 0.03 s to 600 s" in text


def test_top_prints_once_if_told_to(kept: Ctl) -> None:
    wait_until("a look by NVML", lambda: kept.device()["busy_percent"] is not None)
    (only,) = kept("top", "--once", "--json").splitlines()
    frame = json.loads(only)
    assert frame["devices"][0]["busy_percent"] == 0, "NVML is there and says so"
    assert abs(frame["time"] - time.time()) < 600
    assert "busy" in kept("top", "--once")


def status_of(lease_s: float) -> dict[str, Any]:
    had = {"gpus": {"GPU-x": {"lease_s": lease_s}}, "resident_bytes": {"GPU-x": 0}}
    return {"devices": [], "tenants": [{"job_id": 7, **had}]}


def test_top_waits_for_a_daemon_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    answers: Iterator[Any] = iter(
        [status_of(1.0), NoAnswer("gone", "start it"), status_of(2.5), status_of(9.0)]
    )

    def ask() -> Any:
        nonlocal now
        now += 3.0
        answer = next(answers)
        if isinstance(answer, NoAnswer):
            raise answer
        return dict(answer)

    found = top.samples(top.Sampler(ask), 1.0)
    shares = []
    for _ in range(4):
        sample = next(found)
        line_ = json.loads(top.line(sample))
        if isinstance(sample, NoAnswer):
            assert (line_["error"], line_["hint"]) == ("gone", "start it")
        else:
            shares.append(line_["tenants"][0]["lease_share"])
    # 1.5 s of the 6 s since the sample before, then never more than the whole.
    assert shares == [None, 0.25, 1.0]

    def nobody() -> Any:
        raise NoAnswer("gone")

    with pytest.raises(NoAnswer):
        next(top.samples(top.Sampler(nobody), 1.0))


def test_output_that_nobody_reads_any_more(kept_leased: Leased) -> None:
    command = [sys.executable, "-m", "leased.cli.ctl", "--config", str(kept_leased.config)]
    with subprocess.Popen(
        [*command, "top", "--json", "--interval", "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=kept_leased.env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(2):
            assert json.loads(process.stdout.readline())["devices"]
        process.stdout.close()
        assert process.wait(60) == ExitStatus.DONE
        assert process.stderr.read() == b""
