"""What must hold after the chaos: each check gives its complaints, none when all is well."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.api.client import ask
from leased.base.errors import Refused
from leased.slurm.usage_record import MARK, json_of
from tests.emugpu.server import EmulatedGpu
from tests.slurm.chaos import Storm, processes
from tests.slurm.chaos_jobs import Run
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.leased import Leased

MIB = 1 << 20
Trace = list[tuple[int, int, int, int]]  # see EmulatedGpu.trace
ROUNDING_S = 0.001  # of each figure in the comment
# Slurm gives whole seconds; a tenant also lives from before its first process to the epilog.
AROUND_S = 3.0
# The daemon's peak is of what clients told: once after an allocation, again to the next daemon.
# A job that ends before a new daemon heard of it has only what was stored, up to a second old.
HEARD_S = 4.0
GROWTH_BYTES = 24 * MIB
IDLE_NS = 2_000_000
STORED_S = 2.0  # the daemon stores usage every second
BACK_S = 1.5  # the grace, and until clients are back
MEASURE_S = 0.2
PRESENT = 0.25
SHOWN = 10
NO_JOB = 4_000_000  # that Slurm never had


@dataclass(frozen=True)
class Footprint:
    """What the daemon has of its node."""

    descriptors: int
    resident: int
    threads: int

    @classmethod
    def of(cls, leased: Leased) -> Footprint:
        assert leased.daemon is not None
        proc = Path("/proc") / str(leased.daemon.process.pid)
        pages = int((proc / "statm").read_text().split()[1])
        return cls(
            len(list((proc / "fd").iterdir())),
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(list((proc / "task").iterdir())),
        )


def comments(slurm: PrivateSlurm, runs: list[Run]) -> dict[int, str]:
    """SystemComment of each job, from sacct."""
    listed = ",".join(str(run.job_id) for run in runs)
    lines = slurm.run("sacct", "-X", "-n", "-P", "-j", listed, "-o", "JobID,SystemComment").stdout
    rows = (line.partition("|") for line in lines.splitlines())
    return {int(job): text for job, _, text in rows}


def usage_of(text: str) -> dict[str, dict[str, Any]]:
    return dict(json_of(text).get("gpus", {})) if MARK in text else {}


def excuse(run: Run, used: dict[str, Any], failed: dict[str, float]) -> None:
    """A job on a device that failed before the job's end need not complete."""
    for since in (failed[uuid] for uuid in used if uuid in failed):
        ends = [report["finished_at"] for report in run.reports().values()]
        if len(ends) < len(run.spec.rank_names()) or max(ends) > since:
            run.hurt = run.hurt or "on a device that failed"


def check_job(run: Run, state: str) -> list[str]:
    """The state that Slurm shows and what the ranks found in their memory."""
    name, reports = run.spec.name, run.reports()
    said = [f"{name}: {rank} has wrong data: {r}" for rank, r in reports.items() if wrong(r)]
    if run.hurt:
        return said
    if state != "COMPLETED":
        errors = [report["error"] for report in reports.values() if "error" in report]
        said.append(
            f"{name}: {state} ({run.spec.share}, {run.touched}): {errors} {run.log()[-800:]}"
        )
    missing = set(run.spec.rank_names()) - set(reports)
    if missing and state == "COMPLETED":
        said.append(f"{name}: COMPLETED, but nothing of {sorted(missing)}")
    return said


def wrong(report: dict[str, Any]) -> bool:
    """Whether a rank that came to its end found wrong data."""
    return "error" not in report and report["right"] != report["checks"]


def check_usage(
    run: Run, used: dict[str, dict[str, Any]], elapsed_s: float, storm: Storm
) -> list[str]:
    """One job's figures by themselves."""
    name, said = run.spec.name, []
    if len(used) != run.spec.devices and not (used and run.hurt):  # some end before they widen
        said.append(f"{name}: usage of {len(used)} devices in sacct, wanted {run.spec.devices}")
    for figures in used.values():
        said += check_figures(run, figures, elapsed_s)
        if not run.hurt and figures["lease_s"] == 0 and counted_s(run, storm) > MEASURE_S:
            said.append(f"{name}: COMPLETED without a lease: {figures}")
    return said


def check_figures(run: Run, figures: dict[str, Any], elapsed_s: float) -> list[str]:
    """One job's figures of one device."""
    name, said = run.spec.name, []
    said += [f"{name}: {key} is {n}" for key, n in figures.items() if n < 0]
    busy = figures["lease_s"] + figures["wait_s"]
    if busy > elapsed_s + AROUND_S:
        said.append(f"{name}: lease and wait of {busy} s in {elapsed_s:.1f} s: {figures}")
    if figures["shared_s"] > elapsed_s + AROUND_S:
        said.append(f"{name}: shared_s is {figures['shared_s']}, it ran {elapsed_s:.1f} s")
    return said


def heard(run: Run, down: list[tuple[float, float]]) -> bool:
    """Whether a daemon must have known the job's largest memory when the job ended."""
    ends = [r["finished_at"] for r in run.reports().values()]
    if run.hurt or len(ends) < len(run.spec.rank_names()):
        return False
    # All ranks of one start allocate at about the same time; it is the sum that counts.
    first_end = min(ends)
    return not any(since - HEARD_S < first_end < until + HEARD_S for since, until in down)


def check_peaks(
    runs: list[Run], used: dict[int, dict[str, Any]], down: list[tuple[float, float]]
) -> list[str]:
    """Peak memory is at least what the ranks had at once."""
    said, checked = [], 0
    for run in runs:
        for figures in used[run.job_id].values() if heard(run, down) else ():
            checked += 1
            alone = run.spec.kind in {"steps", "gang"}
            least = run.spec.bytes if alone else run.spec.total_bytes
            if figures["peak_bytes"] < least:
                said.append(f"{run.spec.name}: peak {figures['peak_bytes']}, it had {least}")
    return said if checked else ["no job's peak could be checked"]


def check_sums(used: dict[int, dict[str, dict[str, Any]]], wall_s: float) -> list[str]:
    """A device is never leased for more than the time there was."""
    leased: dict[str, float] = defaultdict(float)
    for by_device in used.values():
        for uuid, figures in by_device.items():
            leased[uuid] += figures["lease_s"]
    most = wall_s + ROUNDING_S * len(used)
    return [f"{u}: leases of {s:.1f} s in {wall_s:.1f} s" for u, s in leased.items() if s > most]


def jobs_by_pid(storm: Storm) -> dict[int, Run]:
    """The job of every process that was seen or has reported."""
    found = {pid: storm.runs[name] for pid, name in storm.pids.items()}
    for run in storm.runs.values():
        found |= {report["pid"]: run for report in run.reports().values()}
    return found


def overran(run: Run, used: dict[int, dict[str, Any]]) -> bool:
    """Whether it kept a device beyond its time: another job may have had it beside."""
    return any(figures["overruns"] for figures in used[run.job_id].values())


def check_turns(
    storm: Storm, trace: Trace, jobs: dict[int, Run], used: dict[int, dict[str, Any]]
) -> list[str]:
    """Jobs with lock:on compute one at a time: who yields to another one was idle for at least
    IDLE_NS or had its quantum, and so had the other, before it computes again.

    Not so those that were stopped, or whose work took too long to end: the device
    went to others beside what still ran of them.
    """
    forced = {d["uuid"] for d in storm.gpu.stats()["devices"] if d["index"] in storm.forced}
    strict = {
        pid: run.spec.name
        for pid, run in jobs.items()
        if "lock:on" in run.spec.share
        and "stopped" not in run.touched
        and not overran(run, used)
        and not forced & set(used[run.job_id])
    }
    by_device: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for device, pid, start, end in trace:
        if pid in strict:
            by_device[device].append((start, end, strict[pid]))
    said, turns = [], 0
    for device, slices in by_device.items():
        ended: dict[str, int] = {}
        last = ""
        for start, end, name in sorted(slices):
            turns += name != last
            if name != last and start - ended.get(name, 0) < IDLE_NS:
                said.append(f"device {device}: {name} and {last} compute at once, at {start}")
            ended[name], last = end, name
    print(f"{turns} turns of jobs with lock:on")
    return said[:SHOWN]


def gaps(storm: Storm) -> list[tuple[float, float]]:
    """When nobody counted, in s since the epoch: without a daemon, and what it had not stored."""
    return [(since - STORED_S, until + BACK_S) for since, until in storm.down]


def counted_s(run: Run, storm: Storm) -> float:
    """For how long it worked while a daemon counted. 0: it has not said when it did."""
    reports = run.reports().values()
    if not reports or any("allocated_at" not in report for report in reports):
        return 0.0
    begin = min(report["allocated_at"] for report in reports)
    end = max(report["finished_at"] for report in reports)
    apart = (max(0.0, min(until, end) - max(since, begin)) for since, until in gaps(storm))
    return float(end - begin - sum(apart))


def check_covered(
    storm: Storm, trace: Trace, jobs: dict[int, Run], used: dict[int, dict[str, Any]]
) -> list[str]:
    """Who computes has a lease, and it is accounted."""
    since_boot = time.monotonic() - time.time()
    apart = [(int((a + since_boot) * 1e9), int((b + since_boot) * 1e9)) for a, b in gaps(storm)]
    busy: dict[str, int] = defaultdict(int)
    for _, pid, start, end in trace:
        run = jobs.get(pid)
        if run and not run.hurt and not run.touched and not any(a < end < b for a, b in apart):
            busy[run.spec.name] += end - start
    said = []
    for name, busy_ns in busy.items():
        figures = used[storm.runs[name].job_id].values()
        accounted = sum(on_one["lease_s"] + on_one["shared_s"] for on_one in figures)
        if accounted + MEASURE_S < busy_ns / 1e9:
            said.append(f"{name}: computed for {busy_ns / 1e9:.1f} s, accounted are {figures}")
    print(f"{len(busy)} jobs computed for {sum(busy.values()) / 1e9:.1f} s while it was counted")
    return said[:SHOWN]


