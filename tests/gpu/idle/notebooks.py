"""Many notebooks on one device: one computes, the others are idle and lose their memory to it."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from tests.gpu.checks import Result
from tests.gpu.idle.moves import Link, moved
from tests.gpu.idle.residents import (
    GIB,
    HOST_PART,
    DeviceMemory,
    Resident,
    ending,
    host_free,
    measure_link,
    node,
    spread,
    tenant_of,
)
from tests.gpu.jobs import Sharing, touch_host_memory

OPTIONS = ""  # what a site gives who asks for nothing
SMALL_MIB = 2
PART_S = 0.5  # of a segment
STEADY = 0.99  # of what one alone does, at least
FIRST_CELL = 1.2  # of what the link needs for its bytes, at most
FEWEST = 3


def how_many(chosen: argparse.Namespace) -> int:
    """As many as the host has memory for; ValueError: they would not be too many for the cap."""
    host = host_free() / GIB * HOST_PART
    number = min(int(chosen.notebooks), int(host / chosen.notebook_gib))
    if number < chosen.notebooks:
        print(f"{number} instead of {chosen.notebooks} notebooks: host {host:.4g} GiB", flush=True)
    if number < FEWEST or number * chosen.notebook_gib <= chosen.notebooks_cap:
        raise ValueError(f"{number} notebooks of {chosen.notebook_gib:g} GiB: all would fit")
    return number


def work(resident: Resident, seconds: float) -> dict[str, Any]:
    return resident.do(f"work {seconds:g} {PART_S:g}")


def start_alone(chosen: argparse.Namespace) -> Resident:
    """The same program without a daemon, to compare with."""
    mib = int(chosen.notebook_gib * 1024)
    alone = Resident.start(None, "notebook, bare", "", chosen, mib=mib, small_mib=SMALL_MIB)
    alone.do("fill")
    return alone


def start_notebook(share: Sharing, n: int, chosen: argparse.Namespace) -> Resident:
    """Each fills its memory and runs a cell, as its user began with."""
    mib = int(chosen.notebook_gib * 1024)
    made = Resident.start(share, f"notebook {n}", OPTIONS, chosen, mib=mib, small_mib=SMALL_MIB)
    made.do("fill")
    return made


def run_cells(
    notebooks: list[Resident], active: int, alone: Resident, seconds: float, link: Link
) -> dict[str, Any]:
    """One notebook after its idleness: its first cell, and its speed beside idle ones."""
    found = work(notebooks[active], seconds)
    asked, answered = found["asked"], found["answered"]
    until = answered + PART_S
    others = [other.events() for n, other in enumerate(notebooks) if n != active]
    out = sum(moved(each, "evicted", asked - 0.001, until).copied for each in others)
    into = moved(notebooks[active].events(), "restored", asked - 0.001, until).copied
    bare = work(alone, seconds)
    limit = link.seconds(into, out)
    return {
        "notebook": active,
        "first_cell_s": found["seconds"],
        "in": into,
        "out": out,
        "limit_s": limit,
        "step_s": bare["seconds"],
        "ratio": found["seconds"] / (limit + bare["seconds"]),
        "steps_s": found["steps_s"],
        "bare_steps_s": bare["steps_s"],
    }


def tell(row: dict[str, Any]) -> str:
    steps, bare = (statistics.median(row[name]) for name in ("steps_s", "bare_steps_s"))
    return (
        f"  notebook {row['notebook']}: first cell {row['first_cell_s'] * 1e3:.0f} ms, GiB in "
        f"{row['in'] / GIB:.2f}, out {row['out'] / GIB:.2f}, the link and a step need "
        f"{(row['limit_s'] + row['step_s']) * 1e3:.0f} ms; {steps:.2f} steps/s, alone {bare:.2f}"
    )


def check_notebooks(chosen: argparse.Namespace) -> Result:
    """Twice around: in the first round host memory is new."""
    link, number = measure_link(chosen), how_many(chosen)
    room = DeviceMemory(chosen.gpu).free() / GIB
    print(
        f"{number} notebooks of {chosen.notebook_gib:g} GiB on {chosen.notebooks_cap:g} GiB; "
        f"{room:.4g} GiB of the card are free",
        flush=True,
    )
    touch_host_memory(int(number * chosen.notebook_gib * GIB))
    notebooks: list[Resident] = []
    rows: list[dict[str, Any]] = []
    alone = start_alone(chosen)
    with ending([alone]), node(f"{chosen.notebooks_cap:g}GiB") as share, ending(notebooks):
        for n in range(number):
            notebooks.append(start_notebook(share, n, chosen))
        kinds = {tenant_of(share, notebook)["memory"] for notebook in notebooks}
        for n in range(number):  # the first time around: copies are made
            print(tell(run_cells(notebooks, n, alone, PART_S, link)), flush=True)
        for n in range(number):
            rows.append(run_cells(notebooks, n, alone, chosen.cell_seconds, link))
            print(tell(rows[-1]), flush=True)
        right = sum(notebook.right() for notebook in notebooks) == number
    return judge(rows, kinds, right, number)


def judge(rows: list[dict[str, Any]], kinds: set[str], right: bool, number: int) -> Result:
    steps = [rate for row in rows for rate in row["steps_s"]]
    bare = [rate for row in rows for rate in row["bare_steps_s"]]
    ratio = statistics.median(steps) / statistics.median(bare)
    moving = [row["ratio"] for row in rows if row["in"]]
    cells = statistics.median(moving) if moving else 0.0
    good = right and kinds == {"swap"} and ratio >= STEADY and 0 < cells <= FIRST_CELL
    return {
        "good": good,
        "summary": f"{number} notebooks: {ratio:.4f} of alone ({spread(steps, 1)} steps/s, alone "
        f"{spread(bare, 1)}); first cell {spread([r['first_cell_s'] for r in rows])} ms, "
        f"{spread(moving, 1)} of what link and step need; {'/'.join(sorted(kinds))}, "
        f"all right: {right}",
        "rows": rows,
    }
