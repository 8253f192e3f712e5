"""check: the metrics for Prometheus, where the site wants them."""

from __future__ import annotations

from collections.abc import Iterator

from leased.cli.checks.finding import OK, WARNING, Finding, Site, finding
from leased.metrics import exporter, probe

WAIT_S = 10.0
UNIT = "gpu-leased-metrics"


def findings(site: Site) -> Iterator[Finding]:
    address = site.config.metrics.listen
    if address is None:
        yield Finding("metrics", OK, "metrics.listen is empty: no metrics are served to Prometheus")
        return
    if not exporter.has_library():
        words = f"{UNIT} cannot run: Python's {exporter.LIBRARY} is missing"
        yield Finding("metrics", WARNING, words, exporter.HAVE_IT)
        return
    try:
        ours = probe.is_ours(address, WAIT_S)
    except PermissionError:
        yield Finding(
            "metrics",
            WARNING,
            f"you may not connect to {address} (metrics.listen)",
            "run this check as root",
        )
    except OSError as fault:
        words = f"nobody listens at {address} (metrics.listen): {fault.strerror or fault}"
        yield Finding("metrics", WARNING, words, f"run systemctl enable --now {UNIT}")
    else:
        words = f"what answers at {address} (metrics.listen) is not {UNIT}"
        remedy, good = "choose another port for metrics.listen", f"{UNIT} answers at {address}"
        yield finding("metrics", "" if ours else words, remedy, good)
