"""The template of `template.py`: `python -m tests.support.template_program DESCRIPTOR`."""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from tests.support.together import zip_strict

MODULES = (
    *("leased.node.daemon", "leased.copies.keeper", "leased.placer.service"),
    *("tests.slurm.hurried", "tests.slurm.activate", "tests.fault.askers"),
)
MOST_FDS = 64
MESSAGE = 1 << 20  # bytes


def receive(from_tests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request with its descriptors; None: the tests have ended."""
    fds = array.array("i")
    message, rights, _, _ = from_tests.recvmsg(MESSAGE, socket.CMSG_SPACE(MOST_FDS * fds.itemsize))
    for _, _, data in rights:
        fds.frombytes(data)
    return (json.loads(message), list(fds)) if message else None


def status_of(pid: int) -> int | None:
    """The exit status of a program that has ended, negative for a signal; None: it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(request: dict[str, Any], fds: Sequence[int]) -> None:
    """What an exec would have set up: descriptors, session, directory, environment, arguments."""
    above = 1 + max(*request["numbers"], *fds)
    moved = [os.dup2(fd, above + place) for place, fd in enumerate(fds)]
    for fd, number in zip_strict(moved, request["numbers"]):
        os.dup2(fd, number, inheritable=True)
    kept = sorted({0, *request["numbers"]})
    for low, high in zip_strict(kept, [*kept[1:], above + len(fds)]):
        os.closerange(low + 1, high)
    os.setsid()
    os.umask(request["umask"])
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [request["module"], *request["arguments"]]


def serve(from_tests: socket.socket) -> dict[str, Any] | None:
    """In a new process: what it is to run. In the template, when the tests have ended: None."""
    while (received := receive(from_tests)) is not None:
        request, fds = received
        answer: int | None
        if "ended" in request:
            answer = status_of(request["ended"])
        elif (answer := os.fork()) == 0:
            from_tests.close()
            become(request, fds)
            return request
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(BrokenPipeError):
            from_tests.send(json.dumps(answer).encode())
    return None


def status_of_run(module: str) -> int:
    """Run a module as `python -m` does; its exit status. What it raises is printed."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(status: int) -> NoReturn:
    """End as Python does, but for the objects of all modules. To free them takes longer than most
    daemons of the tests have worked, as each page is the template's and is copied first."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def main() -> None:
    from_tests = socket.socket(fileno=int(sys.argv[1]))
    for module in MODULES:
        __import__(module)
        del sys.modules[module]  # what it imports is here, and it runs as if nobody had imported it
    gc.collect()
    gc.freeze()  # so that the forks share what is here
    request = serve(from_tests)
    if request is not None:
        leave(status_of_run(request["module"]))


if __name__ == "__main__":
    main()
