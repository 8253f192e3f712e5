"""The driver's process checkpoint, for the daemon: driver_child.py in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

from leased.base import children
from leased.base.waiting import is_done_within
from leased.moving.plan import Step
from leased.processes.identity import ProcessId, process_id
from leased.wire.device_bytes import uuid_bytes

BEGIN_S = 30.0  # cuInit wakes GPUs that sleep
STEP_S = 120.0  # a step may copy all memory that no mover has taken
LOCK_MS = 10_000  # for work that was submitted and has not finished
CHILD = "from leased.moving.driver_child import main; main()"
# Which GPUs it sees, and what it is preloaded with, is not for the daemon's environment to say.
NOT_ITS = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD")


class DriverFault(Exception):
    """The driver does not do what it is asked; the text is a clause that says why."""


class Lost(DriverFault):
    """The child has ended, or is not waited for any more: what it did last is not known."""


async def start(
    what: str, *command: str, pass_fds: Sequence[int] = ()
) -> asyncio.subprocess.Process:
    """A process that asks the driver; its stdin is closed when this one has ended. DriverFault:
    what cannot be started, in words."""
    kept = {name: text for name, text in os.environ.items() if name not in NOT_ITS}
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd="/",
            env=children.environment(kept),
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except OSError as fault:
        raise DriverFault(f"{what} cannot be started: {fault}") from None


class Driver:
    """One child. Use it as a context; it is ended then."""

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or children.python(CHILD)
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Driver:
        self._child = await start("a process that asks it", *self._command)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._child
        if self._child.returncode is None:
            self._child.kill()
        await self._child.wait()

    @property
    def process(self) -> ProcessId | None:
        """The child. None: it has ended."""
        assert self._child
        return process_id(self._child.pid) if self._child.returncode is None else None

    async def begin(self) -> dict[str, Any]:
        """has_map, uuids: see driver_child. DriverFault: there is no driver that can do it."""
        return await self._ask({"op": "begin"}, BEGIN_S)

    async def state(self, pid: int) -> str:
        """The state of a process. DriverFault: it does not use the driver, or has ended."""
        return str((await self._ask({"op": "state", "pid": pid}, BEGIN_S))["state"])

    async def take(self, step: Step, old: str, new: str) -> None:
        """Take a step of a plan that exchanges two GPUs, by UUID. DriverFault: it was not taken."""
        exchange = [uuid_bytes(uuid).hex() for uuid in (old, new)] if step.crosses else []
        request = {"op": step.what, "pid": step.pid, "patience_ms": LOCK_MS, "exchange": exchange}
        await self._ask(request, STEP_S)

    async def restore_here(self, pid: int, before: list[str], old: str, new: str) -> None:
        """Restore a process that was checkpointed on another machine: `before` are its GPUs, `old`
        the one that the process had, and `new` the one that it shall have here (hex digits)."""
        exchange = {"patience_ms": LOCK_MS, "exchange": [old, new], "before": before}
        await self._ask({"op": "restore", "pid": pid, **exchange}, STEP_S)

    async def _ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        answer = asyncio.ensure_future(self._answer(request))
        try:
            if not await is_done_within(answer, patience_s):
                raise Lost(f"it has not done within {patience_s:g} s what it was asked")
            said = json.loads(answer.result())
        except (OSError, ValueError):
            raise Lost("the process that asks the driver has ended") from None
        finally:
            answer.cancel()
            await asyncio.wait({answer})
        if "fault" in said:
            raise DriverFault(str(said["fault"]))
        return dict(said)

    async def _answer(self, request: dict[str, Any]) -> bytes:
        assert self._child
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(request).encode() + b"\n")
        await self._child.stdin.drain()
        return await self._child.stdout.readline()