def check_presence(storm: Storm, used: dict[int, dict[str, Any]]) -> list[str]:
    """A job that always wants the device has it or waits for it, most of its time."""
    said = []
    for run in storm.runs.values():
        if run.hurt or run.touched:
            continue
        counted = counted_s(run, storm)
        for figures in used[run.job_id].values():
            present = figures["lease_s"] + figures["shared_s"] + figures["wait_s"]
            if present < PRESENT * counted:
                said.append(f"{run.spec.name}: {counted:.1f} s, of which are accounted {figures}")
    return said[:SHOWN]


def check_swapping(runs: list[Run], used: dict[int, dict[str, dict[str, Any]]]) -> list[str]:
    """Memory was swapped, and nobody was told that it cannot be."""
    swapping = [run for run in runs if run.spec.swaps]
    moved = sum(f["moved_bytes"] for run in swapping for f in used[run.job_id].values())
    print(f"{len(swapping)} jobs swapped, and with those beside them moved {moved >> 20} MiB")
    said = [] if moved else ["no memory was swapped"]
    for run in (run for run in swapping if not run.hurt):
        words = ("memory stays on device", "cannot be restored to the GPU", "it is managed")
        said += [f"{run.spec.name}: {w}: {run.log()}" for w in words if w in run.log()]
    return said


def check_swap_is_free(leased: Leased) -> list[str]:
    """No memory of anybody is counted: a job that needs all that the host has for it may come.

    The daemon's Slurm has never heard of that job.
    """
    devices = ask(leased.admin_socket, {"op": "status"})["devices"]
    said = [f"the daemon counts {d}" for d in devices if d["tenant_bytes"] or d["resident_bytes"]]
    # One that is lost takes no new jobs.
    well = [d["index"] for d in devices if d["fault"] is None]
    text = leased.config.read_text()
    leased.config.write_text(f'{text}swap_host = "{len(well)}MiB"\n')
    ask(leased.admin_socket, {"op": "reload"})
    request = {"op": "register", "uid": 0, "nodes": 1, "shards": 1}
    request |= {"gpus": well, "options": "memory:swap,mem:1MiB"}
    try:
        ask(leased.admin_socket, request | {"job_id": NO_JOB})
    except Refused as fault:
        return [*said, f"host memory is still counted: {fault.sentence()}"]
    try:  # that this one would be heard of shows that the budget is the one just set
        ask(leased.admin_socket, request | {"job_id": NO_JOB + 1})
        said.append("the budget of host memory does not count")
    except Refused:
        pass
    return said


def check_node(slurm: PrivateSlurm) -> list[str]:
    shown = slurm.run("sinfo", "-h", "-N", "-o", "%n %T %E").stdout.splitlines()
    return [f"node: {line}" for line in shown if line.split()[1] != "idle"]


def check_memory(gpu: EmulatedGpu) -> list[str]:
    """Nothing of any process is left on a device."""
    stats = gpu.stats()
    said = [
        f"device {d['index']}: {d['memory'] - d['free']} bytes are not free"
        for d in stats["devices"]
        if d["free"] != d["memory"]
    ]
    return said + [
        f"the GPU still has process {p['pid']}" for p in stats["processes"] if p["alive"]
    ]


def check_processes(storm: Storm) -> list[str]:
    """No process of a job and no zombie of ours or the daemon's."""
    said = [f"process {pid} of {name} is left" for pid, name in processes(storm.out).items()]
    parents = {os.getpid()} | {d.process.pid for d in storm.slurm.daemons}
    assert storm.leased.daemon is not None
    parents.add(storm.leased.daemon.process.pid)
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if fields[0] == "Z" and int(fields[1]) in parents:
            said.append(f"zombie {entry.name} of {fields[1]}")
    return said


def check_daemon(leased: Leased, before: Footprint) -> list[str]:
    """Tenants, registered stepds, descriptors and memory are as when it began."""
    now, said = Footprint.of(leased), []
    if now.descriptors > before.descriptors:
        said.append(f"the daemon has {now.descriptors} descriptors, it had {before.descriptors}")
    if now.resident > before.resident + GROWTH_BYTES:
        said.append(f"the daemon has {now.resident >> 20} MiB, it had {before.resident >> 20}")
    with sqlite3.connect(f"file:{leased.prefix}/state/usage.db?mode=ro", uri=True) as db:
        stepds = db.execute("SELECT count(*) FROM stepds").fetchone()[0]
        left = db.execute("SELECT count(*) FROM tenants").fetchone()[0]
    db.close()
    if stepds:
        said.append(f"the store has {stepds} slurmstepds of jobs that have ended")
    if left:
        said.append(f"the store has {left} tenants whose usage Slurm has not")
    return said
