"""Jobs on several nodes in simulated time: `simulated` of `across`.

Each processor simulates a fleet of its own (tests/across/fleet.py). For that the protocol and the
fleet, as they are, are compiled by mypyc into build/bench/compiled, which takes half a minute and
makes them four times as fast; the same seed gives the same times to the nanosecond. Where that
cannot be done (no compiler) they run as they are, and `compiled` says so.

`python -m tests.bench.across_simulated SEED GRANTS`, in that folder: one fleet; what came of it is
pickled to standard output.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.across import fleet as simulation
from tests.across.fleet import Fleet, S

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ROOT / "build" / "bench" / "compiled"
WAITS = 600 * S
COUNTED = "grants", "half_gangs", "messages", "lost", "drops", "deaths"  # of a fleet
MEASURED = "grant_ns", "skew_ns"


def part(values: list[int], of_all: float) -> float:
    """The value in ms below which so many of all (ns) are."""
    return round(sorted(values)[int(of_all * (len(values) - 1))] / 1e6, 3)


def run_fleet(seed: int, grants: int) -> dict[str, Any]:
    fleet = Fleet(seed)
    fleet.run(lambda: fleet.grants >= grants)
    found = {name: getattr(fleet, name) for name in (*COUNTED, *MEASURED)}
    found["simulated_s"] = fleet.now // S
    found["compiled"] = not simulation.__file__.endswith(".py")
    fleet.calm()
    return found | {"deadlocks": fleet.stuck_after(WAITS)}


def compile_it() -> bool:
    """Whether it could be compiled; where it could not, the compiler has said why."""
    shutil.rmtree(COMPILED, ignore_errors=True)
    modules = sorted(path.relative_to(ROOT) for path in (ROOT / "leased/across").glob("[!_]*.py"))
    modules.append(Path("tests/across/fleet.py"))
    for module in (*modules, Path("tests/bench/across_simulated.py")):
        (COMPILED / module).parent.mkdir(parents=True, exist_ok=True)
        for package in module.parents[:-1]:  # without them those of the checkout come first
            (COMPILED / package / "__init__.py").touch()
        shutil.copy(ROOT / module, COMPILED / module)
    command = [sys.executable, "-m", "mypyc", *map(str, modules)]
    done = subprocess.run(command, cwd=COMPILED, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{done.stdout}{done.stderr}".strip()[-2000:], file=sys.stderr)
    return done.returncode == 0


def measure(grants: int) -> dict[str, Any]:
    """So many in all."""
    place, fleets = COMPILED if compile_it() else ROOT, os.cpu_count() or 1
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(seed), str(-(-grants // fleets))],
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(place)},
            stdout=subprocess.PIPE,
        )
        for seed in range(1, fleets + 1)
    ]
    all_found = [pickle.loads(worker.communicate()[0]) for worker in workers]
    compiled = min(found.pop("compiled") for found in all_found)
    of_all = {name: sum(found[name] for found in all_found) for name in all_found[0]
              if name not in MEASURED}  # fmt: skip
    grant_ns, skew_ns = ([ns for found in all_found for ns in found[name]] for name in MEASURED)
    return {
        **of_all,
        "grant_ms_p50": part(grant_ns, 0.5),
        "grant_ms_p99": part(grant_ns, 0.99),
        "skew_ms_p50": part(skew_ns, 0.5),
        "skew_ms_p99": part(skew_ns, 0.99),
        "messages_a_grant": round(of_all["messages"] / of_all["grants"], 1),
        "compiled": compiled,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(run_fleet(int(sys.argv[1]), int(sys.argv[2]))))
