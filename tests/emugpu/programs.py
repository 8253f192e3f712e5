"""Run the tests' programs, each in a process of its own, on an emulated GPU."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.emugpu.server import ROOT, EmulatedGpu

IMPORTS = "from tests.emugpu.program_api import *\n"
TIMEOUT_S = 60


def case(programs: str, name: str, *arguments: str) -> str:
    """A program that is a function of a file of programs, by the file's path in the checkout."""
    module = programs.replace("/", ".").removesuffix(".py")
    return f"from {module} import {name}\n{name}(*{arguments!r})\n"


def cases(programs: str) -> list[str]:
    """The tests among the functions of a file: one process runs each, which imports the file.

    It is read and not imported: the file sets up a device.
    """
    found = ast.parse((ROOT / programs).read_text()).body
    return [
        node.name
        for node in found
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


@contextmanager
def program(gpu: EmulatedGpu, code: str) -> Iterator[subprocess.Popen[str]]:
    """A running program; killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTS + code],
        cwd=ROOT,
        env=os.environ | gpu.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str], timeout: float = TIMEOUT_S) -> str:
    """Wait for its end; what it still printed. A failure shows its errors."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def run(gpu: EmulatedGpu, code: str) -> str:
    """Run a program to its end; what it printed."""
    with program(gpu, code) as process:
        return finish(process)


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line it prints, with its end; "" where it prints none any more.

    Byte by byte: readline takes more than a line out of the pipe where there is more, and
    communicate, which reads the pipe itself, would not give that back.
    """
    assert process.stdout is not None
    said = bytearray()
    while not said.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        said += byte
    return said.decode()


def line(process: subprocess.Popen[str]) -> str:
    """The next line it prints; a program that died shows its errors."""
    text = next_line(process)
    if not text:
        raise AssertionError(process.communicate(timeout=TIMEOUT_S)[1])
    return text.strip()


def go_on(process: subprocess.Popen[str]) -> None:
    """Let it return from wait()."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
