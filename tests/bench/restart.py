"""How long waiters wait longer when the daemon is killed: `make bench NAME=restart`.

A holder works without pause, a waiter waits; the daemon is killed with SIGKILL
and started again, and the holder is killed in between, so that its GPU is free.
`granted_s`: from the new daemon's being ready to the waiter's grant: the grace in
which holders come back, and the time in which the waiter finds the daemon.
`ready_s`: from the kill until the new daemon is ready. `direct_s`, the baseline of
the same run: from the holder's death to the grant without a restart. All in
seconds, the worst of the rounds. systemd's descriptor store is not used here;
with it connections need not be found again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from leased.api.client import ask
from tests.bench import write
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support import tenant
from tests.support.programs import SET_UP, line, state

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 6
HOLD = SET_UP + "say(os.getpid())\nwhile True: ok(spin(3_000_000)); ok(spin(3_000_000))\n"
WAIT = SET_UP + "say('asks'); ok(spin(1000)); say('ran')"


def start(leased: Leased, job: int, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        tenant.command(leased.admin_socket, job, "tq:10m,lock:on", sys.executable, "-c", code),
        cwd=ROOT,
        env=leased.env,
        stdout=subprocess.PIPE,
        text=True,
    )


def one_round(leased: Leased, number: int, restart: bool) -> tuple[float, float]:
    """(seconds until the daemon is ready, seconds from then to the waiter's grant)."""
    holder = start(leased, 2 * number, HOLD)
    pid = int(line(holder))
    wait_until("the holder to hold", lambda: state(leased, 2 * number) == "holds")
    waiter = start(leased, 2 * number + 1, WAIT)
    assert line(waiter) == "asks"
    wait_until("the waiter to wait", lambda: state(leased, 2 * number + 1) == "waits")
    begin = time.monotonic()
    if restart:
        leased.kill()
    os.kill(pid, signal.SIGKILL)
    if restart:
        leased.start()
    ready = time.monotonic()
    assert line(waiter) == "ran"
    granted = time.monotonic()
    holder.wait()
    waiter.wait()
    for job in (2 * number, 2 * number + 1):
        ask(leased.admin_socket, {"op": "job_end", "job_id": job})
    return ready - begin, granted - ready


def run(work: Path) -> dict[str, float]:
    with (
        EmulatedGpu(work / "gpu") as gpu,
        Leased(work / "leased", work / "run", os.environ | gpu.env) as leased,
    ):
        direct = [one_round(leased, n, restart=False)[1] for n in range(1, ROUNDS)]
        killed = [one_round(leased, n, restart=True) for n in range(ROUNDS, 2 * ROUNDS)]
    return {
        "ready_s": round(max(ready for ready, _ in killed), 3),
        "granted_s": round(max(granted for _, granted in killed), 3),
        "direct_s": round(max(direct), 3),
    }


def main() -> None:
    print(json.dumps(write("restart", run)))


if __name__ == "__main__":
    main()
