"""gpu-leasectl top: status again and again, with how busy NVML says the GPUs are."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from leased.api.answers import Status, Tenant
from leased.base.errors import NoAnswer
from leased.cli import show


class Sampler:
    """Frames: the daemon's status and what has changed since the one before."""

    def __init__(self, ask: Callable[[], Status]):
        self.ask = ask
        self.leases: dict[int, float] = {}
        self.at = 0.0

    def sample(self) -> Status:
        """Status, with lease_share in its tenants.

        NoAnswer: the daemon is not there now.
        """
        answer = self.ask()
        now = time.monotonic()
        leases = {t["job_id"]: _lease_s(t) for t in answer["tenants"]}
        for tenant in answer["tenants"]:
            before = self.leases.get(tenant["job_id"])
            had = None if before is None else leases[tenant["job_id"]] - before
            passed = now - self.at
            tenant["lease_share"] = (
                None if had is None or passed <= 0 else round(min(1.0, max(0.0, had / passed)), 3)
            )
        self.leases, self.at = leases, now
        return answer


def _lease_s(tenant: Tenant) -> float:
    """Seconds of lease; those of a gang's devices pass together."""
    return float(max((used["lease_s"] for used in tenant["gpus"].values()), default=0.0))


def samples(sampler: Sampler, interval_s: float) -> Iterator[Status | NoAnswer]:
    """One now, then one every so many seconds. NoAnswer is raised for the first only."""
    yield sampler.sample()
    due = time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
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


def frame(sample: Status | NoAnswer) -> RenderableType:
    """A sample as tables."""
    if isinstance(sample, NoAnswer):
        return Text(sample.sentence(), style="bold red")
    percents = {d["uuid"]: d.get("busy_percent") for d in sample["devices"]}
    shares = {t["job_id"]: t.get("lease_share") or 0.0 for t in sample["tenants"]}
    return show.status(sample, percents, shares)


def run(ask: Callable[[], Status], *, once: bool, as_json: bool, interval_s: float) -> None:
    """Show until interrupted. NoAnswer: no daemon at the start; one that goes later is waited for.

    Where standard output is no terminal the frames follow each other.
    """
    console = show.console()
    live = None
    if sys.stdout.isatty() and not once and not as_json:
        live = Live(console=console, screen=True, auto_refresh=False)
    with live or contextlib.nullcontext():
        for sample in samples(Sampler(ask), interval_s):
            if as_json:
                print(line(sample), flush=True)
            elif live is not None:
                live.update(frame(sample), refresh=True)
            else:
                console.print(frame(sample))
            if once:
                return
