"""Tables of GPUs and jobs that fit 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from leased.api.answers import CHECKPOINT, MOVE, Called, Device, Status, Tenant, devices_of
from leased.base.words import size
from leased.cli.names import Names
from leased.cli.rates import GpuRates, JobRates, Rates

BAR = 6  # columns
NAMES = 10  # columns of the jobs that hold a GPU, and of those that wait for it
FIRST = {"holds": 0, "waits": 1}  # of the states; who is idle comes last
MODES = {"exclusive": "by turns"}
STYLES = {"holds": "green", "waits": "yellow", "faulty": "bold red", "drained": "red"}
STYLES |= {"draining": "red"}
PARKED_BY = {MOVE: "moves", CHECKPOINT: "saves"}

T = TypeVar("T")
Key = Callable[[Tenant, JobRates], Any]
# By what jobs can be sorted; each is a word of the footer.
SORTS: dict[str, Key] = {
    "state": lambda t, _: FIRST.get(t["state"], 2),
    "job": lambda t, _: t["job_id"],
    "lease": lambda _, rates: -rates.lease,
    "wait": lambda _, rates: -rates.wait,
    "memory": lambda t, _: -sum(t["resident_bytes"].values()),
}


@dataclass
class View:
    """How status is shown. rates: figures of the last minute; None: status is shown only once.
    wide: there is room for more than 80 columns. ascii: the terminal has only ASCII characters."""

    names: Names
    rates: Rates | None = None
    sort: str = "state"
    wide: bool = False
    ascii: bool = False

    def of_job(self, job: int) -> JobRates:
        return self.rates.jobs.get(job, JobRates()) if self.rates else JobRates()

    def of_gpu(self, uuid: str) -> GpuRates:
        return self.rates.gpus.get(uuid, GpuRates()) if self.rates else GpuRates()


def duration(seconds: float | None) -> str:
    """A time in at most 6 characters."""
    if seconds is None:
        return "-"
    if seconds < 600:
        return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def bar(part: float, ascii_only: bool = False) -> str:
    """A bar that is filled up to that part."""
    full = round(min(1.0, max(0.0, part)) * BAR)
    on, off = ("#", ".") if ascii_only else ("█", "░")
    return on * full + off * (BAR - full)


def amounts(some: int, whole: int) -> str:
    """Both amounts in the unit of the whole: 96/141 GiB."""
    if not whole:
        return f"{size(some)}/0"
    number, unit = size(whole).split()
    scale = whole / float(number) if float(number) else 1.0
    part = some / scale
    return (
        f"{part:.0f}/{number} {unit}" if part >= 10 or not some else f"{part:.1f}/{number} {unit}"
    )


def queue(names: Sequence[str]) -> str:
    """Two jobs, or the first and how many more there are; in at most NAMES characters, of which
    the number is not what is cut."""
    text = ",".join(names) or "-"
    if len(names) <= 2 and len(text) <= NAMES:
        return text
    more = f" +{len(names) - 1}" if names[1:] else ""
    return cut(names[0], NAMES - len(more)) + more


def cut(text: str, most: int) -> str:
    """At most so many characters of it, with a mark where some are left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


def ranges(indices: Iterable[int]) -> str:
    """Numbers as lists of Slurm have them: 0-3,7."""
    found: list[list[int]] = []
    for index in sorted(indices):
        if found and index == found[-1][-1] + 1:
            found[-1].append(index)
        else:
            found.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)


# -- GPUs --------------------------------------------------------------------------------


def gpus(answer: Status, view: View, most: int | None = None) -> Table:
    """A row for each GPU; of more than `most`, the last row says how many are left out. The bar
    shows the part of its memory that jobs use; after it come the memory that they want and the room
    that there is."""
    title = "handoffs" if view.rates else "lock"
    table = _table("GPU", "name", "mode", "held by", "waiting", "left", "memory", "busy", title)
    called = Called(answer["tenants"])
    return _filled(table, answer["devices"], lambda device: _gpu(device, view, called), most)


