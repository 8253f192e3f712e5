"""gpu-leasectl plot --chain: the throughput of a chain over the trials of its last search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leased.api.answers import Chain, Status
from leased.base.errors import Refused
from leased.base.words import count
from leased.cli.plot_draw import DARK, LIGHT, Look, save, short

NONE = "no trials of a chain {} are known"
HINT = "see gpu-leasectl status: a chain is tried where it has a GPU for itself and runs steadily"


def find(answer: Status, name: str) -> tuple[int, Chain]:
    """The GPU of the chain, by its index, and the chain. Refused: it has none for itself, or
    nothing has been tried."""
    for device in answer["devices"]:
        chain = device.get("chain")
        if chain and chain["name"] == name and chain["trials"]:
            return device["index"], chain
    raise Refused(NONE.format(name), HINT)


def draw(gpu: int, chain: Chain, file: Path, dark: bool = False) -> dict[str, Any]:
    """Write the picture. Returns what it shows. Raises what plot_draw.draw() raises."""
    save(lambda look: _figure(gpu, chain, look), file, DARK if dark else LIGHT)
    return {
        "file": str(file),
        "index": gpu,
        "name": chain["name"],
        "trials": chain["trials"],
        "bound": chain["bound"],
        "gain": chain["gain"],
    }


def text(answer: dict[str, Any]) -> str:
    return f"{answer['file']}: {count(len(answer['trials']), 'trial')} of chain {answer['name']}"


def _figure(gpu: int, chain: Chain, look: Look) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    axes = figure.subplots()
    trials = chain["trials"]
    plain, kept = set(chain["plain"]), set(chain["kept"])
    tried = set(range(len(trials))) - plain - kept
    axes.plot(range(1, len(trials) + 1), trials, color=look.faint, lw=0.8, zorder=1)
    for name, places, colour, marker in (
        ("plain", plain, look.handoff, "o"),
        ("tried", tried, look.jobs[0], "o"),
        ("kept", kept - plain, look.jobs[1], "D"),
    ):
        at = sorted(places)
        there = [place + 1 for place in at], [trials[place] for place in at]
        axes.scatter(*there, s=18, c=colour, marker=marker, label=name, gid=f"trials-{name}")
    axes.axhline(1.0, color=look.limit, lw=0.8, ls="--", label="throughput without a division")
    axes.set_ylim(0, 1.1 * max(1.0, *trials))
    axes.set_xlabel("trial")
    axes.set_ylabel("throughput, of the first trial's")
    axes.set_title(_title(gpu, chain), loc="left", fontsize=9, fontweight="bold")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=7.5)
    return figure


def _title(gpu: int, chain: Chain) -> str:
    words = (
        f"chain {short(chain['name'])} on GPU {gpu}: {count(len(chain['components']), 'component')}"
    )
    words += " under MPS" if chain["by"] == "parts" else ""
    return f"{words}, {chain['gain']:+.1%}" if chain["gain"] is not None else words
