"""Adds to each test in the JUnit report what processor time it took, with all that it started.

`make test ARGS="-p tests.support.processor --junit-xml=JUNIT.xml"`, as root where the cgroup
controller cpuacct has a hierarchy of its own: each process that runs tests gets a cgroup there, in
which its daemons stay whoever their parent is. Elsewhere only children that it waits for count.
A busy machine makes tests take longer, and not so much more processor time: `durations.py` sums it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import pytest

HIERARCHY = Path("/sys/fs/cgroup/cpuacct")
OWN = HIERARCHY / f"gpul-tests-{os.getpid()}"
PROPERTY = "processor_s"


def pytest_configure() -> None:
    with contextlib.suppress(OSError):
        OWN.mkdir()
        (OWN / "cgroup.procs").write_text(str(os.getpid()))


def pytest_unconfigure() -> None:
    with contextlib.suppress(OSError):
        (HIERARCHY / "cgroup.procs").write_text(str(os.getpid()))
        OWN.rmdir()


def used() -> float:
    """Seconds of processor time so far."""
    with contextlib.suppress(OSError):
        return int((OWN / "cpuacct.usage").read_text()) / 1e9
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        before = item.stash[BEFORE]
        report.user_properties.append((PROPERTY, f"{used() - before:.3f}"))
    return report


BEFORE = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEFORE] = used()
