"""Two placers do not use one state."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.placer.only_one import only_one


def test_a_second_one_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    said = f"another gpu-lease-placer uses {tmp_path}"
    with only_one(tmp_path), pytest.raises(Refused, match=said), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass
