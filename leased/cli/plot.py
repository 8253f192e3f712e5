"""gpu-leasectl plot: a picture of who had the GPUs, from a record of the daemon."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leased.api.answers import Status
from leased.base import job_names
from leased.base.errors import Refused
from leased.base.words import count
from leased.cli import plot_chain, plot_draw
from leased.config import config
from leased.record.codec import Damaged
from leased.sim import spans, values
from leased.sim.history import History, load

SUFFIXES = (".png", ".svg", ".pdf")
MOST_LANES = 40
NO_RECORD = "gpu-leased keeps no record here, so nobody knows who held the GPUs when"
RECORD_HINT = (
    'set record = "/var/lib/gpu-leased/record" under [daemon] and reload the daemon: what happens '
    "after that can be drawn; gpu-leasectl report shows the sums of jobs that have ended"
)
NO_MATPLOTLIB = "drawing needs matplotlib, which is not installed for this Python"
MATPLOTLIB_HINT = "apt install python3-matplotlib, or in a checkout: pip install '.[plot]'"


def plot(chosen: argparse.Namespace) -> dict[str, Any]:
    """Write the picture. Returns what it shows. Refused: bad input, or nothing to draw."""
    output = _output(chosen)
    notes: list[str] = []
    history = _history(_file(chosen), notes)
    for note in notes:
        print(f"gpu-leasectl: {note}", file=sys.stderr)
    found = spans.picture(history, _jobs(chosen.jobs), _since(chosen.since))
    lanes = max(len(device.lanes) for device in found.devices)
    if lanes > MOST_LANES:
        words = f"{lanes} jobs were on a GPU, and a picture shows {MOST_LANES} at most"
        raise Refused(words, "name some with -j, or a later time with --since")
    with _drawing(output):
        plot_draw.draw(found, output, chosen.dark)
    return {
        "file": str(output),
        "seconds": round(found.length / 1e9, 3),
        "devices": [
            {
                "index": device.index,
                "uuid": device.uuid,
                "jobs": sorted({lane.job for lane in device.lanes}),
                "handoffs": len(device.handoffs),
                "handoff_s": round(device.handoff_ns / 1e9, 3),
            }
            for device in found.devices
        ],
    }


def plot_trials(chosen: argparse.Namespace, answer: Status) -> dict[str, Any]:
    """Write the picture of a chain's trials. As plot()."""
    output = _output(chosen)
    gpu, chain = plot_chain.find(answer, chosen.chain)
    with _drawing(output):
        return plot_chain.draw(gpu, chain, output, chosen.dark)


def _output(chosen: argparse.Namespace) -> Path:
    output: Path = chosen.output
    if output.suffix not in SUFFIXES:
        words = f"{output} is not a known kind of picture"
        raise Refused(words, f"name a file that ends with {', '.join(SUFFIXES)}")
    return output


@contextmanager
def _drawing(output: Path) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise Refused(NO_MATPLOTLIB, MATPLOTLIB_HINT) from None
    except OSError as fault:
        raise Refused(f"{output} cannot be written ({fault.strerror})", "name another") from None


def text(answer: dict[str, Any]) -> str:
    gpus = count(len(answer["devices"]), "GPU")
    return f"{answer['file']}: {answer['seconds']:.1f} s of {gpus}"


def _file(chosen: argparse.Namespace) -> Path:
    given: Path | None = chosen.from_record
    found = given or config.load(chosen.config).record
    if found is None:
        raise Refused(NO_RECORD, RECORD_HINT)
    return found


def _history(path: Path, notes: list[str]) -> History:
    try:
        return load(path, notes)
    except Damaged as fault:
        raise Refused(f"{path}: {fault}", "name a record, see docs/daemon.md") from None
    except OSError as fault:
        raise Refused(
            f"the record {path} cannot be read ({fault.strerror})",
            "only root may read a record's files; see docs/daemon.md, A record",
        ) from None


def _jobs(text: str) -> list[str]:
    names = text.split(",") if text else []
    if not all(map(job_names.is_name, names)):
        raise Refused(f"-j {text!r:.40} is not a list of jobs", "write for example -j 7,12_3")
    return names


def _since(text: str | None) -> float | None:
    """Seconds since 1970."""
    if text is None:
        return None
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        try:
            return time.mktime(time.strptime(text, form))
        except ValueError:
            continue
    try:
        return time.time() - values.time_ns(text, "--since") / 1e9
    except Refused:
        raise Refused(
            f"--since {text!r:.40} is not a time", "write 10m, or for example 2026-11-23T13:30"
        ) from None
