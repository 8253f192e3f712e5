"""gpu-leasectl simulate: what quanta, locks and policies would make of described jobs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leased import policy
from leased.base.errors import Refused
from leased.sim import sweep, trace, values
from leased.sim.jobs import LOCKS, Trace

WORDS = "what quanta, locks and policies would make of jobs: simulated, without a daemon or a GPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("trace", type=Path, nargs="?", help="jobs as a TOML file describes them")
    parser.add_argument("--tq", metavar="LIST", help="quanta to try, for example 2,5,30,2m")
    parser.add_argument("--lock", metavar="LIST", help="locks to try, for example on,auto")
    parser.add_argument("--policy", metavar="LIST", help="policies to try, for example fcfs,fair")
    parser.add_argument("--jobs", action="store_true", help="a table of the jobs for each as well")
    parser.epilog = "What is not said is as each job asks. See docs/simulate.md."


def simulate(chosen: argparse.Namespace) -> tuple[Any, Callable[[], str]]:
    """The answer as JSON, and as text. Refused: bad input, or a job that would never end."""
    quanta = _list(chosen.tq, lambda text: values.some_time_ns(text, "--tq"))
    locks = _list(chosen.lock, lambda text: values.one_of(*LOCKS)(text, "--lock"))
    names = values.one_of(*policy.names())
    policies = _list(chosen.policy, lambda text: names(text, "--policy"))
    settings = sweep.settings(quanta or [None], locks or [None], policies or [policy.DEFAULT])
    results = sweep.sweep(_trace(chosen), settings)

    def text() -> str:
        tables = [sweep.table(results)]
        if chosen.jobs:
            tables += map(sweep.job_table, results)
        return "\n\n".join(tables)

    return sweep.as_json(results), text


def _trace(chosen: argparse.Namespace) -> Trace:
    return trace.load(chosen.trace)


def _list(text: str | None, read: Callable[[str], Any]) -> list[Any]:
    """Values with commas between them, each once."""
    if text is None:
        return []
    found = list(dict.fromkeys(read(part.strip()) for part in text.split(",")))
    if not found:
        raise Refused("the list is empty", "leave the option out")
    return found
