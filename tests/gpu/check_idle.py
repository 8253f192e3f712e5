"""Memory that takes care of itself, on a real GPU: what leaves for others, and comes back.

`python -m tests.gpu.check_idle [--only servers,park,...] [--gpu N] [--cap GIB]` on a machine
with a GPU, as root and without a terminal. The daemon runs with gpu-leased-copies, and jobs have
default options. Prints figures as they come and a table; writes idle-GPU.json in $OUT or
build/bench. Exit status 1 if a check failed: data was wrong, or an aim was missed. The data
must be right in any case; the aims are in the checks' files, in tests/gpu/idle.
"""

from __future__ import annotations

import argparse
from functools import partial

from tests.gpu.build import build_all
from tests.gpu.checks import run_checks
from tests.gpu.idle.clean import check_clean
from tests.gpu.idle.notebooks import check_notebooks
from tests.gpu.idle.parking import check_park, check_suspend
from tests.gpu.idle.saver import check_saver
from tests.gpu.idle.servers import check_servers
from tests.gpu.idle.table2 import check_table2

CHECKS = {
    "servers": check_servers,
    "park": check_park,
    "suspend": check_suspend,
    "notebooks": check_notebooks,
    "table2": check_table2,
    "clean": check_clean,
    "saver": check_saver,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CHECKS), help="names, with commas between")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--cap", type=float, default=24.0, help="GiB of the device, for servers")
    parser.add_argument("--server-gib", type=float, default=13.5, help="of weights")
    parser.add_argument("--kv-mib", type=int, default=256, help="that each request writes")
    parser.add_argument("--switches", type=int, default=10, help="of each run, that count")
    parser.add_argument("--rounds", type=int, default=2, help="of runs with clean memory and not")
    parser.add_argument("--park-gib", type=float, default=80.0, help="of the large job")
    parser.add_argument("--cycles", type=int, default=5, help="of parking and suspending")
    parser.add_argument("--grace", type=float, default=2.0, help="seconds, Slurm's own: 2")
    parser.add_argument("--notebooks", type=int, default=12)
    parser.add_argument("--notebook-gib", type=float, default=10.0, help="of each")
    parser.add_argument("--notebooks-cap", type=float, default=40.0, help="GiB of the device")
    parser.add_argument("--cell-seconds", type=float, default=3.0, help="of each notebook's turn")
    parser.add_argument("--mixes", default="heavy", help="heavy, light, with a comma between")
    parser.add_argument("--training-cap", type=float, default=16.0, help="GiB of the device")
    parser.add_argument("--training-cycle", type=float, default=4.0, help="seconds, alone")
    parser.add_argument("--training-cycles", type=int, default=4)
    parser.add_argument("--clean-gib", type=float, default=4.0, help="of the job that changes")
    parser.add_argument("--clean-rounds", type=int, default=32, help="of changes and moves")
    parser.add_argument("--link", default="", help="GiB/s in,out,both, if known")
    chosen = parser.parse_args()
    programs = ["resident"] if chosen.link else ["resident", "link"]
    build_all(*programs)
    checks = {name: partial(check, chosen) for name, check in CHECKS.items()}
    return run_checks(f"idle-{chosen.gpu}", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
