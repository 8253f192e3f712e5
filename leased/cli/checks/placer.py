"""check: whether gpu-lease-placer runs, on a host where gpu_share.lua puts jobs off for it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from leased.base import children, text_file
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.cli.checks.job_submit import MOST_BYTES, RULES
from leased.matching import model
from leased.matching.assign import is_possible
from leased.placer import alive

UNIT = "gpu-lease-placer"
PATH = re.compile(rb'^local ALIVE = "([^"\n]{1,4096})"$', re.MULTILINE)
PATIENCE_S = 10.0
RUNS = f"{UNIT} runs"
JOURNAL = f"see journalctl -u {UNIT}, and run scontrol ping to see whether slurmctld answers"
REFUSED = "jobs with labels do not wait, and nodes refuse those that Slurm has misplaced"


def findings(site: Site) -> Iterator[Finding]:
    """On the host of slurmctld, where gpu_share.lua is installed."""
    folder = site.slurm.folder
    if folder is None or not (folder / RULES).is_file():
        return
    runtime = site.config.placer.runtime_dir
    ours = runtime / alive.NAME
    found = PATH.search(text_file.read(folder / RULES, MOST_BYTES))
    if found is None:
        words = f"{folder / RULES} has no part for {UNIT}: {REFUSED}"
        yield Finding("placer", WARNING, words, f"put {RULES} of this release there")
    elif found[1] != bytes(ours):
        theirs = found[1].decode(errors="replace")
        words = f"gpu_share.lua looks for {UNIT} at {theirs}, but placer.runtime_dir has {ours}: "
        words += REFUSED
        yield Finding("placer", WARNING, words, f"write the same path in {folder / RULES}")
    else:
        service = _of_service(runtime)
        yield service
        if service.text == RUNS:
            yield _of_matching()


def _of_service(runtime: Path) -> Finding:
    counts = alive.counts(runtime, int(time.time()))
    if counts:
        return Finding("placer", OK, RUNS)
    if counts is not None:
        words = f"the last sign of life of {UNIT}, {runtime / alive.NAME}, is too old: {REFUSED}"
        return Finding("placer", WARNING, words, JOURNAL)
    state = unit_state()
    if state in ("failed", "activating", "active"):
        words = f"the unit {UNIT} is {state} and has given no sign of life: {REFUSED}"
        return Finding("placer", WARNING, words, JOURNAL)
    return Finding("placer", OK, f"{UNIT} does not run here: {REFUSED}")


def _of_matching() -> Finding:
    if not is_possible():
        words = "offline jobs are placed by best fit, as scipy is not here to match them"
        return Finding("matching", OK, words)
    known = model.read(model.SHIPPED.read_text())
    words = f"offline jobs are matched by a model that was measured on {known.device}"
    if known.emulated:
        words += ", which is no card: it knows how time is divided, and nothing of memory and "
        words += "clocks"
    return Finding("matching", OK, words)


def unit_state() -> str:
    """ActiveState of the unit; "": systemd does not say."""
    try:
        done = children.run_and_wait(
            *("systemctl", "show", "--property=ActiveState", "--value", UNIT), patience_s=PATIENCE_S
        )
    except OSError:
        return ""
    return "" if done.fault or done.status else done.out.strip()
