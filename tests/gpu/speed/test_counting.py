"""The counter that the driver loads into a program, with a CUPTI of our own; what files say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.speed.counting import CannotCount, Counted, read_counts

COUNTER = Path(__file__).parents[1] / "count_calls.cu"

# It calls back for five launches and a copy as soon as it is enabled, on enter and on exit.
CUPTI = """
struct call { int site; const char *function; };
typedef void callback(void *user, int domain, unsigned id, const struct call *call);
static callback *subscribed;

int cuptiSubscribe(void **subscriber, callback *call, void *user)
{
	*subscriber = &subscribed;
	subscribed = call;
	return REFUSES;
}

int cuptiEnableDomain(unsigned enable, void *subscriber, int domain)
{
	for (int n = 0; n < 6; n++)
		for (int site = 0; site < 2; site++) {
			struct call call = {site, n < 5 ? "cuLaunchKernel" : "cuMemcpyAsync"};
			subscribed(0, domain, n < 5 ? 307 : 276, &call);
		}
	return 0;
}
"""

# A program: the driver in it loads the counter. It forks a child, which leaves nothing.
PROGRAM = """
import ctypes, os, sys
assert ctypes.CDLL(sys.argv[1]).InitializeInjection() == 1
if os.fork() == 0:
    sys.exit(0)
os.wait()
if sys.argv[2] == "killed":
    os._exit(0)
"""


def compile_library(source: str, target: Path, *flags: str) -> Path:
    command = ["cc", "-shared", "-fPIC", "-x", *flags, "-o", str(target), "-"]
    subprocess.run(command, input=source, text=True, check=True)
    return target


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no compiler of C++")
    target = tmp_path_factory.mktemp("counter") / "count_calls"
    return compile_library(COUNTER.read_text(), target, "c++")


def run_program(counter: Path, folder: Path, refuses: int = 0, how: str = "ends") -> Path:
    cupti = compile_library(CUPTI, folder / "cupti.so", "c", f"-DREFUSES={refuses}")
    calls = folder / "calls"
    calls.mkdir(exist_ok=True)
    env = os.environ | {"COUNT_CALLS_CUPTI": str(cupti), "COUNT_CALLS_DIR": str(calls)}
    subprocess.run([sys.executable, "-c", PROGRAM, str(counter), how], env=env, check=True)
    return calls


def test_every_process_that_uses_the_driver_is_counted(counter: Path, tmp_path: Path) -> None:
    for _ in range(2):
        calls = run_program(counter, tmp_path)
    found = read_counts(calls)
    assert found.calls == {"cuLaunchKernel": 10, "cuMemcpyAsync": 2}
    assert (found.processes, found.unfinished) == (2, 0)
    assert found.span_s > 0


def test_a_process_that_ends_otherwise_is_known(counter: Path, tmp_path: Path) -> None:
    run_program(counter, tmp_path, how="killed")
    assert read_counts(run_program(counter, tmp_path)).unfinished == 1


def test_the_refusal_of_cupti_is_said(counter: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotCount, match="CUPTI's error 39"):
        read_counts(run_program(counter, tmp_path, refuses=39))


def test_files_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("counted 1000 3000\ncuLaunchKernel 7\n")
    (tmp_path / "2").write_text("counted 2000 500002000\ncuLaunchKernel 1\ncuMemAlloc_v2 2\n")
    (tmp_path / "3").write_text("counted 0 0\n")
    (tmp_path / "4").write_text("began\n")
    calls = {"cuLaunchKernel": 8, "cuMemAlloc_v2": 2}
    assert read_counts(tmp_path) == Counted(calls, 0.500001, 3, 1)


def test_where_nothing_counts_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotCount, match="the driver loaded no counter"):
        read_counts(tmp_path)
    (tmp_path / "1").write_text("began\n")
    with pytest.raises(CannotCount, match="no process ended by exit"):
        read_counts(tmp_path)
