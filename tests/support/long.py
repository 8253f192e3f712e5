"""Values of a test's parameter with which it runs in `make test` and not in `make quick`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long(values: Iterable[Any]) -> list[Any]:
    """The values as parametrize takes them, each marked as long."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
