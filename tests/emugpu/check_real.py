"""Run the emulated driver's tests on a real NVIDIA GPU, to see that the emulation is faithful.

Those of peers run where the first two GPUs are peers.

`python -m tests.emugpu.check_real` on a machine with a GPU, cuda-bindings and pytest; no
daemon, no root. The programs take at most 128 MiB of the card. Prints a line a test.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.emugpu.abi import test_ipc, test_programs
from tests.emugpu.programs import case, run


class RealGpu:
    """Stands where EmulatedGpu does; a program gets whatever driver is installed."""

    def __init__(self) -> None:
        self.env: dict[str, str] = {}


# What depends on the size of the device or on what the emulation leaves out.
EMULATED_ONLY = {
    # Never on a card: more managed memory than it has free can hang it for everyone.
    "test_out_of_memory_is_honest_and_not_sticky": "fills the device",
    "test_a_handle_that_is_gone_is_refused": "a real driver may crash on one",
    # On an H200 (driver 580) the other process then has an illegal address.
    "test_freed_memory_counts_until_the_last_one_lets_go": "CUDA leaves it undefined",
    "test_freed_memory_lives_until_the_last_one_lets_go": "CUDA leaves it undefined",
}


def check(name: str, test: Callable[..., object], *arguments: str) -> bool:
    if name in EMULATED_ONLY:
        print("skip", name, EMULATED_ONLY[name], sep="  ")
        return True
    try:
        test(RealGpu(), *arguments)
    except (AssertionError, subprocess.TimeoutExpired) as fault:
        print("FAIL", name, *arguments, str(fault).strip().split("\n")[:12], sep="  ")
        return False
    print("ok  ", name, *arguments, sep="  ")
    return True


def has_peers() -> bool:
    code = """
ok(d.cuInit(0))
say(ok(d.cuDeviceGetCount()) > 1 and ok(d.cuDeviceCanAccessPeer(0, 1)))
"""
    gpu: Any = RealGpu()
    return run(gpu, code).strip() == "1"


def main() -> int:
    files = [test_programs.CAPTURE, test_programs.DRIVER]
    if has_peers():
        files += [test_programs.PEER, test_programs.COPIES]
    else:
        print("skip", test_programs.PEER, "there are no two GPUs that are peers", sep="  ")
    good = [
        check(name, lambda gpu, file, name: run(gpu, case(file, name)), file, name)
        for file, name in test_programs.of(*files)
    ]
    alone = test_programs.test_a_bad_address_sticks_to_its_process_alone
    good.append(check(alone.__name__, alone))
    outlives = test_programs.test_physical_memory_outlives_the_process_that_sent_it
    good += [check(outlives.__name__, outlives, number) for number in ("one", "many")]
    tests = vars(test_ipc).items()
    good += [check(name, test) for name, test in tests if name.startswith("test_")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
