"""What the chaos test does to a site while jobs run: kills, stops, restarts, in an order drawn
from one seed.

Each blow has its time by the jobs' progress (the part of all their steps that
is done), never by the clock: a slow machine gets the same storm.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.slurm.chaos_jobs import MARK, STEPS, Run
from tests.slurm.cluster import FINISHED, PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.recorded import Records
from tests.support.together import zip_strict

PROGRAM = b"tests.slurm.chaos_job"
LOOK_S = 0.2
LONGEST_DOWN_S = 1.5
# A stopped process goes on when its job's lease has gone to others, and after so long at the
# latest.
LONGEST_STOP_S = 5.0
STALLED_S = 60.0


def processes(out: Path) -> dict[int, str]:
    """Processes of the jobs that write to `out`, by pid: the job's name."""
    mark = f"{MARK}={out}/".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for word in (entry / "environ").read_bytes().split(b"\0"):
                if word.startswith(mark):
                    found[int(entry.name)] = word[len(mark) :].decode()
    return found


def programs(out: Path) -> dict[int, str]:
    """Those of them that compute, not their shells and sruns."""
    found = {}
    for pid, name in processes(out).items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", PROGRAM]:
                found[pid] = name
    return found


@dataclass
class Stopped:
    """A process that waits for its SIGCONT. held: its job had the lease when it was stopped."""

    pid: int
    run: Run
    held: bool
    since: float


