"""Run the emulated driver's tests on a real NVIDIA GPU, to see that the emulation is faithful.

Those of peers run where the first two GPUs are peers.

`python -m tests.emugpu.check_real` on a machine with a GPU, cuda-bindings and pytest; no
daemon, no root. The programs take at most 128 MiB of the card. Prints a line a test.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.emugpu.abi import test_capture, test_descriptors, test_driver, test_ipc, test_peer
from tests.emugpu.programs import run


class RealGpu:
    """Stands where EmulatedGpu does; a program gets whatever driver is installed."""

    def __init__(self) -> None:
        self.env: dict[str, str] = {}


# What depends on the size of the device or on what the emulation leaves out.
EMULATED_ONLY = {
    # Never on a card: more managed memory than it has free can hang it for everyone.
    "test_out_of_memory_is_honest_and_not_sticky": "fills the device",
    "test_a_handle_that_is_gone_is_refused": "a real driver may crash on one",
    "test_bytes_that_cross_each_link": "asks the emulated devices",
    "test_devices_that_are_no_peers": "these are peers",
    # On an H200 (driver 580) the other process then has an illegal address.
    "test_freed_memory_counts_until_the_last_one_lets_go": "CUDA leaves it undefined",
    "test_freed_memory_lives_until_the_last_one_lets_go": "CUDA leaves it undefined",
}


def cases(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The keyword arguments of each case of a parametrized test; one empty for a plain one."""
    marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    values = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    for chosen in itertools.product(*values):
        yield {key: value for case in chosen for key, value in case.items()}


def check(name: str, test: Callable[..., None], **case: Any) -> bool:
    try:
        test(RealGpu(), **case)
    except (AssertionError, subprocess.TimeoutExpired) as fault:
        print("FAIL", name, case, str(fault).strip().split("\n")[:12], sep="  ")
        return False
    print("ok  ", name, case, sep="  ")
    return True


def has_peers() -> bool:
    code = """
ok(d.cuInit(0))
say(ok(d.cuDeviceGetCount()) > 1 and ok(d.cuDeviceCanAccessPeer(0, 1)))
"""
    gpu: Any = RealGpu()
    return run(gpu, code).strip() == "1"


def main() -> int:
    good = True
    modules = [test_capture, test_driver, test_ipc, test_descriptors]
    if has_peers():
        modules.append(test_peer)
    else:
        print("skip", test_peer.__name__, "there are no two GPUs that are peers", sep="  ")
    for module in modules:
        for name, test in vars(module).items():
            if not name.startswith("test_") or not callable(test):
                continue
            if name in EMULATED_ONLY:
                print("skip", name, EMULATED_ONLY[name], sep="  ")
                continue
            for case in cases(test):
                good &= check(name, test, **case)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
