"""gpu-leasectl top: status again and again, with what happened in the last minute."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from leased.api.answers import Status
from leased.base.errors import NoAnswer, Refused
from leased.base.words import count
from leased.cli import keys, screen, show
from leased.cli.names import Names
from leased.cli.rates import Rates
from leased.cli.screen import View, duration
from leased.cli.top_state import Order, TopState

FEWEST_JOBS = 5  # rows that notes leave to them

Act = Callable[[Order], str]


class Sampler:
    """Frames: the daemon's status and what has changed since the one before."""

    def __init__(self, ask: Callable[[], Status]):
        self.ask = ask
        self.leases: dict[int, float] = {}
        self.at = 0.0

    def sample(self) -> Status:
        """The status, with lease_share in its tenants.

        NoAnswer: the daemon is not there now.
        """
        answer = self.ask()
        now = time.monotonic()
        leases = {t["job_id"]: screen.had(t, "lease_s") for t in answer["tenants"]}
        for tenant in answer["tenants"]:
            before = self.leases.get(tenant["job_id"])
            had = None if before is None else leases[tenant["job_id"]] - before
            passed = now - self.at
            tenant["lease_share"] = (
                None if had is None or passed <= 0 else round(min(1.0, max(0.0, had / passed)), 3)
            )
        self.leases, self.at = leases, now
        return answer


def samples(
    sampler: Sampler, interval_s: float, wait: Callable[[float], None] | None = None
) -> Iterator[Status | NoAnswer]:
    """One now, then one every so many seconds. NoAnswer is raised for the first only.

    wait: returns at that time (of time.monotonic), or when it will not wait any longer.
    """
    yield sampler.sample()
    due = time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
        if wait is not None:
            wait(due)
        else:
            time.sleep(max(0.0, due - time.monotonic()))
        try:
            yield sampler.sample()
        except NoAnswer as fault:
            yield fault


def line(sample: Status | NoAnswer) -> str:
    """A sample as a line of JSON."""
    said: Mapping[str, object] = (
        {"error": str(sample), "hint": sample.hint} if isinstance(sample, NoAnswer) else sample
    )
    return json.dumps({"time": round(time.time(), 3), **said})


def frame(sample: Status | NoAnswer, view: View, height: int, footer: str) -> RenderableType:
    """A sample in at most so many lines. GPUs and jobs for which there is no room are counted."""
    if isinstance(sample, NoAnswer):
        return Group(Text(sample.sentence(), style="bold red"), Text(footer, style="dim"))
    view.names.learn(tenant["job_id"] for tenant in sample["tenants"])
    gpus, jobs, notes = sample["devices"], sample["tenants"], show.notes(sample)
    room = height - 4  # the head, two heads of tables, the footer
    most = max(1, room - min(len(jobs), 2))
    left = room - min(len(gpus), most)
    told = notes[: max(0, left - min(len(jobs), FEWEST_JOBS))]
    head = (
        f"gpu-leased {sample['version']}, up {duration(sample['uptime_s'])}: "
        f"{count(len(jobs), 'job')} on {count(len(gpus), 'GPU')}, sorted by {view.sort}"
    )
    lines: list[RenderableType] = [
        Text(head, style="bold"),
        screen.gpus(sample, view, most),
        *map(_one_line, told),
    ]
    lines.append(screen.jobs(sample, view, max(1, left - len(told))))
    return Group(*lines, _one_line(Text(footer, style="reverse")))


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


class Screen:
    """A terminal that is redrawn: after each look, and after each key."""

    def __init__(self, console: Console, live: Live, act: Act, names: Names):
        self.console, self.live, self.act = console, live, act
        wide = console.width >= show.MORE_FROM
        self.view = View(names, Rates(), wide=wide, ascii=console.options.ascii_only)
        self.state = TopState()
        self.sample: Status | NoAnswer | None = None

    def show(self, sample: Status | NoAnswer) -> None:
        self.sample = sample
        if not isinstance(sample, NoAnswer) and self.view.rates:
            self.view.rates.take(sample, time.monotonic())
        self.redraw()

    def redraw(self) -> None:
        if self.sample is not None:
            view = replace(self.view, sort=self.state.sort)
            height = self.console.size.height
            self.live.update(frame(self.sample, view, height, self.state.footer), refresh=True)

    def press(self, key: str) -> None:
        order = self.state.press(key)
        if order is not None:
            try:
                self.state.said = self.act(order)
            except Refused as fault:
                self.state.said = fault.sentence()
        self.redraw()


def run(
    ask: Callable[[], Status],
    *,
    once: bool,
    as_json: bool,
    interval_s: float,
    act: Act,
    names: Names,
) -> None:
    """Show until interrupted or q. NoAnswer: no daemon at the start; one that goes later is
    waited for. act: does what was asked for and says what came of it; Refused: it cannot.

    Where standard output is no terminal the frames follow each other.
    """
    with contextlib.closing(names):
        if not (as_json or once) and sys.stdout.isatty():
            _draw(show.console(), ask, interval_s, act, names)
            return
        for sample in samples(Sampler(ask), interval_s):
            if as_json:
                print(line(sample), flush=True)
            elif isinstance(sample, NoAnswer):
                show.say(Text(sample.sentence(), style="bold red"))
            else:
                show.say(show.status(sample, show.usual_view(names)))
            if once:
                return


def _draw(
    console: Console, ask: Callable[[], Status], interval_s: float, act: Act, names: Names
) -> None:
    shown: Screen
    typed: keys.Keys | None

    def wait(due: float) -> None:
        if typed is None:
            time.sleep(max(0.0, due - time.monotonic()))
            return
        for key in typed.before(due):
            shown.press(key)
            if shown.state.over:
                return

    found = samples(Sampler(ask), interval_s, wait)
    first = next(found)  # a fault of it is said on the screen as it was
    with keys.terminal() as typed, Live(console=console, screen=True, auto_refresh=False) as live:
        shown = Screen(console, live, act, names)
        shown.show(first)
        for sample in found:
            if shown.state.over:
                return
            shown.show(sample)
