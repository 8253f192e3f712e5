"""gpu-leasectl set: the site's settings of devices and of the node."""

from __future__ import annotations

import argparse

from leased.api.client import ask
from leased.base.requests import GIVEN_BACK, OF_DEVICE, OF_NODE
from leased.cli.subcommand import admin_socket, gpus_of, print_answer, warn_unless_stored

SUMMARY = "change settings of devices, or what users may choose"


def setting(text: str) -> tuple[str, str]:
    """KEY=VALUE of a key that exists, as a pair; the daemon checks the value."""
    key, equals, value = text.partition("=")
    known = OF_DEVICE.keys() | OF_NODE.keys()
    if key not in known - {"drain"} or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not a setting; write for example lock=auto")
    return key, value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    keys = "\n".join(
        f"  {key}: {words}" for key, words in (OF_DEVICE | OF_NODE).items() if key != "drain"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"settings:\n{keys}\n\nWhat users may choose applies to jobs that begin later. All "
        f"settings survive a restart of the daemon; {' or '.join(GIVEN_BACK)} takes one back."
    )
    parser.add_argument("--device", default="all", metavar="DEVICE", help="its index or UUID (all)")
    parser.add_argument(
        "settings", nargs="+", type=setting, metavar="KEY=VALUE", help="the settings, see below"
    )


def run(chosen: argparse.Namespace) -> None:
    wanted = dict(chosen.settings)
    answer = ask(admin_socket(chosen), {"op": "set", "device": chosen.device} | wanted)
    words = ", ".join(f"{key}={value}" for key, value in wanted.items())
    of_node = all(key in OF_NODE for key in wanted)
    print_answer(chosen, answer, lambda: f"{'node' if of_node else gpus_of(answer)}: {words}")
    warn_unless_stored(answer)
