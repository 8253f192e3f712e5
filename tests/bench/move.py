"""What a move to another GPU takes, and that nothing is lost: `make bench NAME=move`.

A job that changes all of its memory without a pause, by kernels of a few milliseconds, is moved to
and fro between two emulated GPUs while another one works on the first. Its memory is in proportion
to 40 of an H200's 141 GiB. Host memory that is registered takes time there, also of the driver's
part, in an H200's proportion. Now and then a call of the driver fails, each kind in its turn, or
the process that asks the driver is killed; then the job has to be where it was. After each move all
of its words are compared. Writes build/bench/move.json: `bytes`: of the job's memory; `dead_s`:
from the end of the last kernel before a move to that of the first one after it, less the shortest
kernel that the job has had, in which it works, the median; `away_s`: of that until the job's memory
had left and the driver could begin; `driver_s`: the driver's part; `back_s`: the rest, in which it
comes back; `link_limit_s`: what the link needs to take the bytes out and bring them in; `of_limit`:
`dead_s` less `driver_s`, of that; `moves`: those that succeeded; `failed_back`: those that failed,
after which the job went on where it was; `wrong`: words that were not what they should be, over all
of them; `otherwise`: moves and jobs that ended otherwise. Exit status 1 if there are any of these.
`carried` has the same of two GPUs that reach each other's memory: `link_limit_s` is what the link
between them needs for all bytes, and the new one's memory, where they are copied once more. What a
checkpoint's files take, on the disk, is among it (saved.py).
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.bench.saved import checkpoint_times
from tests.emugpu.server import EmulatedGpu
from tests.moving.asker import kill_the_asker
from tests.slurm.leased import Leased
from tests.support.programs import SET_UP, line, tell

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
SIZE = 288 * MIB
CALLS = ("lock", "checkpoint", "restore", "unlock", "killed")
BY_HOST, BY_CARRIER = "emu-h200-pins", "emu-h200-linked"
Model = Callable[[str], float]
WORKS = (
    SET_UP
    + """
