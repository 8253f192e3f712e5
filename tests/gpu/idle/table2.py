"""nvshare's Table 2 with default options: two trainings of which one fits, and two that fit.

heavy: each wants 0.9 of the capped device; light: 0.4. balanced and intense as in check_training.
To be short it is a smaller device than in its measurements, with cycles shorter by as much, and
a training runs its kinds one after the other.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tests.gpu.check_training import KINDS, PROGRAM, parts_of
from tests.gpu.checks import Result
from tests.gpu.commands import whole_seconds
from tests.gpu.idle.residents import GIB, LIMIT_S, node, status
from tests.gpu.jobs import Job, Sharing, framework_python, on_gpu, stopping, touch_host_memory
from tests.support.together import zip_strict

WANTS = {"heavy": 0.9, "light": 0.4}  # of the capped device
QUANTA = {"heavy": ("5", "30"), "light": ("5",)}  # seconds
# Of the sequential time, as nvshare has it on a P100 with its better quantum.
AIMS = {"balanced": 0.77, "intense": 1.02}


def calibrate(weight: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """The batch that fills so much memory, and how long its parts take."""
    gib = str(WANTS[weight] * chosen.training_cap)
    line = framework_python(*PROGRAM, "--calibrate", "--gib", gib)
    found = Job.start(f"{weight}, calibration", line, on_gpu(chosen.gpu)).result()
    print(f"  {weight}: {json.dumps(found)}", flush=True)
    return found


def run_parts(jobs: list[Job], lines: list[str]) -> list[list[dict[str, Any]]]:
    """What came of each line in each job; all begin a line at the same time."""
    for job in jobs:
        job.wait_ready(LIMIT_S)
    read = [len(job.printed().encode()) for job in jobs]
    found: list[list[dict[str, Any]]] = []
    for line in lines:
        for job in jobs:
            job.say(line)
        answers = []
        for n, job in enumerate(jobs):
            text, read[n] = job.next_line(read[n], LIMIT_S)
            answers.append(json.loads(text))
        found.append(answers)
    return found


def memory_kinds(share: Sharing, jobs: list[Job]) -> list[str]:
    numbers = {job.number for job in jobs}
    return [t["memory"] for t in status(share)["tenants"] if t["job_id"] in numbers]


def run_pair(
    share: Sharing, name: str, quantum: str, training: list[str], *, lines: list[str], gpu: int
) -> dict[str, Any]:
    """Two trainings at once."""
    jobs = [
        share.tenant(f"{name} {n}, tq:{quantum}", f"tq:{quantum}", training, on_gpu(gpu), str(gpu))
        for n in range(2)
    ]
    with stopping(*jobs):
        answers = run_parts(jobs, lines)
        kinds = memory_kinds(share, jobs)
        usage = [share.usage(job) for job in jobs]
    return {"answers": answers, "memory": kinds, "usage": usage}


def run_weight(weight: str, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each kind and quantum."""
    measured = calibrate(weight, chosen)
    training = framework_python(*PROGRAM, "--parts", "--batch", str(measured["batch"]))
    parts = [parts_of(measured, part, chosen.training_cycle) for part in KINDS.values()]
    lines = [f"{steps} {rounds} {chosen.training_cycles}" for steps, rounds in parts]
    touch_host_memory(max(0, int(2 * measured["bytes"] - chosen.training_cap * GIB / 2)))
    bare = Job.start(f"{weight}, bare", training, on_gpu(chosen.gpu))
    with stopping(bare):
        alone = [answers[0] for answers in run_parts([bare], lines)]
    print(f"  {weight}, alone: {[answer['seconds'] for answer in alone]} s", flush=True)
    rows: list[dict[str, Any]] = []
    with node(f"{chosen.training_cap:g}GiB") as share:
        for quantum in QUANTA[weight]:
            pair = run_pair(share, weight, quantum, training, lines=lines, gpu=chosen.gpu)
            for kind, one, both in zip_strict(KINDS, alone, pair["answers"]):
                row = {"mix": f"{weight}_{kind}", "quantum": quantum}
                rows.append(row | row_of(kind, one, both, pair))
                print(f"  {tell(rows[-1])}", flush=True)
    return rows


def row_of(
    kind: str,
    alone: dict[str, Any],
    both: list[dict[str, Any]],
    pair: dict[str, Any],
) -> dict[str, Any]:
    sequential = 2 * float(alone["seconds"])  # the same program, one after the other
    seconds = whole_seconds(both)
    return {
        "sequential_s": sequential,
        "seconds": seconds,
        "ratio": round(seconds / sequential, 4),
        "aim": AIMS[kind],
        "equal": {one["digest"] for one in both} == {alone["digest"]},
        "memory": pair["memory"],
        "handoffs": [used["handoffs"] for used in pair["usage"]],  # of all kinds so far
    }


def tell(row: dict[str, Any]) -> str:
    return (
        f"{row['mix']} tq:{row['quantum']}: {row['seconds']:.1f} of {row['sequential_s']:.1f} s, "
        f"{row['ratio']:.3f} (aim {row['aim']:g}), equal: {row['equal']}, "
        f"{'/'.join(row['memory'])}"
    )


def check_table2(chosen: argparse.Namespace) -> Result:
    rows = [row for weight in chosen.mixes.split(",") for row in run_weight(weight, chosen)]
    right = all(row["equal"] and set(row["memory"]) == {"swap"} for row in rows)
    return {
        "good": right and all(row["ratio"] <= row["aim"] for row in rows),
        "summary": "; ".join(map(tell, rows)),
        "rows": rows,
    }
