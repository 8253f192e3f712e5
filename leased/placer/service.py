"""gpu-lease-placer: the loop that looks, decides and changes jobs, and the command line."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from leased import __version__
from leased.admin.label_check import request_of
from leased.base.errors import Refused
from leased.base.only_one import only_one
from leased.base.service_manager import notify
from leased.base.words import count
from leased.config import config, options
from leased.config.options import Resolved
from leased.matching import model
from leased.node import small_service
from leased.node.small_service import CANNOT_RUN, NOT_CONFIGURED
from leased.placement.api import Request
from leased.placer import alive, tickets_file
from leased.placer.decide import decide, releases
from leased.placer.ending import LastGiven
from leased.placer.known_profiles import KnownProfiles
from leased.placer.known_rules import KnownRules
from leased.placer.model import NOW, Settings, Ticket, Update
from leased.placer.putting_off import tried_in_vain
from leased.placer.reserving import Reserved
from leased.placer.slurm_link import Failed, Link
from leased.placer.turn import Change, Turn
from leased.slurm.asking import Silent
from leased.slurm.json_answers import Read

PROGRAM = "gpu-lease-placer"

log = logging.getLogger(PROGRAM)

TICKETS = "jobs.json"
RELEASE_S = 60.0  # giving all jobs back to Slurm takes at most so long
REFUSED_S = 60.0  # after slurmctld refused a change of a job, the job is left alone for so long
NAMED = 8  # jobs of which Slurm says too much
PLACING = "placing jobs"  # the status that the service manager is told
RESTS = 3  # the loop rests at least this many times as long as it has asked and decided
REST_S = 10.0  # but no longer: users decide how much there is to ask for


def understand(text: str) -> Request | None:
    """What a job with these options asks of a GPU; None: it has neither labels, a chain, a request,
    a class nor a mode."""
    try:
        said = options.parse(text)
    except Refused:
        return None
    request = request_of(Resolved.of(said, options.PLAIN))
    mode = said.space is not None or (said.sm is not None and said.sm < 1)
    placed = request.has_labels or request.share or request.job_class != options.NONE
    return request if placed or mode else None


class Placer:
    """link: to slurmctld. state: the folder of what is remembered. runtime: the folder of the sign
    of life. rate: how many changes it makes in a second."""

    def __init__(self, link: Link, settings: Settings, state: Path, runtime: Path, rate: float):
        self.link = link
        self.settings = settings
        self.file = state / TICKETS
        self.runtime = runtime
        self.rate = rate
        self.tickets: dict[str, Ticket] = tickets_file.load(self.file, understand)
        self.saved: dict[str, Ticket] = dict(self.tickets)
        self.refused: dict[str, float] = {}  # when slurmctld refused to change a job, monotonic
        self.rules = KnownRules()
        self.given = LastGiven()
        self.profiles = KnownProfiles(link.env)
        self.kept = ""  # for whom a node's GPU is kept, in words
        self.fault = ""
        self.allowance = 0.0
        self.last = time.monotonic()

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Place jobs until `stop` is set."""
        while not stop.is_set():
            took = self.turn(stop)
            stop.wait(max(interval_s, min(RESTS * took, REST_S)))

    def turn(self, stop: threading.Event) -> float:
        """Ask Slurm once, and make the changes that follow. Returns how many seconds it has asked
        and decided: for the changes there is the rate."""
        began = decided = time.monotonic()
        try:
            view, left_out = self.link.look()
            alive.write(self.runtime, int(time.time()), self.settings.hold_s)
            view = self.profiles.added(self.rules.added(self.given.added(view)))
            decision = decide(view, self.tickets, self.settings, understand)
            self.tickets = decision.tickets
            self._save()
            decided = time.monotonic()
            self._say_reserved(decision.reserved)
            self._make_all(list(self._affordable(decision)), stop)
            self._say_left_out(left_out)
        except (Silent, OSError) as fault:
            self._say(str(fault))
        return (decided if decided > began else time.monotonic()) - began

    def _affordable(self, decision: Turn) -> Iterator[Change]:
        """As many changes as the rate allows; a quarter of them is kept for jobs that can start."""
        now = time.monotonic()
        self.allowance = min(self.allowance + (now - self.last) * self.rate, 10 * self.rate)
        self.last = now
        self.refused = {key: at for key, at in self.refused.items() if now - at < REFUSED_S}
        urgent = [c for c in decision.urgent if c[1] not in self.refused]
        starts = [c for c in decision.starts if c[1] not in self.refused]
        words = [c for c in decision.words if c[1] not in self.refused]
        kept = min(len(starts), max(1, int(self.allowance / 4)))
        for change in [*starts[:kept], *urgent, *starts[kept:], *words]:
            if self.allowance < 1:
                return
            self.allowance -= 1
            yield change

    def _make_all(self, changes: Sequence[Change], stop: threading.Event) -> None:
        """Make the changes. Each is remembered before it is made: if the placer is killed in
        between, the next one finds a job that should have started and has not, and puts it off
        again. Silent: slurmctld does not answer any more."""
        before = dict(self.tickets)
        for _, key, ticket in changes:
            self._remember(key, ticket)
        self._save()
        left = list(changes)
        try:
            while left and not stop.is_set():
                update, key, _ = left[0]
                if not self._make(update, key):
                    self._remember(key, before.get(key))
                    if update.start == NOW:
                        self._try_later(key)
                del left[0]
        finally:
            for _, key, _ in left:
                self._remember(key, before.get(key))
            self._save()

    def _make(self, update: Update, key: str) -> bool:
        """Make one change. Returns whether slurmctld has accepted it."""
        try:
            self.link.change(update)
        except Failed as fault:
            self.refused[key] = time.monotonic()
            log.warning("job %s: slurmctld refuses a change: %s", update.job, fault)
            return False
        log.info("job %s: %s", update.job, _told(update))
        return True

    def _try_later(self, key: str) -> None:
        """slurmctld has not let the job start, or the task: no place is taken for it meanwhile."""
        whole = key if key in self.tickets else key.partition("_")[0]
        if whole in self.tickets:
            now = int(time.time())
            self.tickets[whole] = tried_in_vain(self.tickets[whole], now, self.settings)

    def _remember(self, key: str, ticket: Ticket | None) -> None:
        if ticket is None:
            self.tickets.pop(key, None)
        else:
            self.tickets[key] = ticket

    def _save(self) -> None:
        if self.tickets != self.saved:
            tickets_file.save(self.file, self.tickets)
            self.saved = dict(self.tickets)

    def _say(self, fault: str) -> None:
        """Log a fault when it begins and when it ends."""
        if fault != self.fault:
            log.warning("%s", fault or "slurmctld answers again, and all is understood")
            notify(f"STATUS={fault or PLACING}")
        self.fault = fault

    def _say_left_out(self, left_out: Read) -> None:
        if left_out.too_long:
            named = ", ".join(left_out.too_long[:NAMED])
            more = " and others" if len(left_out.too_long) > NAMED else ""
            self._say(f"job {named}{more}: Slurm says too much of it, so it is left to Slurm")
        else:
            odd = left_out.not_understood
            self._say(f"jobs or nodes that could not be understood: {odd}" if odd else "")

    def _say_reserved(self, reserved: Reserved | None) -> None:
        """Log for whom a node's GPU is kept, when that changes."""
        kept = f"job {reserved.job.label}: {reserved.node} is kept for it" if reserved else ""
        if kept and kept != self.kept:
            log.info("%s", kept)
        self.kept = kept

    def release(self) -> int:
        """Give all jobs back to Slurm. Returns how many were not; they begin by themselves
        later."""
        alive.remove(self.runtime)
        end = time.monotonic() + RELEASE_S
        view, _ = self.link.look()
        changes = releases(view, self.tickets, understand)
        try:
            for done, (update, key, ticket) in enumerate(changes):
                if time.monotonic() > end:
                    return len(changes) - done
                if self._make(update, key):
                    self._remember(key, ticket)
        finally:
            self._save()
        return 0


