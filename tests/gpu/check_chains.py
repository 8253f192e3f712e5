"""What dividing a GPU by time slices does for chains, on a real GPU.

`python -m tests.gpu.check_chains [--only long,short,even] [--gpu N]` on a machine with a GPU, as
root. Each check is a chain in one job (tests/bench/chains/parts): what the daemon keeps, and by how
much the last component is faster so, in comparisons by turns. long: components that have more work
for an item than a time slice holds; short: less; even: all have as much. Prints a line a check and
a table; writes chains-GPU.json in $OUT or build/bench. To try it on the emulated GPU:
`python -m tests.gpu.emulated --model emu-h200-slow tests.gpu.check_chains --mib 1 --rounds 16
--memory 128MiB`.
"""

from __future__ import annotations

import argparse
from functools import partial

from tests.bench.chains.parts.optimiser import figures, searched
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import on_gpu, python, sharing, stopping

# Kernels of each component for an item.
CHAINS = {"long": (3, 8, 5, 3), "short": (1, 1, 1, 1), "even": (8, 8, 8)}


def check(kernels: tuple[int, ...], chosen: argparse.Namespace) -> Result:
    with sharing(chosen.memory) as share:
        sizes = map(str, (chosen.mib, chosen.rounds, *kernels))
        command = python("-m", "tests.bench.chains.parts.pipeline", *sizes)
        job = share.tenant("chain", "chain:check", command, on_gpu(chosen.gpu), str(chosen.gpu))
        with stopping(job):
            job.wait_ready()
            job.go()
            found = figures(searched(share.admin, chosen.gpu))
    summary = f"{found['gain']:+.1%} by {found['division']} after {found['trials']} trials"
    return {"good": found["trials"] <= found["bound"], "summary": summary, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CHAINS), help="names, with commas between")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--mib", type=int, default=256, help="that a kernel passes over")
    parser.add_argument("--rounds", type=int, default=8, help="how often: about 1 ms on an H200")
    parser.add_argument("--memory", default="32GiB", help="of the device")
    chosen = parser.parse_args()
    checks = {name: partial(check, kernels, chosen) for name, kernels in CHAINS.items()}
    return run_checks(f"chains-{chosen.gpu}", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
