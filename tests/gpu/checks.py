"""Run the checks of a program that were chosen, and report each as soon as it is known."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.gpu.jobs import JobFailed, print_table, show, write_report

# good: whether it passed; summary: in a line what was found; and what else it measured.
Result = dict[str, Any]


def run_check(name: str, check: Callable[[], Result]) -> Result:
    """One check; a program or whatever else that fails is what it found."""
    started = time.monotonic()
    try:
        result = check()
    except JobFailed as fault:
        print(f"FAILED: {fault}", flush=True)
        result = {"good": False, "summary": "a program failed", "error": str(fault)}
    except Exception as fault:
        text = traceback.format_exc()
        print(f"FAILED:\n{text}", flush=True)
        result = {"good": False, "summary": f"failed: {fault!r}"[:200], "error": text}
    result["took_s"] = round(time.monotonic() - started, 1)
    show(name, result["summary"])
    return result


def run_checks_of(
    report: str, checks: Mapping[str, Callable[[], Result]], only: Sequence[str]
) -> dict[str, Result]:
    """Run some in their order, write REPORT.json, print a table."""
    unknown = [name for name in only if name not in checks]
    if unknown:
        raise SystemExit(f"no check {', '.join(unknown)}; there is {', '.join(checks)}")
    results: dict[str, Result] = {}
    for name in only:
        results[name] = run_check(name, checks[name])
        write_report(report, results)
    print_table(
        ["check", "good", "s", "found"],
        [[name, r["good"], r["took_s"], r["summary"]] for name, r in results.items()],
    )
    return results


def status_of(results: Mapping[str, Result]) -> int:
    """The exit status of a program that ran these."""
    return 0 if all(result["good"] for result in results.values()) else 1


def run_checks(report: str, checks: Mapping[str, Callable[[], Result]], only: Sequence[str]) -> int:
    """As run_checks_of. Returns the exit status."""
    return status_of(run_checks_of(report, checks, only))
