"""The pipeline that `make demo-chain` shows: it is compared with what it is to make."""

from __future__ import annotations

import pytest

from tests.demo import pipeline


def test_the_pipeline_makes_the_frames_that_it_says(capfd: pytest.CaptureFixture[str]) -> None:
    pipeline.main()
    out, err = capfd.readouterr()
    assert "24 frames have gone through 4 processes, and none was copied" in out
    assert err.count("checksum") == pipeline.FRAMES
