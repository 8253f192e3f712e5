"""Memory of which a little changes: what did not is not copied again, and nothing is ever wrong."""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from typing import Any

from tests.gpu.build import KERNELS, ROOT, build
from tests.gpu.checks import Result
from tests.gpu.idle.moves import moved, read_events
from tests.gpu.idle.residents import (
    GIB,
    LIMIT_S,
    MIB,
    Resident,
    ending,
    node,
    spread,
)
from tests.gpu.jobs import Job, Sharing, on_gpu, stopping, touch_host_memory

OPTIONS = "tq:1"
CAP = 1.25  # of what the changing job has
OTHER = 0.93  # of what jobs may have of the device: the second job's
BALLAST = 0.15  # of it more that is newest, and so stays when not all has to leave
PIECES = 36  # of the cap: the interposer cuts what a job may have into 32
LARGEST_MIB = 256
PRINTER = ROOT / "shim" / "memory" / "swap" / "fingerprint.ptx"


@dataclass
class Changing:
    """A job that runs clean.cu. read: bytes of its output that have been read."""

    job: Job
    read: int = 0

    def hear(self) -> dict[str, Any]:
        line, self.read = self.job.next_line(self.read, LIMIT_S)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, line: str) -> dict[str, Any]:
        self.job.say(line)
        return self.hear()


def piece_mib(cap_gib: float) -> int:
    """So that an allocation is a segment."""
    return max(2, min(LARGEST_MIB, int(cap_gib * 1024) // PIECES // 2 * 2))


def start_changing(share: Sharing, mib: int, piece: int, chosen: argparse.Namespace) -> Changing:
    command = [str(build("clean")), str(KERNELS), str(mib), str(piece), str(int(BALLAST * mib))]
    env, gpu = on_gpu(chosen.gpu), str(chosen.gpu)
    return Changing(share.tenant("what changes", OPTIONS, command, env, gpu))


def usable_mib(share: Sharing, gpu: int) -> int:
    """What jobs may have of the device."""
    device = next(device for device in share.devices() if device["index"] == gpu)
    return int(device["usable_bytes"]) // MIB


def run_rounds(changing: Changing, other: Resident, rounds: int, piece: int) -> dict[str, Any]:
    """Changes, the other job's turn, and a look at every word; as often as it is told."""
    found: list[dict[str, Any]] = []
    for n in range(rounds):
        made = changing.do(f"change {n}")
        woken = other.do("wake")
        checked = changing.do("check")
        since, until = woken["asked"] - 0.001, woken["answered"] + 0.5
        out = moved(read_events(changing.job.said()), "evicted", since, until)
        row = {
            "made": made["made"],
            "changed": made["changed"] * piece * MIB,
            "wrong": checked["wrong"],
            "words": checked["words"],
            "out": out.size,
            "copied": out.copied,
            "out_s": out.seconds,
        }
        found.append(row)
        print(
            f"  {n}: {'+'.join(made['made']) or 'nothing'}: changed {row['changed'] / GIB:.3g}, "
            f"left {out.size / GIB:.3g}, copied {out.copied / GIB:.3g} GiB in {out.seconds:.3f} s, "
            f"wrong {checked['wrong']}",
            flush=True,
        )
    return {"rows": found, "right": other.right()}


def fingerprint_speed(chosen: argparse.Namespace, piece: int) -> dict[str, Any]:
    mib = str(max(piece, int(chosen.clean_gib * 1024 * 0.75)))
    command = [str(build("fingerprint")), str(PRINTER), mib, str(piece)]
    return Job.start("fingerprint", command, on_gpu(chosen.gpu)).result()


def check_clean(chosen: argparse.Namespace) -> Result:
    """Two jobs by turns, of which the first one changes a little between its turns."""
    cap = CAP * chosen.clean_gib
    piece, mib = piece_mib(cap), int(chosen.clean_gib * 1024)
    speed = fingerprint_speed(chosen, piece)
    print(f"  {json.dumps(speed)}", flush=True)
    touch_host_memory(int((2 * chosen.clean_gib + cap) * GIB))
    others: list[Resident] = []
    with node(f"{cap:g}GiB") as share, ending(others):
        changing = start_changing(share, mib - int(BALLAST * mib), piece, chosen)
        with stopping(changing.job):
            hello = changing.hear()
            size = int(OTHER * usable_mib(share, chosen.gpu))
            others.append(Resident.start(share, "other", OPTIONS, chosen, mib=size, small_mib=2))
            others[0].do("fill")
            changing.do("check")
            found = run_rounds(changing, others[0], chosen.clean_rounds, piece)
    return judge(found, speed, hello["pieces"], piece)


def judge(found: dict[str, Any], speed: dict[str, Any], pieces: int, piece: int) -> Result:
    rows = found["rows"]
    steady = rows[1:]  # at the first one all is copied, or it has left already
    wrong = sum(row["wrong"] for row in rows)
    moves = sum(row["out"] > 0 for row in steady)
    needless = [row["copied"] - row["changed"] for row in steady]
    clean = [1 - row["copied"] / row["out"] for row in steady if row["out"]]
    quiet = [row["out"] / GIB / row["out_s"] for row in steady if not row["made"] and row["out_s"]]
    good = not wrong and found["right"] and moves == len(steady)
    good = good and bool(clean) and statistics.median(clean) > 0.5
    return {
        "good": good,
        "summary": f"{pieces} pieces of {piece} MiB, out {moves} times: {wrong} of "
        f"{rows[0]['words']} words wrong, the other job right: {found['right']}; clean "
        f"{spread(clean, 1)} of what left; copied beyond what changed {spread(needless, 1 / MIB)} "
        f"MiB; unchanged it leaves with {spread(quiet, 1)} GiB/s; fingerprints "
        f"{speed['gib_s']:g} GiB/s, beside copies {speed['beside_copies_gib_s']:g}",
        "speed": speed,
        **found,
    }
