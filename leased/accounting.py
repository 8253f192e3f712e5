"""Usage into Slurm's accounting: the AdminComment of the job, written through libslurm.

libslurm may end the process it runs in, so it runs in a child of its own: main(),
with the job's id as its argument and our part of the comment on standard input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from leased import children
from leased.arbiter import Usage
from leased.errors import Refused
from leased.store import TenantRecord

MARK = "gpu-lease: "
LONGEST = 65_535  # Slurm keeps so many bytes and cuts the rest without a word
WRITE_S = 30
WRITER = "from leased.accounting import main; raise SystemExit(main())"
NO_JOB = 3  # exit status: the database does not have the job yet


def summary(usage: Usage) -> dict[str, float | int]:
    """One device's usage as it stands in the comment: seconds and counts."""
    seconds = {"lease_s": usage.lease_ns, "shared_s": usage.shared_ns, "wait_s": usage.wait_ns}
    counts = asdict(usage)
    return {
        **{name: round(ns / 1e9, 3) for name, ns in seconds.items()},
        **{k: counts[k] for k in ("handoffs", "moved_bytes", "peak_bytes", "overruns")},
        **({"strays": usage.strays} if usage.strays else {}),
    }


def comment(record: TenantRecord) -> str:
    """Our part of the AdminComment: one line of JSON behind a mark."""
    gpus = {uuid: summary(usage) for uuid, usage in record.usage.items()}
    return MARK + json.dumps({"v": 1, "lock": record.lock, "gpus": gpus}, separators=(",", ":"))


def merged(existing: str, ours: str) -> str:
    """What is to be stored: the site's own comment first, ours (again) behind it."""
    theirs = existing.partition(MARK)[0].rstrip().removesuffix(";").rstrip()
    text = f"{theirs}; {ours}" if theirs else ours
    if len(text.encode()) > LONGEST:
        raise Refused(f"the comment has {len(text.encode())} bytes, Slurm keeps {LONGEST}")
    return text


def parse_comment(text: str) -> dict[str, Any]:
    """Our part of an AdminComment; {} when there is none."""
    _, mark, ours = text.partition(MARK)
    return dict(json.loads(ours)) if mark else {}


async def write(record: TenantRecord, env: Mapping[str, str]) -> bool:
    """Write one tenant's usage. False: not yet in the database. Refused: what went wrong."""
    done = await children.run(
        *children.python(WRITER, str(record.job_id)),
        env=env,
        stdin=comment(record).encode(),
        patience_s=WRITE_S,
    )
    if done.fault:
        raise Refused(f"the writer was ended: {done.fault}")
    if done.status not in (0, NO_JOB):
        words = done.err.strip().splitlines()
        raise Refused(words[-1] if words else f"the writer ended with {done.status}")
    return done.status == 0


def main() -> int:
    # Slurm's own plugins expect the symbols of libslurm to be global.
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    try:
        from _gpulease_slurmdb import ffi, lib
    except ImportError as fault:
        print(f"no binding of libslurm ({fault}); install libslurm-dev and build", file=sys.stderr)
        return 1
    job_id, ours = int(sys.argv[1]), sys.stdin.read()
    error = ffi.new("char[]", 512)
    text = ffi.new("char[]", LONGEST + 1)

    def check(status: int) -> int:
        if status < 0:
            raise Refused(ffi.string(error).decode(errors="replace"))
        return status

    try:
        check(lib.gl_slurmdb_open(error, 512))
        if not check(lib.gl_slurmdb_get_comment(job_id, text, LONGEST + 1, error, 512)):
            return NO_JOB
        wanted = merged(ffi.string(text).decode(errors="replace"), ours)
        if not check(lib.gl_slurmdb_set_comment(job_id, wanted.encode(), error, 512)):
            return NO_JOB
        check(lib.gl_slurmdb_get_comment(job_id, text, LONGEST + 1, error, 512))
        if ffi.string(text).decode(errors="replace") != wanted:
            raise Refused("slurmdbd gives back another text than was stored")
    except Refused as fault:
        print(fault, file=sys.stderr)
        return 1
    finally:
        lib.gl_slurmdb_close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
