"""The loop around what decides, with Slurm's commands as programs of the test."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from leased.placer import alive, slurm_link, tickets_file
from leased.placer.model import NOW, Settings, Ticket, Update, View
from leased.placer.service import Placer, understand
from leased.placer.slurm_link import Failed, Link, command
from leased.slurm import asking, by_pyslurm, json_answers
from leased.slurm.asking import Silent
from leased.slurm.json_answers import Read
from leased.slurm.queue_json import WISHES_MOST

NODE = {
    **{"name": "n1", "state": "idle", "state_flags": [], "partitions": ["gpu"]},
    **{"gres": "gpu:1,shard:4", "cpus": 8, "alloc_cpus": 0, "real_memory": 1000},
}


def queued(number: int, share: str, **fields: object) -> dict[str, object]:
    until = int(time.time()) + 300
    return {
        **{"job_id": number, "array_job_id": 0, "array_task_id": None, "job_state": "PENDING"},
        **{"user_id": 1000, "priority": 9000 - number, "eligible_time": until, "partition": "gpu"},
        **{"tres_per_node": "gres:shard:1", "state_reason": "BeginTime", "comment": ""},
        "admin_comment": f"[gpu-lease-placer 0 {until} {share}]",
        **fields,
    }


class Commands:
    """squeue, sinfo and scontrol: what they print and return, and what scontrol was called with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder = folder
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        self.put("squeue", json.dumps({"jobs": [], "errors": []}))
        self.put("sinfo", json.dumps({"nodes": [NODE], "errors": []}))
        self.script("scontrol", f'printf "%s\\0" "$@" >>{folder}/calls; echo >>{folder}/calls')

    def put(self, name: str, text: str) -> None:
        (self.folder / f"{name}.out").write_text(text)
        self.script(name, f"cat {self.folder}/{name}.out")

    def jobs(self, *jobs: dict[str, object]) -> None:
        self.put("squeue", json.dumps({"jobs": jobs, "errors": []}))

    def script(self, name: str, body: str) -> None:
        beside = self.folder / f"{name}.new"
        # scontrol is asked for its version where there is no slurmd.
        beside.write_text(f'#!/bin/sh\n[ "$1" != -V ] || exit 0\n{body}\n')
        beside.chmod(0o755)
        beside.replace(self.folder / name)

    @property
    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        lines = file.read_text().split("\0\n") if file.exists() else []
        return [line.split("\0") for line in lines if line]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(by_pyslurm, "why_not", lambda _: "these are commands of a test")
    folder = tmp_path / "bin"
    folder.mkdir()
    return Commands(folder, monkeypatch)


def placer(tmp_path: Path, rate: float = 100.0) -> Placer:
    made = Placer(Link({}), Settings(hold_s=300), tmp_path, tmp_path, rate)
    made.last -= 10  # ten seconds' allowance
    return made


def test_a_job_that_fits_is_let_start(commands: Commands, tmp_path: Path) -> None:
    commands.jobs(queued(7, "affinity:a"))
    placer(tmp_path).turn(threading.Event())
    wanted = ["update", "jobid=7", "starttime=now", "reqnodelist=n1", "admincomment="]
    assert commands.calls == [wanted]
    assert (tmp_path / alive.NAME).read_text().endswith(" 300\n")
    assert tickets_file.load(tmp_path / "jobs.json", understand)["7"].node == "n1"


def test_there_are_as_many_changes_as_the_rate_allows(commands: Commands, tmp_path: Path) -> None:
    commands.jobs(*(queued(n, "request:0.01") for n in range(1, 40)))
    made = placer(tmp_path, rate=0.4)
    made.turn(threading.Event())
    assert len(commands.calls) == 4
    made.turn(threading.Event())
    assert len(commands.calls) == 4


