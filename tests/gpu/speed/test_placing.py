"""Programs that are measured run where they are put."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.gpu.speed.placing import ENOUGH, OWN, fixed_addresses, own_cores, pin, share_of

CHILD = """
import os, subprocess, sys, threading
ready, stop = threading.Barrier(2), threading.Event()
threading.Thread(target=lambda: (ready.wait(), stop.wait())).start()
ready.wait()
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
print("ready", child.pid, flush=True)
sys.stdin.readline()
tasks = [int(task) for task in os.listdir("/proc/self/task")] + [child.pid]
print(len(tasks), *{tuple(os.sched_getaffinity(task)) for task in tasks}, flush=True)
stop.set()
child.stdin.close()
child.wait()
"""


def test_every_thread_and_process_of_a_group_is_put_on_the_cores() -> None:
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline().startswith("ready")
        pin(process.pid, [core])
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == f"3 ({core},)\n"


def test_parts_are_neighbours_and_leave_nothing_out() -> None:
    parts = [share_of(range(8), n, 2) for n in range(2)]
    assert parts == [[0, 1, 2, 3], [4, 5, 6, 7]]
    uneven = [core for n in range(3) for core in share_of(range(10), n, 3)]
    assert uneven == list(range(10))


def test_a_command_with_fixed_addresses_runs() -> None:
    done = subprocess.run([*fixed_addresses(), "echo", "here"], capture_output=True, check=True)
    assert done.stdout == b"here\n"


def test_each_of_several_programs_has_cores_that_nobody_else_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores, kept = ENOUGH + 2 * OWN, list[set[int]]()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, given: kept.append(set(given)))
    first, second = own_cores(2)
    assert len(first) == len(second) == OWN
    assert set(first) | set(second) | kept[0] == set(range(cores))
    assert len(kept[0]) == ENOUGH


def test_a_machine_of_few_cores_divides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert own_cores(2) == [[0, 1], [0, 1]]
