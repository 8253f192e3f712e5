"""Jobs that wait for their turn save what they have when Slurm tells them to, or before it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leased import policy
from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

MODEL = "emu-a100-tiny"
MIB = 40  # of a device of 64 MiB, so that one job's memory must leave for the other's

# It is never idle, and its turn lasts longer than the tests do.
HOLDS = (
    SET_UP
    + f"""
import pathlib
p = ok(d.cuMemAlloc({MIB} << 20)); ok(d.cuMemsetD32(p, 7, {MIB} << 18)); ok(d.cuCtxSynchronize())
one, other = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
while not os.path.exists(sys.argv[1] + ".end"):
    ok(spin(50_000_000)); ok(d.cuEventRecord(one, 0)); ok(d.cuEventSynchronize(other))
    one, other = other, one
    pathlib.Path(sys.argv[1] + ".steps").open("a").write(".")
"""
)
# As submitit and Lightning do it: a handler notes the signal, and after the step a file is written.
# Or it has no handler, and sees by itself after a step that it must come to its end.
TRAINS = (
    SET_UP
    + f"""
import pathlib, signal
noted = []
if sys.argv[2] == "handles":
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda *_: noted.append(1))
p = ok(d.cuMemAlloc({MIB} << 20)); ok(d.cuMemsetD32(p, 5, {MIB} << 18)); ok(d.cuCtxSynchronize())
pathlib.Path(sys.argv[1] + ".began").touch()
step = 0
while not noted and not os.path.exists(sys.argv[1] + ".late"):
    ok(spin(20_000_000)); ok(d.cuCtxSynchronize()); step += 1
host = bytearray({MIB} << 20); ok(d.cuMemcpyDtoH(host, p, len(host)))
assert host == (5).to_bytes(4, "little") * (len(host) // 4)
pathlib.Path(sys.argv[1] + ".saved").write_text(str(step))
"""
)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    often = ["leased.monitors.ended_jobs.EVERY_S=0.5"]
    conf = f'[device]\npolicy = "{request.param}"\n'
    # A job that is cancelled or preempted has as long as a busy machine needs: a batch script is
    # told by the SIGTERM at the end of its grace, and KillWait follows.
    slurm = [
        *("SelectTypeParameters=CR_CPU_Memory", "KillWait=120"),
        *("PreemptType=preempt/partition_prio", "PreemptMode=CANCEL"),
        "PartitionName=low Nodes=ALL State=UP PriorityTier=0 PreemptMode=CANCEL GraceTime=1",
    ]
    with sharing_site(leased_conf=conf, hurried=often, slurm_conf=slurm, model=MODEL) as found:
        yield found


@dataclass
class Job:
    """A job that was submitted; its files begin with `path`."""

    number: int
    path: Path

    def file(self, what: str) -> Path:
        return Path(f"{self.path}.{what}")

    def steps(self) -> int:
        return self.file("steps").stat().st_size


def submit(site: Site, name: str, program: str, options: str, *more: str, how: str = "") -> Job:
    path = site.work / name
    Path(f"{path}.py").write_text(program)
    script = Path(f"{path}.sh")
    command = f"{sys.executable} {path}.py {path} {how}"
    script.write_text(f"#!/bin/sh\ncd {ROOT} || exit 9\nexec {command}\n")
    number = site.slurm.sbatch(
        *("--gres=shard:1", "--mem=900M", f"--gpu-share=lock:on,memory:swap,{options}", *more),
        *("-o", f"{path}.log", str(script)),
        cwd=site.work,
    )
    return Job(number, path)


def sends_usr1(site: Site, waiter: Job) -> None:
    site.slurm.run("scancel", "--signal=USR1", "--full", str(waiter.number))


def cancels(site: Site, waiter: Job) -> None:
    """Slurm sends SIGTERM, and SIGKILL when KillWait is over."""
    site.slurm.run("scancel", str(waiter.number))


def is_preempted(site: Site, _: Job) -> None:
    """Another one needs its memory. slurmctld looks now and then whose GraceTime is over, sends
    SIGTERM then, and SIGKILL when KillWait is over."""
    site.slurm.sbatch("--mem=2900M", "-o", "/dev/null", "--wrap=true")


def nears_its_limit(_: Site, waiter: Job) -> None:
    """Its limit is so short that it is near as soon as it waits."""
    waiter.file("late").touch()


@pytest.mark.parametrize(
    ("site", "event"),
    [
        *((name, sends_usr1) for name in policy.names()),
        *((policy.DEFAULT, event) for event in (cancels, is_preempted, nears_its_limit)),
    ],
    indirect=["site"],
)
def test_a_waiter_saves_what_it_has(site: Site, event: Callable[[Site, Job], None]) -> None:
    """Behind a holder whose turn lasts ten minutes, which goes on afterwards."""
    how = "notices" if event is nears_its_limit else "handles"
    more = ("--time=1", *(["--partition=low"] if event is is_preempted else []))
    waiter = submit(site, f"waiter-{event.__name__}", TRAINS, "tq:1", *more, how=how)
    wait_until("it to begin", waiter.file("began").exists)
    holder = submit(site, f"holder-{event.__name__}", HOLDS, "tq:600")
    try:
        wait_until("the other to hold", holder.file("steps").exists)
        event(site, waiter)
        wait_until("it to save", waiter.file("saved").exists)
        ended = {"cancels": "CANCELLED", "is_preempted": "PREEMPTED"}
        assert site.slurm.wait(waiter.number) == ended.get(event.__name__, "COMPLETED")
        steps = holder.steps()
        wait_until("the holder to go on", lambda: holder.steps() > steps)
    finally:
        holder.file("end").touch()
        site.slurm.run("scancel", str(waiter.number), check=False)
    assert site.slurm.wait(holder.number) == "COMPLETED"
