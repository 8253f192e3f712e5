"""The file in which the placer keeps what it remembers of jobs, since Slurm shows no options."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from leased.base import text_file
from leased.placer.model import Ticket, Tickets, Understand

log = logging.getLogger("gpu-lease-placer")

VERSION = 1
LARGEST = 64 << 20
KEPT = [each for each in fields(Ticket) if each.name != "request"]
TYPES = {"str": str, "int": int, "bool": bool}


def load(path: Path, understand: Understand) -> dict[str, Ticket]:
    """What was saved. If the file cannot be read that is logged, and nothing is remembered: jobs
    whose labels are forgotten begin as without the placer."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("it is too large")
        said = json.loads(path.read_bytes())
        if said["version"] != VERSION:
            raise ValueError(f"it is of version {said['version']!r:.20}")
        found = {key: _ticket(each, understand) for key, each in said["jobs"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        log.warning("what the placer remembered of jobs in %s is lost: %r", path, fault)
        return {}
    return {key: ticket for key, ticket in found.items() if ticket is not None}


def _ticket(said: Mapping[str, Any], understand: Understand) -> Ticket | None:
    values = {each.name: said[each.name] for each in KEPT if each.name in said}
    for each in KEPT:
        if each.name in values and type(values[each.name]) is not TYPES[str(each.type)]:
            raise ValueError(f"{each.name} is {values[each.name]!r:.40}")
    request = understand(values["options"])
    return Ticket(request=request.of_user(values["user_id"]), **values) if request else None


def save(path: Path, tickets: Tickets) -> None:
    """Replace the file at once. OSError: it cannot be written."""
    jobs = {key: asdict(ticket) for key, ticket in tickets.items()}
    for each in jobs.values():
        del each["request"]
    text = json.dumps({"version": VERSION, "jobs": jobs}, separators=(",", ":"))
    text_file.replace(path, text, sync=True)