import json, select, time
size = int(sys.argv[1])
n, pieces = size // 4, 16
p = ok(d.cuMemAlloc(size)); ok(d.cuMemsetD32(p, 0, n)); ok(d.cuCtxSynchronize())
types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
each = [((int(p) + at * (size // pieces), n // pieces, 1, 1), types) for at in range(pieces)]
turn, gap, least, last, pinned = 0, 0.0, 1.0, time.monotonic(), ok(d.cuMemHostAlloc(size, 0))
def wrong():
    ok(d.cuMemcpyDtoH(pinned, p, size))
    host, right = ctypes.string_at(int(pinned), size), turn.to_bytes(4, "little")
    if host == right * n:
        return 0
    return sum(host[at:at + 4] != right for at in range(0, size, 4))
say("ready")
while True:
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        gpu = ok(d.cuDeviceGetUuid(0)).bytes[-1] % 16
        say(json.dumps({"gap": gap - least, "wrong": wrong(), "gpu": gpu}))
        gap, last = 0.0, time.monotonic()
    for values in each:
        ok(d.cuLaunchKernel(kernel["add"], 64, 1, 1, 64, 1, 1, 0, 0, values, 0))
        ok(d.cuCtxSynchronize())
        now = time.monotonic()
        gap, least, last = max(gap, now - last), min(least, now - last), now
    turn += 1
"""
)


class Bench:
    """A job that is moved, and one beside it."""

    def __init__(self, gpu: EmulatedGpu, leased: Leased):
        self._gpu, self._leased = gpu, leased
        self._tenant = leased.admin_socket.with_name("tenant.sock")
        self.job, self.beside = self._start(1, SIZE), self._start(2, 16 * MIB)
        self.at = self.wrong = self.failed_back = 0
        self.others = 0  # moves that ended otherwise than they should
        self.dead: list[tuple[float, float, float]] = []  # all of it, until away, the driver's

    def _start(self, job: int, size: int) -> subprocess.Popen[str]:
        tenant = [sys.executable, "-m", "tests.support.tenant"]
        tenant += ["--admin", str(self._leased.admin_socket), "--job", str(job)]
        process = subprocess.Popen(
            [*tenant, "--options", "memory:swap", "--", sys.executable, "-c", WORKS, str(size)],
            cwd=ROOT,
            env=self._leased.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert line(process) == "ready"
        return process

    def look(self, job: subprocess.Popen[str]) -> dict[str, Any]:
        tell(job, "look")
        seen: dict[str, Any] = json.loads(line(job))
        self.wrong += seen["wrong"]
        return seen

    def move(self, fails: str = "") -> None:
        """Move the job to the other GPU. fails: what goes wrong meanwhile."""
        target = 1 - self.at
        if fails and fails != "killed":
            self._gpu.fail(target if fails == "unlock" else self.at, fails)
        answer = ask(self._tenant, {"op": "move", "job_id": 1, "gpu": str(target)})
        while answer["state"] == "moving":
            if fails == "killed" and (self._leased.prefix / "state" / "moving").exists():
                kill_the_asker(self._leased)
                fails = "was killed"
            time.sleep(0.005)
            answer = ask(self._tenant, {"op": "moved", "job_id": 1})
        moved = answer["state"] == "moved"
        self.at = target if moved else self.at
        self._judge(moved and not fails, bool(fails) and not moved, answer)

    def _judge(self, moved: bool, failed: bool, answer: dict[str, Any]) -> None:
        seen = self.look(self.job)
        if seen["gpu"] != self.at or moved == failed:
            self.others += 1
            print(f"ended otherwise: {answer}, on GPU {seen['gpu']}", flush=True)
        elif failed:
            self.failed_back += 1
        else:
            self.dead.append((seen["gap"], answer["took_s"]["away"], answer["driver_s"]))

    def end(self) -> None:
        for job in (self.job, self.beside):
            self.look(job)
            assert job.stdin
            job.stdin.close()
            self.others += job.wait() != 0


def by_host_s(model: Model) -> float:
    """What the link needs for all bytes, both ways."""
    return 2 * SIZE / MIB / model("link_mib_s")


def by_carrier_s(model: Model) -> float:
    """What the link between the GPUs needs, and the new one's memory, where they are copied."""
    return SIZE / MIB / model("peer_mib_s") + 2 * SIZE / MIB / model("bandwidth_mib_s")


def moved(work: Path, moves: int, name: str, limit: Callable[[Model], float]) -> dict[str, float]:
    parser = configparser.ConfigParser()
    text = (ROOT / "tests" / "emugpu" / "models" / f"{name}.ini").read_text()
    parser.read_string("[model]\n" + text)
    limit_s = limit(partial(parser.getfloat, "model"))
    with (
        EmulatedGpu(work / "gpu", name, devices=2) as gpu,
        Leased(work / "leased", work / "run", os.environ | gpu.env) as leased,
    ):
        bench = Bench(gpu, leased)
        every = max(1, moves // len(CALLS))
        for n in range(1, moves + 1):
            bench.move()
            if n % every == 0:
                bench.move(CALLS[n // every % len(CALLS)])
        bench.end()
    dead, away, driver = zip(*bench.dead)
    return {
        "bytes": SIZE,
        "dead_s": round(statistics.median(dead), 3),
        "dead_least_s": round(min(dead), 3),
        "dead_most_s": round(max(dead), 3),
        "away_s": round(statistics.median(away), 3),
        "driver_s": round(statistics.median(driver), 3),
        "back_s": round(statistics.median(all_ - out - of for all_, out, of in bench.dead), 3),
        "link_limit_s": round(limit_s, 3),
        "of_limit": round(statistics.median(all_ - of for all_, _, of in bench.dead) / limit_s, 3),
        "wrong": bench.wrong,
        "moves": len(bench.dead),
        "failed_back": bench.failed_back,
        "otherwise": bench.others,
    }


def run(work: Path, moves: int) -> dict[str, Any]:
    places = work / "host", work / "carrier", work / "saved"
    for place in places:
        place.mkdir()
    host, carrier, saved = places
    return {
        **moved(host, moves, BY_HOST, by_host_s),
        "carried": moved(carrier, moves, BY_CARRIER, by_carrier_s),
        **checkpoint_times(saved),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", type=int, default=100)
    moves = parser.parse_args().moves
    found = write("move", lambda work: run(work, moves))
    print("On the emulated GPU:", json.dumps(found))
    wrong = any(one["wrong"] or one["otherwise"] for one in (found, found["carried"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
