"""status and top on a terminal of 80 columns and 24 lines, with a daemon that is made up."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType

from leased.api.answers import Channels, Mps, Share, Status, UnleasedProcess
from leased.base.errors import NoAnswer
from leased.base.words import size
from leased.cli import check, show, show_gpus, show_jobs, top
from leased.cli.checks.finding import FAULT, OK, Finding
from leased.cli.names import Names
from leased.cli.rates import Rates
from leased.cli.screen import View, amounts, bar, duration, queue, ranges
from leased.cli.subcommand import print_answer
from leased.cli.top_state import Order, TopState
from tests.cli.fake_status import CHAIN, GIB, WHY, names, squeue, status

WIDTH, HEIGHT = 80, 24


def lines(shown: RenderableType, width: int = WIDTH) -> list[str]:
    """What stands on the terminal."""
    console = Console(width=width, height=HEIGHT, file=io.StringIO(), highlight=False)
    console.print(shown)
    found: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in found.splitlines()]


def view(*seen: tuple[float, Status], sort: str = "state") -> View:
    rates = Rates()
    for now, answer in seen:
        rates.take(answer, now)
    return View(names(), rates, sort)


def row(shown: list[str], job: int) -> list[str]:
    return next(line for line in shown if line.startswith(f"{job} ")).split()


def print_status() -> None:
    print_answer(Namespace(json=False), None, lambda: show.status(status(), View(names())))


def print_check() -> None:
    findings = [Finding("gres", OK, "short"), Finding("lock", FAULT, "long " * 40, "a remedy")]
    print_answer(Namespace(json=False), None, lambda: check.table(findings))


def print_top() -> None:
    top.run(status, once=True, as_json=False, interval_s=1.0, act=str, names=names())


@pytest.mark.parametrize("shows", [print_status, print_check, print_top])
def test_no_line_of_a_file_ends_in_blanks(
    shows: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    shows()
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.endswith(" ")] == []
    assert WIDTH < max(map(len, shown)) <= show.WIDE


# -- status ------------------------------------------------------------------------------


def test_status_fits_the_terminal() -> None:
    shown = lines(show.status(status(), View(names())))
    assert len(shown) <= HEIGHT
    assert max(map(len, shown)) <= WIDTH
    text = " ".join(" ".join(shown).split())
    assert f"jobs 100, 101, 102, 103 have swapped memory: {WHY}" in text
    assert "may turn the lock off" in text
    assert row(shown, 102) == [
        *("102", "ann", "train-102", "0", "waits", "swap", "40.0", "GiB"),
        *("42.0", "s", "17", "min", "2"),
    ]
    gpu = next(line for line in shown if line.startswith("0 "))
    assert gpu.split() == [
        *("0", "H200", "by", "turns", "100", "102", "42.5", "s", "█████░", "180/138", "GiB"),
        *("97%", "jobs'"),
    ]


def test_a_node_without_jobs_says_so_and_nothing_else() -> None:
    answer = status(jobs=0)
    for device in answer["devices"]:
        device["mode"], device["why"] = "shared", "the jobs' memory fits together"
    shown = lines(show.status(answer, View(names())))
    assert shown[-1] == show.NO_JOB
    assert not [line for line in shown if line.startswith(("GPU 0 is", "job "))]
    answer["devices"][0]["lock"] = "off"
    answer["devices"][0]["why"] = "set by the site: lock off"
    shown = lines(show.status(answer, View(names())))
    assert [line for line in shown if line.startswith("GPU ") and " is " in line] == [
        "GPU 0 is shared, side by side: set by the site: lock off"
    ]


def test_what_is_said_of_hundreds_of_jobs_is_said_once() -> None:
    answer = status(jobs=256, gpus=4)
    share: Share = {"request": 0.01, "limit": 1.0, "limited_s": None, "turn_s": None}  # type: ignore[typeddict-item]
    share["lacking"] = "too much is requested"
    refused: Channels = {"state": "refused", "why": "of its driver", "processes": 1}  # type: ignore[typeddict-item]
    for tenant in answer["tenants"]:
        tenant["share"], tenant["job_class"], tenant["sm"] = share, "offline", 0.3
        tenant["channels"] = {**refused, "given_up": 0}
        tenant["space"] = "mps" if "GPU-3" in tenant["gpus"] else "time"
    lost = [tenant["job"] for tenant in answer["tenants"]]
    mps: Mps = {"why": None, "together": "any", "ended": 0, "faults": 1, "lost": lost}
    answer["devices"][3]["mps"] = mps
    said = [str(note) for note in show.notes(answer)]
    assert max(map(len, said)) < 300
    assert len(said) < 20
    assert "GPU 1: jobs 101, 105, 109, 113, 117, 121 and 58 more are offline" in said
    answer["tenants"] = answer["tenants"][:1]
    assert "GPU 0: job 100 is offline" in [str(note) for note in show.notes(answer)]


def moved(answer: Status) -> Status:
    """Job 100 has moved from GPU 0 to GPU 1, after 30 s of lease there."""
    tenant = answer["tenants"][0]
    tenant["resident_bytes"] = {"GPU-1": GIB}
    tenant["gpus"]["GPU-1"] = {**tenant["gpus"]["GPU-0"], "lease_s": 30.0, "wait_s": 7.0}
    return answer


def test_a_job_that_has_moved_is_on_the_gpu_that_it_has_now() -> None:
    answer = moved(status(jobs=1))
    tenant, (left, has) = answer["tenants"][0], answer["devices"]
    share: Share = {"request": 0.3, "limit": 1.0, "limited_s": None, "lacking": None}  # type: ignore[typeddict-item]
    share["turn_s"] = None
    tenant["share"], tenant["job_class"] = share, "online"
    tenant["space"], tenant["sm"] = "mps", 0.3
    left["mode"] = has["mode"] = "shared"
    for device in (left, has):
        device["mps"] = {"why": None, "together": "any", "ended": 0, "faults": 0, "lost": []}
    shown = lines(show.status(answer, View(names())))
    # What it has had of both, one after the other.
    assert row(shown, 100)[3:] == [
        *("1", "holds", "swap", "1.0", "GiB", "70.0", "s", "7.0", "s", "0"),
    ]
    said = [str(note) for note in show.notes(answer)]
    assert [one for one in said if one.startswith("GPU 0 is shared, side by side")] == []
    assert [one for one in said if "GPU 0" in one and "100" in one] == []
    assert len([one for one in said if "GPU 1" in one and "100" in one]) == 3
    assert "job 100 has moved; Slurm counts it where it began" in said


def test_the_lease_of_a_job_that_has_moved_goes_on() -> None:
    """It had more of the GPU that it left than it has of the other one."""
    answers = [moved(status(jobs=1)) for _ in range(2)]
    answers[1]["tenants"][0]["gpus"]["GPU-1"]["lease_s"] += 9.0
    asked = iter(answers)
    sampler = top.Sampler(lambda: next(asked))
    sampler.sample()
    (tenant,) = sampler.sample()["tenants"]
    assert tenant["lease_share"] == 1.0


@pytest.mark.parametrize(
    ("by", "word"), [("a move", "moves"), ("a checkpoint", "saves"), ("user 0", "parked")]
)
def test_a_job_that_is_moved_or_saved_is_not_said_to_be_parked(by: str, word: str) -> None:
    answer = status(jobs=1)
    answer["tenants"][0]["state"] = "parked"
    answer["tenants"][0]["parked"] = {"since_s": 0.5, "by": by}
    shown = lines(show.status(answer, View(names())))
    assert f" 0   {word} " in next(line for line in shown if line.startswith("100 "))


def test_a_wide_terminal_shows_what_jobs_asked_for() -> None:
    shown = lines(show.status(status(), View(names(), wide=True)), 160)
    assert row(shown, 102)[-4:] == ["auto", "60", "s", "1"]
    assert all(title in " ".join(shown) for title in ("quantum", "processes"))


def test_gpus_of_which_the_same_is_to_be_said_are_named_together() -> None:
    answer = status(16, 8)
    for index in (0, 2):
        answer["devices"][index]["mode"], answer["devices"][index]["why"] = "drained", "by root"
    answer["devices"][5]["why"] = "another reason"
    said = [str(note) for note in show.notes(answer) if str(note).startswith("GPU")]
    why = answer["devices"][1]["why"]
    assert said == [
        "GPUs 0,2 are drained: by root",
        f"GPUs 1,3-4,6-7 are shared, by turns: {why}",
        "GPU 5 is shared, by turns: another reason",
    ]


def on_nodes() -> Status:
    """Job 100 is on two nodes, as its first one sees it; job 101 as another one does."""
    made = status()
    first, second = made["tenants"][:2]
    why = "gpu-leased has not answered on b"
    first["on_nodes"] = {"nodes": {"a": "runs", "b": None}, "why": why}
    second["on_nodes"] = {"nodes": {"b": None, "a": None}, "why": None}
    return made


def test_each_node_of_a_job_is_named_with_what_is_known() -> None:
    assert show_jobs.nodes(on_nodes()) == [
        "job 100 is on several nodes: a (runs), b; gpu-leased has not answered on b",
        "job 101 is on several nodes: b, a",
    ]
    assert show_jobs.nodes(status()) == [], "of older daemons too"


def test_many_nodes_are_told_by_what_the_job_does_there() -> None:
    made = status()
    nodes: dict[str, str | None] = {f"n{n}": "runs" if n % 2 else "waits" for n in range(64)}
    made["tenants"][0]["on_nodes"] = {"nodes": nodes, "why": None}
    (line,) = show_jobs.nodes(made)
    assert "n0, n2, n4, n6, n8, n10 and 26 more (waits), n1, n3" in line
    assert len(line) < 200


def test_status_and_top_say_on_which_nodes_a_job_is() -> None:
    said = [str(text) for text in show.notes(on_nodes())]
    assert all(line in said for line in show_jobs.nodes(on_nodes()))


def test_faults_stand_before_the_rest() -> None:
    answer = status()
    answer["store_fault"] = "usage cannot be written: disk full"
    assert str(show.notes(answer)[0]) == "usage cannot be written: disk full"


@pytest.mark.parametrize("letter", ["u", "漢"])
def test_the_name_of_a_user_without_a_lease_is_cut(letter: str) -> None:
    stray = UnleasedProcess(
        job_id=100, step="batch", uid=1, pid=7, command="sh", device="GPU-0", bytes=3 * GIB
    )
    stray["user"] = letter * 200
    answer = status()
    answer["strays"] = {"now": [stray]}
    said = next(str(note) for note in show.notes(answer) if "no lease" in str(note))
    assert said.endswith(f"user {letter * 31}…, job 100.batch) has 3.0 GiB of GPU 0")


def odd(jobs: int = 8, gpus: int = 4) -> Status:
    """GPUs that are drained, about to be, and faulty; jobs of long numbers, one suspended, one on
    all GPUs."""
    answer = status(jobs, gpus)
    for device, mode in zip(answer["devices"], ("drained", "draining", "faulty")):
        device["mode"], device["why"] = mode, "by root: " + "why " * 50
    answer["devices"][-1]["name"] = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    answer["devices"][-1]["usable_bytes"] = 0
    for tenant in answer["tenants"]:
        tenant["job"] = f"{4294967000 + tenant['job_id']}_{tenant['job_id']}"
        tenant["uid"] = 4294967293
    answer["tenants"][0]["stopped"] = True
    gang = answer["tenants"][1]
    for device in answer["devices"]:
        gang["gpus"][device["uuid"]] = gang["gpus"]["GPU-1"]
        gang["resident_bytes"].setdefault(device["uuid"], 0)
    return answer


def long_names(answer: Status) -> Names:
    jobs = {tenant["job_id"]: "n" * 200 for tenant in answer["tenants"]}
    return Names(lambda _: squeue([]), users={4294967293: "u" * 200}, jobs=jobs)


@pytest.mark.parametrize(("jobs", "gpus"), [(8, 4), (256, 16)])
@pytest.mark.parametrize("live", [True, False])
def test_names_are_cut_and_figures_are_not(jobs: int, gpus: int, live: bool) -> None:
    answer = odd(jobs, gpus)
    seen = View(long_names(answer), view((0.0, answer)).rates if live else None)
    shown = lines(top.frame(answer, seen, HEIGHT, "") if live else show.status(answer, seen))
    assert max(map(len, shown)) <= WIDTH
    heads = [at for at, line in enumerate(shown) if line.startswith(("GPU name", "job  "))]
    titles = " ".join(shown[at] for at in heads)
    for title in ("GPU", "mode", "left", "busy", "state", "memory", "on GPU", "lease", "waited"):
        assert title in titles
    rows = {line.split()[0]: line for line in shown[heads[0] + 1 : heads[0] + 1 + gpus]}
    assert list(rows) == [str(index) for index in range(gpus)]
    assert [rows[str(n)].split()[2] for n in range(3)] == ["drained", "draining", "faulty"]
    assert (" +7 " in rows["0"]) == (jobs == 256)
    assert "180 GiB/0" in rows[str(gpus - 1)]
    first, second = (line for line in shown[heads[1] + 1 :][:2])
    assert [first.split()[0], second.split()[0]] == ["4294967100_100", "4294967101_101"]
    assert "stopped swap" in first
    assert "24.0 GiB 40.0 s  0.0 s" in first
    assert f" 0-{gpus - 1} " in second


# -- top ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "gpus"), [(0, 30), (1, 64), (256, 64)])
def test_more_gpus_than_lines_leave_room_for_jobs_and_the_footer(jobs: int, gpus: int) -> None:
    answer = status(jobs, gpus)
    shown = lines(top.frame(answer, view((0.0, answer)), HEIGHT, TopState().footer))
    assert len(shown) <= HEIGHT
    assert shown[-1].startswith("q quit")
    heads = [at for at, line in enumerate(shown) if line.startswith(("GPU name", "job "))]
    left_out = gpus - (heads[1] - heads[0] - 2)
    assert shown[heads[1] - 1] == f"+{left_out} more"
    assert sum(line.startswith("100 ") for line in shown) == min(jobs, 1)


def test_memory_by_shards_is_one_line_however_many_jobs_there_are() -> None:
    answer = status(256, 1)
    answer["devices"][0]["mem_per_shard_bytes"] = GIB
    for n, each in enumerate(answer["tenants"]):
        each["total_bytes"] = {"GPU-0": (1 + n % 50) * GIB}
    (line,) = show_gpus.fences(answer)
    head = "a shard of GPU 0 stands for 1.0 GiB of its memory"
    assert line == f"{head}: its jobs may have 1.0 GiB to 50.0 GiB"


@pytest.mark.parametrize(("jobs", "gpus"), [(0, 1), (4, 2), (40, 2), (256, 8)])
def test_a_frame_fits_the_terminal(jobs: int, gpus: int) -> None:
    answer = status(jobs, gpus)
    shown = lines(top.frame(answer, view((0.0, answer)), HEIGHT, TopState().footer))
    assert len(shown) <= HEIGHT
    assert max(map(len, shown)) <= WIDTH
    assert shown[-1].startswith("q quit   s sort by job   d drain a GPU")
    assert sum(line[:1] in "01234567" for line in shown) >= gpus
    listed = sum(line.startswith(("1", "2", "3")) and "train-" in line for line in shown)
    if listed < jobs:
        assert shown[-2].startswith(f"+{jobs - listed} more")
        assert listed >= 4


def test_a_narrow_top_shows_what_a_search_of_a_chain_found() -> None:
    answer = status(40, 2)
    answer["devices"][1]["chain"] = CHAIN
    shown = lines(top.frame(answer, view((0.0, answer)), HEIGHT, TopState().footer))
    (found,) = (line for line in shown if line.startswith("GPU 1: chain video"))
    assert found.startswith(
        "GPU 1: chain video is 10.5% faster divided than plain (6 of at most 22"
    )


def test_the_last_minute_is_shown() -> None:
    before, after = status(), status(later=30.0)
    shown = lines(top.frame(after, view((0.0, before), (30.0, after)), HEIGHT, ""))
    assert [row(shown, job)[-1] for job in (100, 102)] == ["100%", "0%"]
    gpu = next(line for line in shown if line.startswith("0 "))
    assert gpu.endswith("97%    4/min"), "one holder got it twice in half a minute"


def test_anything_older_than_a_minute_does_not_count() -> None:
    rates = Rates()
    for now in range(0, 300, 10):
        rates.take(status(later=min(now, 100.0)), float(now))
    assert rates.jobs[100].lease == 0.0
    rates.take(status(later=130.0), 300.0)
    assert rates.jobs[100].lease == pytest.approx(0.5)


def test_a_job_that_was_requeued_begins_anew() -> None:
    rates = Rates()
    rates.take(status(later=50.0), 0.0)
    rates.take(status(), 10.0)
    assert rates.jobs[100].lease == 0.0


@pytest.mark.parametrize(
    ("sort", "first"), [("state", 100), ("job", 100), ("lease", 100), ("wait", 102)]
)
def test_jobs_are_sorted(sort: str, first: int) -> None:
    before, after = status(8), status(8, later=30.0)
    seen = view((0.0, before), (30.0, after), sort=sort)
    shown = lines(top.frame(after, seen, HEIGHT, ""))
    listed = [int(line.split()[0]) for line in shown if "train-" in line]
    assert listed[0] == first
    assert len(listed) == 8


def test_a_daemon_that_is_gone_is_said() -> None:
    gone = NoAnswer("gpu-leased does not answer", "run systemctl start gpu-leased")
    shown = lines(top.frame(gone, view(), HEIGHT, "q quit"))
    assert shown == ["gpu-leased does not answer; run systemctl start gpu-leased", "q quit"]


def test_a_terminal_without_other_characters_has_bars_too() -> None:
    shown = show.status(status(), View(names(), ascii=True))
    assert "#####." in "\n".join(lines(shown))


# -- words -------------------------------------------------------------------------------


def test_amounts_and_times_are_short() -> None:
    assert [bar(part) for part in (-1, 0, 0.5, 2)] == ["░░░░░░", "░░░░░░", "███░░░", "██████"]
    assert amounts(180 * GIB, 138 * GIB) == "180/138 GiB"
    assert amounts(GIB // 2, 8 * GIB) == "0.5/8.0 GiB"
    assert amounts(0, 0) == "0 B/0"
    assert [duration(each) for each in (None, 0.0, 99.9, 100, 600, 6000, 1e6)] == [
        *("-", "0.0 s", "99.9 s", "100 s", "10 min", "2 h", "278 h")
    ]
    queues = [queue(each) for each in ([], ["1"], ["1_3", "2"], ["1", "2", "3"])]
    assert queues == ["-", "1", "1_3,2", "1 +2"]
    assert queue(["8000100_12", "8000100_13", "3"]) == "800010… +2"
    assert queue(["8000100_12", "8000100_13"]) == "800010… +1"
    assert [ranges(each) for each in ([], [3], [0, 1, 2, 5, 7, 8])] == ["", "3", "0-2,5,7-8"]
    assert [size(n) for n in (0, 1023, 1536)] == ["0 B", "1023 B", "1.5 KiB"]


# -- keys --------------------------------------------------------------------------------


def pressed(keys: str) -> tuple[TopState, list[Order]]:
    state = TopState()
    orders = [order for key in keys if (order := state.press(key))]
    return state, orders


def test_a_gpu_is_drained_after_it_was_asked_twice() -> None:
    state, orders = pressed("d0\r")
    assert orders == []
    why = "its holder keeps its quantum, then no job gets it"
    assert state.footer == f"drain GPU 0? ({why}) y/n"
    assert len(state.footer) <= 80
    assert pressed("d0\ry")[1] == [Order("drain", "0")]
    assert pressed("rall\ry")[1] == [Order("resume", "all")]


@pytest.mark.parametrize("keys", ["d0\rn", "d0\r\r", "d\r", "d0\x1by", "y", "d0\x7f\ry", "d!\ry"])
def test_anything_else_drains_nothing(keys: str) -> None:
    assert pressed(keys)[1] == []


def test_s_goes_through_the_orders_and_q_ends() -> None:
    assert [pressed("s" * n)[0].sort for n in range(6)] == [
        *("state", "job", "lease", "wait", "memory", "state")
    ]
    assert pressed("q")[0].over
    assert not pressed("dq")[0].over, "a name is being typed"