@dataclass
class Storm:
    """The blows. Times are in seconds since the epoch.

    down: when the daemon was down, as (from, to). failed: by UUID, when a device failed.
    pids: programs that were seen, and their jobs. forced: indices of devices whose lock was.
    """

    slurm: PrivateSlurm
    leased: Leased
    gpu: EmulatedGpu
    runs: dict[str, Run]
    out: Path
    rng: random.Random
    records: Records
    stopped: list[Stopped] = field(default_factory=list)
    down: list[tuple[float, float]] = field(default_factory=list)
    failed: dict[str, float] = field(default_factory=dict)
    pids: dict[int, str] = field(default_factory=dict)
    forced: set[int] = field(default_factory=set)
    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(f"{time.strftime('%H:%M:%S')} {self.progress():5.1%} {text}")

    # -- looking ------------------------------------------------------------------

    def look_at_programs(self) -> dict[int, str]:
        """Programs that run now, by pid: the job's name."""
        found = programs(self.out)
        self.pids |= found
        return found

    def status(self) -> dict[str, Any]:
        return ask(self.leased.admin_socket, {"op": "status"})

    def job_states(self) -> dict[int, str]:
        """Slurm's state of every job, also of those that have ended."""
        lines = self.slurm.run("squeue", "-h", "-t", "all", "-o", "%A %T").stdout.splitlines()
        return {int(line.split()[0]): line.split()[1] for line in lines}

    def progress(self) -> float:
        """Part of all steps that is done, of the jobs that nothing was done to."""
        whole = [run for run in self.runs.values() if not run.hurt]
        todo = sum(len(run.spec.rank_names()) * STEPS for run in whole)
        return min(1.0, sum(run.steps_done() for run in whole) / todo)

    def wait_for_progress(self, part: float) -> None:
        """Until so much is done. TimeoutError: nothing has moved for a long time."""
        last, since = self.progress(), time.monotonic()
        while (now := self.progress()) < part:
            if now > last:
                last, since = now, time.monotonic()
            if time.monotonic() - since > STALLED_S:
                raise TimeoutError(f"no job went on for {STALLED_S:g} s, at {now:.0%}")
            self.continue_stopped()
            self.look_at_programs()
            time.sleep(LOOK_S)

    # -- blows ----------------------------------------------------------------------

    def blows(self) -> list[Callable[[], None]]:
        """Everything that happens, in an order of its own for each seed."""
        blows = [self.kill_daemon] * 5 + [self.restart_daemon]
        blows += [self.kill_program] * 4 + [self.stop_program] * 5 + [self.cancel_job]
        blows += [self.force_lock] * 2
        self.rng.shuffle(blows)
        return blows

    def rage(self) -> None:
        """All blows, spread over the time that the jobs take."""
        blows = self.blows()
        times = sorted(self.rng.uniform(0.02, 0.6) for _ in blows)
        for at, blow in zip_strict(times, blows):
            self.wait_for_progress(at)
            blow()

    # -- devices that fail ------------------------------------------------------------

    def break_devices(self, submit_more: Callable[[], None]) -> None:
        """An ECC error on one device; another is lost and comes back, a third is lost for good.

        Slurm sends jobs to a broken device as to any other, so no job waits for one then,
        and `submit_more` is called when two of the three are well again.
        """
        ecc, away, gone = self.rng.sample(self.gpu.stats()["devices"], 3)
        self._wait_for_begin()
        self._fail(ecc, "ecc")
        self._fail(away, "lost")
        self.rng.choice([self.kill_daemon, self.stop_program])()
        self.wait_for_progress(min(0.9, self.progress() + 0.05))
        self.gpu.fail(away["index"], "repaired")
        self.restart_daemon()  # an administrator's part: it looks for GPUs when it starts
        submit_more()
        self._wait_for_begin()
        self._fail(gone, "lost")
        self.rng.choice([self.kill_daemon, self.restart_daemon, self.kill_program])()

    def _fail(self, device: dict[str, Any], fault: str) -> None:
        self.say(f"device {device['index']}: {fault}")
        self.failed[device["uuid"]] = time.time()
        self.gpu.fail(device["index"], fault)

    def _wait_for_begin(self) -> None:
        """Until every job that is well computes or has ended. TimeoutError names the others."""
        try:
            wait_until(
                "every job to begin", self._all_have_begun, timeout=3 * STALLED_S, step=LOOK_S
            )
        except TimeoutError as fault:
            raise TimeoutError(f"{fault}:\n{self._shown(self._not_begun())}") from None

    def _not_begun(self) -> list[str]:
        runs = self.runs.items()
        return [name for name, run in runs if not run.hurt and not run.steps_done()]

    def _all_have_begun(self) -> bool:
        """AssertionError: one has ended instead."""
        self.continue_stopped()
        missing = self._not_begun()
        states = self.job_states() if missing else {}
        ended = [name for name in missing if states[self.runs[name].job_id] in FINISHED]
        # It may have done all of its work since it was looked at.
        ended = [name for name in ended if not self.runs[name].steps_done()]
        assert not ended, f"they have ended and done nothing:\n{self._shown(ended)}"
        return not missing

    def _shown(self, names: list[str]) -> str:
        logs = [f"{name}: {self.runs[name].log()}" for name in names]
        return "\n".join([*logs, self.slurm.run("squeue", "-l", "-t", "all").stdout])

    def calm(self) -> None:
        """Nothing more happens: what was stopped or forced is put back."""
        for stopped in list(self.stopped):
            self._continue(stopped)
        ask(self.leased.admin_socket, {"op": "set", "lock": "user"})

    def kill_daemon(self) -> None:
        """SIGKILL; while it is down something else may happen, then it starts again."""
        since = time.time()
        self.leased.kill()
        self.say("daemon killed")
        if self.rng.random() < 0.5:
            self.rng.choice([self.kill_program, self.stop_program])()
        time.sleep(self.rng.uniform(0, LONGEST_DOWN_S))
        self._start_daemon(since)

    def restart_daemon(self) -> None:
        since = time.time()
        self.leased.stop()
        self._start_daemon(since)
        self.say("daemon restarted")

    def _start_daemon(self, since: float) -> None:
        self.records.keep()
        self.leased.start()
        self.down.append((since, time.time()))

    def _victims(self) -> Iterator[tuple[int, Run]]:
        """Programs of jobs that are well, in a random order."""
        stopped = {one.pid for one in self.stopped}
        found = sorted(self.look_at_programs().items())
        self.rng.shuffle(found)
        for pid, name in found:
            if not self.runs[name].hurt and pid not in stopped:
                yield pid, self.runs[name]

    def kill_program(self) -> None:
        for pid, run in self._victims():
            run.hurt = "killed"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.say(f"killed process {pid} of {run.spec.name}")
            return

    def stop_program(self) -> None:
        """SIGSTOP; most often of one whose job has the lease, the case that matters."""
        holders = self._holders()
        victims = list(self._victims())
        holding = [v for v in victims if v[1].job_id in holders]
        for pid, run in holding or victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                # It may have released before it was stopped.
                held = run.job_id in holders and run.job_id in self._holders()
                self.stopped.append(Stopped(pid, run, held, time.monotonic()))
                run.touched.append("stopped")
                self.say(f"stopped process {pid} of {run.spec.name}, which {held=}")
            return

    def _holders(self) -> set[int]:
        """Jobs with a lease; empty while the daemon is down."""
        if self.leased.daemon is None or not self.leased.daemon.running():
            return set()
        return {t["job_id"] for t in self.status()["tenants"] if t["state"] == "holds"}

    def continue_stopped(self) -> None:
        """SIGCONT for those that have been stopped for long enough."""
        if not self.stopped:
            return
        holders = self._holders()
        for stopped in list(self.stopped):
            passed_on = stopped.held and stopped.run.job_id not in holders
            if passed_on or time.monotonic() - stopped.since > LONGEST_STOP_S:
                self._continue(stopped)

    def _continue(self, stopped: Stopped) -> None:
        self.stopped.remove(stopped)
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGCONT)
        self.say(f"continued process {stopped.pid} of {stopped.run.spec.name}")

    def cancel_job(self) -> None:
        for _, run in self._victims():
            run.hurt = "cancelled"
            self.slurm.run("scancel", str(run.job_id))
            self.say(f"cancelled {run.spec.name}")
            return

    def force_lock(self) -> None:
        """What an administrator may do at any time, on one device."""
        device = self.rng.choice(self.status()["devices"])
        lock = self.rng.choice(["on", "auto", "user"])
        self.forced.add(device["index"])
        ask(self.leased.admin_socket, {"op": "set", "device": device["uuid"], "lock": lock})
        self.say(f"device {device['index']}: lock {lock}")

    def wait_for_end(self, timeout: float) -> dict[int, str]:
        """Until Slurm has seen the end of every job; their states."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            states = self.job_states()
            if all(states[run.job_id] in FINISHED for run in self.runs.values()):
                return states
            time.sleep(LOOK_S)
        running = [r.spec.name for r in self.runs.values() if states[r.job_id] not in FINISHED]
        raise TimeoutError(f"after {timeout:g} s these jobs have not ended: {running}")