def test_a_change_that_is_refused_is_not_tried_at_once_again(
    commands: Commands, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commands.jobs(queued(7, "affinity:a"), queued(8, "affinity:a"))
    commands.script("scontrol", f"echo no such thing >&2; echo x >>{tmp_path}/tried; exit 1")
    made = placer(tmp_path)
    for _ in range(3):
        made.turn(threading.Event())
    assert (tmp_path / "tried").read_text().split() == ["x", "x"]
    assert "job 7: slurmctld refuses a change: no such thing" in caplog.text
    assert made.tickets["7"].let_at == 0


@pytest.mark.parametrize("reserve_s", [0, 60])
def test_a_job_whose_start_is_refused_takes_no_place_from_others(
    commands: Commands, tmp_path: Path, reserve_s: int
) -> None:
    """Though it has waited for longest, and as long as slurmctld refuses it."""
    task = {"array_job_id": 6, "array_task_string": "1-3"}
    commands.jobs(queued(6, "exclusion:a", **task), queued(8, "request:0.1"))
    commands.script(
        "scontrol",
        f'[ "$2" = jobid=6_1 ] && {{ echo denied >&2; exit 1; }}; echo "$2 $3" >>{tmp_path}/done',
    )
    made = placer(tmp_path)
    made.settings = replace(made.settings, reserve_s=reserve_s)
    long_ago = int(time.time()) - 100
    request = understand("exclusion:a")
    assert request is not None
    made.tickets["6"] = Ticket("exclusion:a", request, 1000, until=long_ago + 400, since=long_ago)
    for _ in range(3):
        made.turn(threading.Event())
    assert "jobid=8 starttime=now" in (tmp_path / "done").read_text().splitlines()
    again = made.tickets["6"]
    assert (again.since, again.tries, again.retry_at > long_ago + 100) == (0, 1, True)


def test_an_array_that_no_command_can_name_holds_up_no_other_job(
    commands: Commands, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = ",".join(str(n) for n in range(1, 60_000, 2))
    array = {"array_job_id": 6, "array_task_string": tasks, "tres_per_node": "gres:shard:9"}
    commands.jobs(
        queued(6, "affinity:b", eligible_time=int(time.time()) + 5, **array),
        queued(7, "affinity:a", tres_per_node="gres:shard:9"),
        queued(8, "affinity:a"),
    )
    placer(tmp_path).turn(threading.Event())
    assert [call[1] for call in commands.calls] == ["jobid=8", "jobid=7"]
    assert "its tasks are too many for one command" in caplog.text


def test_where_sinfo_prints_groups_scontrol_is_asked(commands: Commands) -> None:
    commands.put("sinfo", json.dumps({"sinfo": [{"nodes": {"nodes": ["n1"]}}], "errors": []}))
    commands.put("nodes", json.dumps({"nodes": [NODE], "errors": []}))
    shown = f"{commands.folder}/nodes.out"
    commands.script("scontrol", f'[ "$*" = "show nodes --json" ] && exec cat {shown}')
    link = Link({})
    for _ in range(2):
        view, left_out = link.look()
        assert ([node.name for node in view.nodes], left_out) == (["n1"], Read(()))
        commands.script("sinfo", "exit 1")  # it is not asked again


@pytest.mark.parametrize("name", ["squeue", "sinfo"])
@pytest.mark.parametrize(
    "body",
    [
        "echo no slurmctld >&2; exit 1",
        "echo '{}'",
        "echo '[]'",
        "echo '{\"jobs\": 5, \"nodes\": null}'",
        "head -c 99999 /dev/zero",
        "printf '[%.0s' $(seq 100000)",
        'kill -9 $$',
    ],
)  # fmt: skip
def test_answers_that_are_none_change_nothing(
    commands: Commands, tmp_path: Path, name: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    commands.jobs(queued(7, "affinity:a"))
    commands.script(name, body)
    made = placer(tmp_path)
    made.tickets = {"5": Ticket("affinity:a", understand("affinity:a"), 0)}  # type: ignore[arg-type]
    made.turn(threading.Event())
    made.turn(threading.Event())
    assert commands.calls == []
    assert list(made.tickets) == ["5"]
    assert not (tmp_path / alive.NAME).exists()
    assert len(caplog.records) == 1, "it is said once"


def test_a_slurmctld_that_hangs_is_waited_for_so_long(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ASK_S", 0.2)
    monkeypatch.setattr(slurm_link, "CHANGE_S", 0.2)
    commands.script("squeue", "sleep 600")
    with pytest.raises(Silent, match=r"it took longer than 0\.2 s"):
        Link({}).look()
    commands.script("scontrol", "sleep 600")
    with pytest.raises(Silent, match="scontrol was ended"):
        Link({}).change(Update("1", start=NOW))


def test_a_slurmctld_that_falls_silent_leaves_the_rest_undone(
    commands: Commands, tmp_path: Path
) -> None:
    commands.jobs(queued(7, "affinity:a"), queued(8, "affinity:a"))
    commands.script("scontrol", "echo Unable to contact slurm controller >&2; exit 1")
    made = placer(tmp_path)
    made.turn(threading.Event())
    assert [made.tickets[key].let_at for key in "78"] == [0, 0]
    assert tickets_file.load(made.file, understand) == made.tickets


def test_odd_entries_are_left_out(commands: Commands, tmp_path: Path) -> None:
    odd = [
        None,
        5,
        {},
        {"job_id": -1},
        {"job_id": float("inf")},
        queued(3, "affinity:a", user_id=[], priority={"set": 1}),
    ]
    commands.put("squeue", json.dumps({"jobs": [*odd, queued(7, "affinity:a")], "errors": []}))
    nodes = [{"name": "a;b", "state": "idle"}, {"name": "n2"}, NODE, "x"]
    commands.put("sinfo", json.dumps({"nodes": nodes}))
    placer(tmp_path).turn(threading.Event())
    assert [each[1] for each in commands.calls if each[1] == "jobid=7"] == ["jobid=7"]
    assert all(each[3] == "reqnodelist=n1" for each in commands.calls)


EVIL = "\x01" * 4000  # each byte of which is six in JSON
PATHS = ("standard_input", "standard_output", "standard_error", "current_working_directory")


def test_a_user_s_many_jobs_with_odd_paths_keep_nobody_waiting(
    commands: Commands, tmp_path: Path
) -> None:
    """What squeue says of them together is more than is ever kept."""
    evil = json.dumps(queued(1, "affinity:b") | dict.fromkeys(PATHS, EVIL))
    (commands.folder / "evil").write_text(evil + ",")
    (commands.folder / "last").write_text(json.dumps(queued(7, "affinity:a")))
    commands.script(
        "squeue",
        f'cd {commands.folder}; echo \'{{"errors": [], "jobs": [\'; '
        "for n in $(seq 200); do cat evil; done; cat last; echo ']}'",
    )
    made = placer(tmp_path)
    tracemalloc.start()
    made.turn(threading.Event())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.fault == ""
    assert ["update", "jobid=7"] in [call[:2] for call in commands.calls]
    assert 200 * len(evil) > 15 << 20
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "said",
    [
        {"required_nodes": "n" * WISHES_MOST, "features": "x"},
        {"job_resources": [['\\"]}{[', '"job_id": 5', 1, {}]] * 5000},
    ],
)
def test_a_job_of_which_too_much_is_said_is_left_out_and_named(
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: dict[str, object],
) -> None:
    monkeypatch.setattr(json_answers, "STEP", 1 << 12)
    monkeypatch.setattr(json_answers, "ENTRY_MOST", 1 << 16)
    commands.jobs(queued(5, "affinity:b"), queued(6, "affinity:b") | said, queued(7, "affinity:a"))
    made = placer(tmp_path)
    made.turn(threading.Event())
    assert made.fault == "job 6: Slurm says too much of it, so it is left to Slurm"
    assert {call[1] for call in commands.calls} == {"jobid=5", "jobid=7"}


class Clock:
    """Time passes where a test says so, and the loop ends after its first rest."""

    now, rested = 1000.0, 0.0

    def is_set(self) -> bool:
        return self.rested > 0

    def wait(self, seconds: float) -> None:
        self.rested = seconds


@pytest.mark.parametrize(("look_s", "rest_s"), [(0.1, 1.0), (2.0, 6.0), (30.0, 10.0)])
def test_a_long_queue_and_many_changes_make_no_long_rest(
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    look_s: float,
    rest_s: float,
) -> None:
    commands.jobs(*(queued(n, "request:0.01") for n in range(1, 40)))
    made, clock = placer(tmp_path), Clock()
    view, left_out = made.link.look()

    def look() -> tuple[View, Read]:
        clock.now += look_s
        return view, left_out

    def change(_: Update) -> None:
        clock.now += 1.0

    monkeypatch.setattr(made.link, "look", look)
    monkeypatch.setattr(made.link, "change", change)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    made.last = clock.now - 10
    made.run(clock, 1.0)  # type: ignore[arg-type]
    assert clock.now > 1000 + look_s + 10, "changes have been made"
    assert clock.rested == pytest.approx(rest_s)
    assert alive.counts(tmp_path, int(time.time()) + 40), "jobs are put off for it also then"


def test_partitions_that_start_no_jobs_are_asked_for(commands: Commands) -> None:
    shown = f"{commands.folder}/sinfo.out"
    commands.script(
        "sinfo",
        f'[ "$*" = "--json" ] && exec cat {shown}\n'
        '[ "$*" = "-h -a -o %R %a" ] && printf "gpu up\nlow drain\nold down\nx inactive\n\nodd\n"',
    )
    assert Link({}).look()[0].closed == {"old", "x"}


@pytest.mark.parametrize(
    ("text", "placed"),
    [("space:mps", True), ("sm:30%", True), ("sm:100%", False), ("tq:5", False)],
)
def test_a_job_with_a_mode_is_placed(text: str, placed: bool) -> None:
    assert (understand(text) is not None) == placed


def test_users_texts_are_one_argument() -> None:
    odd = "x; $(id) `id` \n starttime=now jobid=1 '\""
    made = command(Update("7_3", start=1_800_000_000, node="n1", comment=odd, admin_comment=odd))
    assert made[:2] == ["scontrol", "update"]
    assert made[2:] == [
        *("jobid=7_3", "starttime=2027-01-15T08:00:00", "reqnodelist=n1"),
        *(f"comment={odd}", f"admincomment={odd}"),
    ]


def test_jobs_are_given_back(commands: Commands, tmp_path: Path) -> None:
    commands.jobs(queued(7, "affinity:a"), queued(8, "tq:5", admin_comment=""))
    made = placer(tmp_path)
    alive.write(tmp_path, int(time.time()), 300)
    assert made.release() == 0
    (call,) = commands.calls
    assert call[1] == "jobid=7"
    assert call[3:] == ["admincomment="]
    assert not (tmp_path / alive.NAME).exists()


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", '{"version": 2, "jobs": {}}', '{"version": 1}'),
        '{"version": 1, "jobs": {"7": {}}}',
        '{"version": 1, "jobs": {"7": {"options": "affinity:a", "user_id": "root"}}}',
        '{"version": 1, "jobs": {"7": {"options": 5, "user_id": 0}}}',
    ],
)
def test_a_damaged_file_is_as_none(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "jobs.json").write_text(text)
    assert tickets_file.load(tmp_path / "jobs.json", understand) == {}
    assert "is lost" in caplog.text


def test_tickets_survive_a_restart(tmp_path: Path) -> None:
    request = understand("affinity:a,request:0.5")
    assert request is not None
    ticket = Ticket(
        "affinity:a,request:0.5", request.of_user(5), 5, node="n1", gpu=2, let_at=9, runs=True
    )
    tickets = {"7": ticket, "9_1": replace(ticket, free=True)}
    tickets_file.save(tmp_path / "jobs.json", tickets)
    assert tickets_file.load(tmp_path / "jobs.json", understand) == tickets


def test_a_refusal_has_slurmctld_s_words(commands: Commands) -> None:
    commands.script("scontrol", "printf 'Access\\033[31m denied\\n' >&2; exit 1")
    with pytest.raises(Failed, match=r"^Access\?\[31m denied$"):
        Link({}).change(Update("1", start=NOW))
