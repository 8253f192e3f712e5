"""docs/metrics.md has a row for each metric, and each that it has is there."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.metrics.statuses import Scraper, device, status, tenant

ROW = re.compile(r"^\| `(gpu_lease_[a-z_]+)` \| ([a-z]+) \| ([a-z]*) ?\| ([^|]+) \|", re.M)
SUFFIX = {"counter": "_total", "info": "_info"}


def test_the_document_has_every_metric_as_it_is_shown() -> None:
    scraper = Scraper(lambda: status([tenant(7)], [device()]))
    shown = {
        (f.name + SUFFIX.get(f.type, ""), f.type, f.unit, f.documentation)
        for f in scraper.families().values()
    }
    assert set(ROW.findall((ROOT / "docs" / "metrics.md").read_text())) == shown
