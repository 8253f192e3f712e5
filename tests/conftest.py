"""What tests of several folders share: an emulated GPU, the daemon, jobs without Slurm."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from leased.store.store import Store
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.loopback import loopback_name
from tests.slurm.processes import StartError
from tests.support import again, daemon_logs, leaks, leftovers, loops, parallel
from tests.support.scheduling import GroupScheduling
from tests.support.template import TEMPLATES
from tests.support.tenant import command as tenant_command
from tests.support.tenant import end_job
from tests.support.work_dir import place_of_tmp_path, work_dir

ROOT = Path(__file__).resolve().parents[1]
JOB = ROOT / "tests" / "demo" / "job.py"
PIECE_S = 20e-6  # about what a message takes the daemon on a machine that does nothing else


# A machine that is busy with something else makes no example of hypothesis wrong.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    # Jobs that import numpy do not multiply with it, and threads of it cost each as much again.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # One name of this host for all tests, also those that take it before a Slurm is started.
    with contextlib.suppress(StartError):
        loopback_name()
    loops.events_have_the_loop_that_waits()
    TEMPLATES.use()
    if not is_worker(config):
        if place := place_of_tmp_path():
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))
        again.begin()
        leftovers.mark_this_run()
        # Whoever ends the run, CI for one, ends it as Ctrl-C does: with its daemons.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_keyboard_interrupt() -> None:
    """The fixtures end their daemons now; pytest-xdist interrupts a worker twice."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing that the run has started goes on after it; `make again` finds what failed."""
    TEMPLATES.end()
    if is_worker(session.config):
        return
    stats = session.config.pluginmanager.getplugin("terminalreporter").stats
    reports = [*stats.get("failed", []), *stats.get("error", [])]
    failed, beyond = sorted({report.nodeid for report in reports}), again.beyond_tests(reports)
    for process in leftovers.end_all():
        beyond.append(f"was left behind and is killed: {process.pid} {process.command}")
        print(f"\n{beyond[-1]}")
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    again.write(again.LastRun(int(session.exitstatus), failed, beyond))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: workers take groups in the order of their first tests."""
    files = parallel.longest_first(item.nodeid for item in items)
    places = {file: place for place, file in enumerate(files)}
    items.sort(key=lambda item: places[parallel.file_of(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in a loop of its own."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Whole groups of tests for each worker, whatever `--dist` says."""
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the daemons that run wrote last."""
    report = yield
    if report.failed:
        report.sections += daemon_logs.sections()
    return report


@pytest.fixture(autouse=True)
def counted_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of the daemon's work takes the same. Otherwise users would owe it what a busy
    machine or a collection of garbage takes, where their time stands still."""
    readings = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(readings) * PIECE_S)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """Set up before a test's other fixtures and ended after them; those of a file are there."""
    with leaks.watched() as watch:
        yield
        left = watch.end()
    if left:
        pytest.fail("the test leaves behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a short path, for sockets; open to every user."""
    path = work_dir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def marked(request: pytest.FixtureRequest, mark: str) -> dict[str, Any]:
    """What a test, or else its file, says by a mark of this name."""
    said = request.node.get_closest_marker(mark)
    return said.kwargs if said else {}


@pytest.fixture
def emulated_gpu(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[EmulatedGpu]:
    """One emulated GPU that keeps a trace of who computed when; others by the mark `emulated`."""
    chosen = {"model": "emu-h200-checked"} | marked(request, "emulated")
    with EmulatedGpu(short_dir / "gpu", trace=True, **chosen) as gpu:
        yield gpu


@pytest.fixture
def uncontrolled(emulated_gpu: EmulatedGpu) -> None:
    """Processes cannot control their channel groups, so work is waited for, and never stopped in
    mid-kernel."""
    emulated_gpu.fail(0, "controls-unknown")


@pytest.fixture
def leased(
    short_dir: Path, emulated_gpu: EmulatedGpu, request: pytest.FixtureRequest
) -> Iterator[Leased]:
    """gpu-leased on the emulated GPU; the mark `daemon` says what else Leased is to be told."""
    env, more = os.environ | emulated_gpu.env, {"preload": CHECKED} | marked(request, "daemon")
    with Leased(short_dir / "leased", short_dir / "run", env, **more) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def kept_leased() -> Iterator[Leased]:
    """gpu-leased on an emulated GPU, one for all tests of a file that leave it as it is: they look,
    or are refused."""
    place = work_dir()
    with EmulatedGpu(place / "gpu", trace=True) as gpu:
        env = os.environ | gpu.env
        with Leased(place / "leased", place / "run", env, preload=CHECKED) as daemon:
            yield daemon
    shutil.rmtree(place, ignore_errors=True)


OpenStore = Callable[[Path], Store]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Open a store; all of them are closed after the test, as each daemon's is at its end."""
    with contextlib.ExitStack() as opened:
        yield lambda path: opened.enter_context(contextlib.closing(Store(path)))


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def tenant(leased: Leased) -> Iterator[Start]:
    """Start a Python program as a job: tenant(job, options, script, *arguments, gpus="0,1")."""
    started: list[subprocess.Popen[str]] = []

    def start(
        job: int,
        options: str,
        *command: str,
        env: Mapping[str, str] | None = None,
        gpus: str = "0",
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            tenant_command(leased.admin_socket, job, options, sys.executable, *command, gpus=gpus),
            cwd=ROOT,
            env=leased.env | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        end_job(process)
