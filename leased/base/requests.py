"""Requests in JSON and their fields: every one is checked, and none is passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from leased.base import job_names
from leased.base.errors import Later, Refused

Request = dict[str, Any]
TEXT = 256  # characters of a text, where nothing else is said
SHOWN = 40  # of a value at fault
# Either word gives a setting back: to the jobs, or to the configuration.
GIVEN_BACK = ("user", "config")
# What may be set of a device, and of the node; and what may stand there.
OF_DEVICE = {
    "lock": "on, off, auto or user",
    "quantum": "a time such as 30s, or user",
    "reserve": "auto, a share such as 5%, a size such as 2GiB, or config",
    "drain": "yes or user",
}
OF_NODE = {
    "user-lock-off": "yes, no or config",
    "user-oversub": "yes, no or config",
    "quantum-min": "a time such as 1s, or config",
    "quantum-max": "a time such as 5m, or config",
}


def shown(value: object) -> str:
    """A value as a message may show it: short, and harmless to a terminal."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of very many digits, lists in lists
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def answered(
    data: bytes, longest: int, handle: Callable[[Request], dict[str, Any]]
) -> dict[str, Any]:
    """The answer to a request of one packet: ok, or the error with its hint."""
    try:
        if len(data) > longest:
            raise Refused(f"a request of more than {longest} bytes")
        try:
            request = json.loads(data)
        except (ValueError, RecursionError):
            raise Refused("the request is not JSON") from None
        if not isinstance(request, dict):
            raise Refused("the request is not a JSON object")
        return {"ok": True} | handle(request)
    except Refused as fault:
        later = {"later": True} if isinstance(fault, Later) else {}
        return {"ok": False, "error": str(fault), "hint": fault.hint} | later


def check_fields(request: Request, known: Iterable[str]) -> None:
    """Refused names a field that is not known."""
    names = {"op", *known}
    for name in request:
        if name not in names:
            raise Refused(
                f"{request.get('op')} knows no field {shown(name)}",
                f"known are {', '.join(sorted(names))}; are both sides of one release?",
            )


def get_int(request: Request, name: str, low: int, high: int) -> int:
    """The integer of a field, from `low` to `high`. Refused names the field."""
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Refused(f"{name} is {shown(value)}; it must be an integer from {low} to {high}")
    return value


def get_job(request: Request, name: str) -> int | str:
    """The job that a field names: its own number, or a text with its name for Slurm, which may
    mean several. Refused names the field."""
    value = request.get(name)
    if not isinstance(value, str):
        return get_int(request, name, 1, job_names.LAST)
    if not job_names.is_name(value):
        raise Refused(f"{name} is {shown(value)}; it must be a job as squeue shows it, such as 7_3")
    return value


def get_text(request: Request, name: str, longest: int = TEXT) -> str:
    """The text of a field, printable; "" if the field is left out. Refused names the field."""
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise Refused(f"{name} must be a text of at most {longest} printable characters")
    return value


def get_ints(request: Request, name: str, high: int, most: int) -> list[int]:
    """The list in a field: at most `most` integers from 0 to `high`. Refused names the field."""
    value = request.get(name, [])
    if not isinstance(value, list) or len(value) > most:
        raise Refused(f"{name} must be a list of at most {most} integers from 0 to {high}")
    return [get_int({name: item}, name, 0, high) for item in value]
