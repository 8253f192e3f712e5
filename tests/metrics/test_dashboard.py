"""The dashboard asks for what there is, and the test of that finds what there is not.

test_exporter.py holds it against a scrape of a real daemon.
"""

from __future__ import annotations

import pytest

from tests.metrics import dashboards
from tests.metrics.dashboards import Selector
from tests.metrics.statuses import Scraper, status, tenant


def samples() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in Scraper(lambda: status([tenant(7)])).families().values():
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_everything_that_is_asked_for_is_shown() -> None:
    assert dashboards.unknown(samples()) == []


def test_the_dashboard_has_panels_that_ask() -> None:
    said = dashboards.dashboard()
    assert len(said["panels"]) > 10
    assert all(panel["targets"] and panel["title"] for panel in said["panels"])
    assert len({panel["id"] for panel in said["panels"]}) == len(said["panels"])
    asked = {s.name for text in dashboards.expressions() for s in dashboards.selectors(text)}
    assert {"gpu_lease_up", "gpu_lease_handoff_seconds_bucket"} <= asked


def test_the_metrics_of_an_expression_are_found() -> None:
    text = 'sum by (gpu) (rate(a{b="c",d=~"e"}[5m])) / count(f) - 1'
    assert dashboards.selectors(text) == [
        Selector("a", (("gpu", None), ("b", "c"), ("d", None))),
        Selector("f", ()),
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "gpu_lease_no_such_metric",
        "gpu_lease_held_seconds",
        'gpu_lease_moved_bytes_total{direction="inwards"}',
        "gpu_lease_moved_bytes_total{way=~'.*'}",
        "sum by (state) (gpu_lease_up)",
    ],
)
def test_a_metric_that_no_panel_shows_is_found(
    monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr(dashboards, "expressions", lambda: [expression])
    assert len(dashboards.unknown(samples())) == 1
