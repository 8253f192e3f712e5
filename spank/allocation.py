"""What Slurm gave a job on this node, as slurmctld says it, which users cannot change.

Compiled into gpu_share_python.so with register.py, and run without site packages:
only the standard library is there.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

# As long as slurmstepd itself tries to report the end of a batch job. A job that has its nodes
# begins without slurmctld, and one that shares waits for it.
PATIENCE_S = 3600.0
ANSWER_S = 30.0  # for one answer, and before it is said that none has come
AGAIN_S, AGAIN_MOST_S = 0.5, 5.0  # between two attempts, twice as long each time
LONGEST_ANSWER = 65536
NO_SUCH_JOB = 3  # exit status of gpu-lease-allocation (ask_allocation.c)
# One entry of a node's GRES: NAME[:TYPE]:COUNT(WHERE). WHERE is IDX:0,2-3, or from Slurm 23.11
# on, for shards, 1/4,0/4: by GPU, how many of its shards are the job's.
ENTRY = re.compile(r"([^,:()]+)(?::([^,()]*))?:(\d+)\(([^()]*|\(null\))\)|([^,()]+)\(CNT:\d+\)")
MOST_GPUS = 4096


class NoAnswer(Exception):
    """slurmctld has not said what the job has; the text is the reason."""


class Late(NoAnswer):
    """It has not said so in time, and may if it is asked again."""


class Allocation(NamedTuple):
    """job: the job as squeue shows it. start: when this run of it began, by slurmctld's clock, in
    seconds since 1970. nodes: all that the job has, in an order that is the same on each of them.
    node: which of them this one is; "": none. gpus: the GPUs of which it has shards, as
    indices in the order of gres.conf; shards_of: how many of each. whole: how many whole GPUs it
    has. component: whether it is a component of a heterogeneous job. partition, qos, account: "":
    it has none. restarts: how often it has begun anew.
    """

    nodes: tuple[str, ...]
    node: str
    shards: int
    gpus: tuple[int, ...]
    whole: int
    component: bool = False
    job: str = ""
    start: int = 0
    partition: str = ""
    qos: str = ""
    account: str = ""
    restarts: int = 0
    shards_of: tuple[int, ...] = ()


def places(text: str, count: int) -> dict[int, int]:
    """By GPU, the shards of it that one entry of `count` says. ValueError: its WHERE cannot be
    understood."""
    if text.startswith("IDX:"):
        found: list[int] = []
        for part in text.removeprefix("IDX:").split(","):
            first, _, last = part.partition("-")
            if int(last or first) >= MOST_GPUS:
                raise ValueError(text)
            found += range(int(first), int(last or first) + 1)
        return dict.fromkeys(found, max(1, count // max(1, len(found))))
    used = [int(part.partition("/")[0]) for part in text.split(",")]
    return {gpu: shards for gpu, shards in enumerate(used) if shards}


def parse(text: str) -> Allocation:
    """Parse the output of gpu-lease-allocation. NoAnswer: it cannot be read."""
    fields = dict(line.partition(" ")[::2] for line in text.splitlines())
    shards, whole = 0, 0
    gpus: dict[int, int] = {}
    try:
        gres = fields["gres"]
        entries = list(ENTRY.finditer(gres))
        if ",".join(entry[0] for entry in entries) != gres:
            raise ValueError(gres)
        for name, _, count, where, _ in (entry.groups() for entry in entries):
            if name == "shard" and int(count):
                shards += int(count)
                for gpu, number in places(where, int(count)).items():
                    gpus[gpu] = gpus.get(gpu, 0) + number
            elif name == "gpu":
                whole += int(count)
        nodes, node = tuple(fields["nodes"].split(",")), fields["node"]
        component = fields["component"] == "1"
        job, start = fields["job"], int(fields["start"])
        owner = fields["partition"], fields["qos"], fields["account"]
        restarts = int(fields["restarts"])
    except (KeyError, ValueError):
        raise NoAnswer(f"its answer cannot be read: {text[:200]!r}") from None
    return Allocation(
        *(nodes, node, shards, tuple(sorted(gpus)), whole, component, job, start, *owner),
        *(restarts, tuple(gpus[gpu] for gpu in sorted(gpus))),
    )


def output_of(command: list[str], patience_s: float) -> tuple[int, str, str]:
    """Run a command. Returns its exit status, output and errors. Late: it took too long and was
    ended."""
    out, out_end = os.pipe2(os.O_CLOEXEC)
    err, err_end = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            child = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out_end, 1),
                    (os.POSIX_SPAWN_DUP2, err_end, 2),
                ],
                setsigmask=[],  # slurmstepd blocks some
            )
        except OSError as fault:
            raise NoAnswer(f"{command[0]} does not start: {fault.strerror}") from None
        finally:
            os.close(out_end)
            os.close(err_end)
        try:
            said = read_all([out, err], time.monotonic() + patience_s)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        _, status = os.waitpid(child, 0)
    finally:
        os.close(out)
        os.close(err)
    return os.waitstatus_to_exitcode(status), said[out], said[err]


def read_all(pipes: list[int], deadline: float) -> dict[int, str]:
    """Read each pipe to its end. Late: the end has not come by the deadline (monotonic clock).
    NoAnswer: there is too much output."""
    said = dict.fromkeys(pipes, b"")
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    waiting = set(pipes)
    while waiting:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            raise Late("it does not answer")
        for pipe, _ in ready:
            data = os.read(pipe, 4096)
            said[pipe] += data
            if len(said[pipe]) > LONGEST_ANSWER:
                raise NoAnswer(f"it says more than {LONGEST_ANSWER} bytes")
            if not data:
                poll.unregister(pipe)
                waiting.discard(pipe)
    return {pipe: data.decode(errors="replace") for pipe, data in said.items()}


def ask_once(program: str, job_id: int, patience_s: float) -> Allocation:
    """Ask what Slurm gave the job. NoAnswer: it knows no such job. Late: it did not answer."""
    status, out, err = output_of([program, str(job_id)], patience_s)
    if status == 0:
        return parse(out)
    words = err.strip().splitlines()
    why = words[-1] if words else f"{program} ended with {status}"
    raise (NoAnswer if status == NO_SUCH_JOB else Late)(why)


def ask_slurmctld(
    program: str, job_id: int, say: Callable[[str], None], patience_s: float = PATIENCE_S
) -> Allocation:
    """Ask what Slurm gave the job, again and again while slurmctld is away. say: it has been for
    ANSWER_S. NoAnswer: slurmctld did not answer in time, or knows no such job."""
    began, pause, said = time.monotonic(), AGAIN_S, False
    while True:
        left = began + patience_s - time.monotonic()
        try:
            return ask_once(program, job_id, min(left, ANSWER_S))
        except Late as fault:
            if left < pause:
                raise
            if not said and time.monotonic() - began >= ANSWER_S:
                said = True
                say(
                    f"slurmctld does not say which GPUs job {job_id} has ({fault}); it is asked "
                    f"again for up to {patience_s / 60:.0f} minutes"
                )
        time.sleep(pause)
        pause = min(2 * pause, AGAIN_MOST_S)
