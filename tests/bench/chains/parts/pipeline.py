"""A chain in one job: `python -m tests.bench.chains.parts.pipeline MIB ROUNDS KERNELS...` starts a
component for each of these kernels (component.py), in their order, with pipes between them. It
prints "ready" and waits for a line. STARTED_BY in the environment: a program that starts them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.emugpu.program_api import say, wait
from tests.emugpu.programs import go_on, line

COMPONENT = "tests.bench.chains.parts.component"


def main() -> None:
    components: list[subprocess.Popen[str]] = []
    before = [os.environ["STARTED_BY"]] if "STARTED_BY" in os.environ else []
    mib, rounds, *all_kernels = sys.argv[1:]
    take = -1
    for kernels in all_kernels:
        after, put = os.pipe() if len(components) + 1 < len(all_kernels) else (-1, -1)
        ends = str(take), str(put)
        components.append(
            subprocess.Popen(
                [*before, sys.executable, "-m", COMPONENT, mib, rounds, kernels, *ends],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[end for end in (take, put) if end >= 0],
            )
        )
        for end in (take, put):
            if end >= 0:
                os.close(end)
        take = after
        line(components[-1])
    say("ready")
    wait()
    for component in components:
        go_on(component)
        assert component.stdin is not None
        component.stdin.close()
    for component in components:
        component.wait()


if __name__ == "__main__":
    main()