def _told(update: Update) -> str:
    parts = [
        f"on {update.node}" if update.node else "",
        "may start" if update.start == 0 else "",
        "put off" if update.start else "",
    ]
    return f"{update.why} ({', '.join(filter(None, parts)) or 'its comments'})"


def placer_of(settings: config.Config) -> Placer:
    """Refused: a folder cannot be used."""
    wanted = settings.placer
    for folder in (wanted.state_dir, wanted.runtime_dir):
        if not folder.is_dir():
            raise Refused(
                f"{folder} is not a directory", "start the service by its unit, or make it"
            )
    env = {"SLURM_CONF": settings.slurm_conf} if settings.slurm_conf else {}
    return Placer(
        Link(env),
        Settings(
            hold_s=max(1, wanted.hold_ns // 10**9),
            reserve_s=-(-wanted.reserve_after_ns // 10**9),
            model=model.read(model.SHIPPED.read_text()),
        ),
        wanted.state_dir,
        wanted.runtime_dir,
        wanted.rate,
    )


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-lease-placer",
        description="Decides on which node pending jobs with labels or shares fit, and lets them "
        "start there. Runs on slurmctld's host, as SlurmUser.",
    )
    config.add_option(parser)
    parser.add_argument(
        "--release",
        action="store_true",
        help="give all jobs that wait for the placer back to Slurm, and end",
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main() -> int:
    chosen = make_parser().parse_args()
    stop = small_service.begin(log)
    try:
        settings = config.load(chosen.config)
        placer = placer_of(settings)
    except Refused as fault:
        print(f"gpu-lease-placer: {fault.sentence()}", file=sys.stderr)
        return NOT_CONFIGURED
    if chosen.release:
        return _release(placer)
    try:
        with only_one(PROGRAM, settings.placer.state_dir, settings.placer.runtime_dir):
            return _run(placer, stop, settings.placer.interval_ns / 1e9)
    except Refused as fault:
        print(f"gpu-lease-placer: {fault.sentence()}", file=sys.stderr)
        return CANNOT_RUN


def _run(placer: Placer, stop: threading.Event, interval_s: float) -> int:
    log.info("gpu-lease-placer %s", __version__)
    # From its first look on gpu_share.lua puts jobs off for it. Without slurmctld none are
    # submitted.
    placer.turn(stop)
    notify(f"READY=1\nSTATUS={placer.fault or PLACING}")
    placer.run(stop, interval_s)
    notify("STOPPING=1")
    return _release(placer)


def _release(placer: Placer) -> int:
    try:
        left = placer.release()
    except (Silent, OSError) as fault:
        log.warning("jobs that wait begin by themselves when they are no longer put off: %s", fault)
        return CANNOT_RUN
    if left:
        log.warning(
            "not given back to Slurm in time, so they begin by themselves later: %s",
            count(left, "job"),
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
