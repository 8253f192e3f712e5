"""Write usage into Slurm's accounting through libslurm, which may end the process it runs in.

So main() runs in a child process. It reads one line of JSON for each job from standard input:
{"runs": [RUN, ...], "indices": {UUID: INDEX}, "node": NAME}, with all runs that the store has of
the job, and what Slurm calls this node. It writes one line for each run to standard output as soon
as the outcome is known: {"run": [JOB_ID, OPENED], "done": true, "why": ""}, where `why` says what
kept it from being done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from leased.base.errors import Refused
from leased.slurm.accounting import JobRow, by_row, comment, waits_for
from leased.slurm.usage_record import LONGEST, merged
from leased.store.records import TenantRecord
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage

ROWS_MOST = 4096  # runs of one job
# Rows are asked for that begin and end at most so long before and after the runs. munge lets clocks
# of hosts differ by 300 s.
AROUND_S = 600


def encode(runs: list[TenantRecord], indices: Mapping[str, int], node: str = "") -> str:
    """A job's line on standard input. indices: Slurm's indices of the devices, by UUID."""
    used = {uuid: indices[uuid] for run in runs for uuid in run.usage if uuid in indices}
    return json.dumps({"runs": [asdict(run) for run in runs], "indices": used, "node": node})


def decode(line: str) -> tuple[list[TenantRecord], dict[str, int], str]:
    """The reverse of encode()."""
    said = json.loads(line)
    return [_run(run) for run in said["runs"]], said["indices"], said["node"]


def _run(said: Mapping[str, Any]) -> TenantRecord:
    steps = {
        name: StepUsage(**{**step, "usage": _usage(step["usage"])})
        for name, step in said["steps"].items()
    }
    of_json = {"usage": _usage(said["usage"]), "steps": steps, "nodes": tuple(said["nodes"])}
    return TenantRecord(**{**said, **of_json})


def _usage(said: Mapping[str, Any]) -> dict[str, Usage]:
    return {uuid: Usage(**used) for uuid, used in said.items()}


class Slurmdb:
    """libslurm's connection to slurmdbd. Refused: it reports an error, in its own words."""

    def __init__(self) -> None:
        # Slurm's own plugins expect the symbols of libslurm to be global.
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        try:
            from _gpulease_slurmdb import ffi, lib
        except ImportError as fault:
            raise Refused(
                f"the binding of libslurm is missing ({fault}); install libslurm-dev and build"
            ) from None
        self.ffi, self.lib = ffi, lib
        self.error = ffi.new("char[]", 512)
        self.text = ffi.new("char[]", LONGEST + 1)
        self._call(lib.gl_slurmdb_open)

    def _call(self, function: Callable[..., int], *arguments: object) -> int:
        status = function(*arguments, self.error, 512)
        if status < 0:
            raise Refused(self.ffi.string(self.error).decode(errors="replace"))
        return status

    def rows(self, job_id: int, since: float, until: float) -> list[JobRow]:
        found = self.ffi.new("struct gl_job_row[]", ROWS_MOST)
        times = max(1, int(since)), int(until)
        count = self._call(self.lib.gl_slurmdb_rows, job_id, *times, found, ROWS_MOST)
        names = JobRow.__dataclass_fields__
        return [JobRow(*(int(getattr(found[n], name)) for name in names)) for n in range(count)]

    def comment(self, row: JobRow) -> str:
        raw = self.ffi.new("struct gl_job_row *", asdict(row))
        self._call(self.lib.gl_slurmdb_get_comment, raw, self.text, LONGEST + 1)
        # Text of others is stored again byte by byte.
        return str(self.ffi.string(self.text).decode(errors="surrogateescape"))

    def set_comment(self, row: JobRow, text: str) -> None:
        raw = self.ffi.new("struct gl_job_row *", asdict(row))
        self._call(self.lib.gl_slurmdb_set_comment, raw, text.encode(errors="surrogateescape"))
        if self.comment(row) != text:
            raise Refused("slurmdbd returns another comment than the one that was stored")

    def close(self) -> None:
        self.lib.gl_slurmdb_close()


def tell(run: TenantRecord, why: str = "") -> None:
    answer: dict[str, Any] = {"run": run.run, "done": not why, "why": why}
    print(json.dumps(answer), flush=True)


def write_job(
    slurmdb: Slurmdb, runs: list[TenantRecord], indices: Mapping[str, int], here: str = ""
) -> None:
    """Write one job's runs, each on its row; a row of several runs has their sum. here: what Slurm
    calls this node."""
    since = min(run.start or run.opened for run in runs) - AROUND_S
    until = max(run.closed or run.opened for run in runs) + AROUND_S
    placed, why = by_row(runs, slurmdb.rows(runs[0].job_id, since, until))
    for run in runs:
        if run.settled is None and run.run in why:
            tell(run, why[run.run])
    for row, on_it in placed.items():
        waiting = [run for run in on_it if run.settled is None]
        if not waiting:
            continue
        try:
            said = _write_row(slurmdb, row, on_it, indices, here)
        except Refused as fault:
            said = str(fault)
        for run in waiting:
            tell(run, said)


def _write_row(
    slurmdb: Slurmdb, row: JobRow, runs: list[TenantRecord], indices: Mapping[str, int], here: str
) -> str:
    """Returns why not; "": it is written. Refused: slurmdbd does not take it."""
    there = slurmdb.comment(row)
    node = here if runs[-1].nodes else ""
    before = waits_for(runs[-1], node, there, time.time())
    if before:
        return f"the part of {before} comes first"
    slurmdb.set_comment(row, merged(there, comment(runs, indices, there, node), node))
    return ""


def main() -> int:
    try:
        slurmdb = Slurmdb()
        try:
            for line in sys.stdin:
                write_job(slurmdb, *decode(line))
        finally:
            slurmdb.close()
    except Refused as fault:
        print(fault.sentence(), file=sys.stderr)
        return 1
    return 0
