"""status and top on a terminal of 80 columns and 24 lines, with a daemon that is made up."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from leased.api.answers import Status
from leased.base.errors import NoAnswer
from leased.base.words import size
from leased.cli import show, top
from leased.cli.rates import Rates
from leased.cli.screen import View, amounts, bar, duration, queue
from leased.cli.top_state import Order, TopState
from tests.cli.fake_status import GIB, WHY, status
from tests.cli.names import names

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


def test_a_wide_terminal_shows_what_jobs_asked_for() -> None:
    shown = lines(show.status(status(), View(names(), wide=True)), 160)
    assert row(shown, 102)[-4:] == ["auto", "60", "s", "1"]
    assert all(title in " ".join(shown) for title in ("quantum", "processes"))


def test_faults_stand_before_the_rest() -> None:
    answer = status()
    answer["store_fault"] = "usage cannot be written: disk full"
    assert str(show.notes(answer)[0]) == "usage cannot be written: disk full"


# -- top ---------------------------------------------------------------------------------


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
    assert amounts(0, 0) == "0/0 B"
    assert [duration(each) for each in (None, 0.0, 99.9, 100, 600, 6000, 1e6)] == [
        *("-", "0.0 s", "99.9 s", "100 s", "10 min", "2 h", "278 h")
    ]
    assert [queue(each) for each in ([], ["1"], ["1_3", "2"], ["1", "2", "3"])] == [
        "-",
        "1",
        "1_3,2",
        "1 +2",
    ]
    assert size(0) == "0 B"


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
