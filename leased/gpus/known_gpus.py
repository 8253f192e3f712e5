"""The devices that were seen since the boot, kept beside the store.

A daemon that starts while a device is lost, or NVML is silent, still knows what
it leases. After a boot the node may have other devices, and nothing is known.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

from leased.base import text_file
from leased.gpus import nvml_answers
from leased.gpus.nvml_answers import Described, Unsound
from leased.memory.speed import Speed
from leased.processes import procfs

log = logging.getLogger("gpu-leased")

NAME = "gpus.json"
MOST_BYTES = 1 << 20


def load(folder: Path) -> list[Described]:
    """The devices that a previous daemon saw; none if the file cannot be used."""
    try:
        kept = json.loads(text_file.read(folder / NAME, MOST_BYTES))
        if kept["boot"] != procfs.boot_id():
            return []
        return [_described(entry) for entry in kept["gpus"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError, Unsound) as fault:
        log.warning("%s cannot be used and is ignored: %s", folder / NAME, fault)
        return []


def _described(entry: dict[str, object]) -> Described:
    speed = entry["lanes"]
    if not isinstance(speed, dict) or not isinstance(entry["number"], int):
        raise TypeError("an entry is no device")
    made = nvml_answers.described(entry["number"], entry | {"lanes": None})
    lanes = Speed(float(speed["bytes_s"]), int(speed["seen"]))
    if not 0 < lanes.bytes_s < 1e15:
        raise ValueError("no link is that fast")
    return replace(made, lanes=lanes)


def save(folder: Path, gpus: list[Described]) -> None:
    """Keep the devices for the next daemon. On a full disk that is logged and left out."""
    content = {"boot": procfs.boot_id(), "gpus": [asdict(gpu) for gpu in gpus]}
    try:
        text_file.replace(folder / NAME, json.dumps(content))
    except OSError as fault:
        log.warning("cannot write %s: %s", folder / NAME, fault)
