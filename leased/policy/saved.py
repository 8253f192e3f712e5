"""What a policy stores of each tenant, as one JSON object. It is read with care, since the file
that it comes from may be damaged or of another release."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

DECIMAL = re.compile("[0-9]{1,20}")


def write(of: Mapping[int, Any]) -> bytes:
    """What is known of each tenant, by its number; empty where nothing is known of any."""
    known = {str(tenant): what for tenant, what in of.items() if what}
    return json.dumps(known, sort_keys=True).encode() if known else b""


def read(data: bytes, load: Callable[[int, dict[str, Any]], bool]) -> bool:
    """Give `load` each tenant's number and what was written of it; it returns whether it understood
    that. Returns whether all of the data was understood."""
    try:
        known = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return False
    if not isinstance(known, dict):
        return False
    understood = [_read_one(tenant, what, load) for tenant, what in known.items()]
    return all(understood)


def _read_one(tenant: str, what: object, load: Callable[[int, dict[str, Any]], bool]) -> bool:
    return bool(DECIMAL.fullmatch(tenant)) and isinstance(what, dict) and load(int(tenant), what)