def _gpu(device: Device, view: View, called: Called) -> list[Text]:
    there, room = device["resident_bytes"], device["usable_bytes"]
    lately = view.of_gpu(device["uuid"])
    busy = lately.busy if view.rates else device["busy_percent"]
    memory = bar(there / room if room else 0.0, view.ascii)
    wants = device["tenant_bytes"]
    return [
        Text(str(device["index"])),
        Text(device["name"].removeprefix("NVIDIA ")),
        Text(MODES.get(device["mode"], device["mode"]), STYLES.get(device["mode"], "")),
        Text(queue(called.all(device["holders"])), STYLES["holds"]),
        Text(queue(called.all(device["waiting"])), STYLES["waits"]),
        Text(duration(device["quantum_left_s"])),
        Text(f"{memory} {amounts(wants, room)}", "" if device["fits"] else "yellow"),
        Text("-" if busy is None else f"{busy:.0f}%"),
        Text(f"{lately.handoffs:.0f}/min" if view.rates else device["lock"] or "jobs'"),
    ]


# -- jobs --------------------------------------------------------------------------------


def jobs(answer: Status, view: View, most: int | None = None) -> Table:
    """A sorted row for each job. Of more than `most`, the last row says how many are left out."""
    titles = ["job", "user", "name", "GPU", "state", "memory", "on GPU", "lease", "waited"]
    titles += ["1 min"] if view.rates else ["handoffs"]
    table = _table(*titles, *(("lock", "quantum", "processes") if view.wide else ()))
    index = {device["uuid"]: device["index"] for device in answer["devices"]}
    found = sorted(
        answer["tenants"],
        key=lambda t: (SORTS[view.sort](t, view.of_job(t["job_id"])), t["job_id"]),
    )
    return _filled(table, found, lambda tenant: _job(tenant, index, view), most)


def _state(tenant: Tenant) -> str:
    if tenant.get("stopped"):
        return "stopped"
    parked = tenant["parked"]
    return PARKED_BY.get(parked["by"] if parked else "", tenant["state"])


def had(tenant: Tenant, key: str) -> float:
    """A figure of its usage: of its GPUs, which it has at once, and of those from which it has
    moved, before that."""
    used, now = tenant["gpus"], devices_of(tenant)
    left = sum(float(its.get(key, 0)) for uuid, its in used.items() if uuid not in now)
    return left + max((float(used[uuid].get(key, 0)) for uuid in now if uuid in used), default=0.0)


def _job(tenant: Tenant, index: Mapping[str, int], view: View) -> list[Text]:
    lease, wait, handoffs = (had(tenant, key) for key in ("lease_s", "wait_s", "handoffs"))
    state = _state(tenant)
    last = f"{view.of_job(tenant['job_id']).lease:.0%}" if view.rates else f"{handoffs:.0f}"
    more = [tenant["lock"], f"{tenant['quantum_s']:g} s", str(tenant["clients"])]
    return [
        Text(tenant["job"]),
        Text(view.names.user(tenant["uid"])),
        Text(view.names.job(tenant["job_id"])),
        Text(ranges(index[uuid] for uuid in devices_of(tenant) if uuid in index) or "?"),
        Text(state, STYLES.get(state, "")),
        Text(tenant.get("memory", "")),
        Text(size(sum(tenant["resident_bytes"].values()))),
        Text(duration(lease)),
        Text(duration(wait)),
        Text(last),
        *(map(Text, more) if view.wide else ()),
    ]


NUMBERS = ("left", "busy", "on GPU", "lease", "waited", "1 min", "handoffs")
WIDEST = {"name": 14, "user": 9, "GPU": 7}
# Where the terminal is too narrow these are cut, the widest first, so that no figure ever is, and
# no number of a job, which is what other commands are given.
GIVES = ("name", "user")


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(
            Text(title, no_wrap=True),
            justify="right" if title in NUMBERS else "left",
            no_wrap=title not in GIVES,
            overflow="ellipsis",
            max_width=WIDEST.get(title),
        )
    return table


def _filled(
    table: Table, found: Sequence[T], row_of: Callable[[T], list[Text]], most: int | None
) -> Table:
    """With a row of one line for each; of more than `most`, the last row counts the others."""
    shown = found if most is None or len(found) <= most else found[: max(0, most - 1)]
    rows = [row_of(one) for one in shown]
    if len(shown) < len(found):
        rows.append([Text(f"+{len(found) - len(shown)}"), Text("more")])
    for row in rows:
        for text in row:
            text.no_wrap = True
        table.add_row(*row)
    return table
