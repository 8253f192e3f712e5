"""What a daemon would say, for tests of the metrics, and scrapes of it without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition, parser

from leased.api.answers import Status
from leased.leasing.device_totals import ADDED
from leased.metrics.collector import Collector
from leased.metrics.source import Source
from leased.usage.usage import FIGURES

UUIDS = [f"GPU-{n:08x}-0000-0000-0000-000000000000" for n in range(8)]
NO_UID = 4_294_967_000  # a user whom no node has a name for


def device(index: int = 0, **said: Any) -> dict[str, Any]:
    """One GPU in order, and what a test says of it."""
    return {
        "index": index,
        "uuid": UUIDS[index],
        "name": "H200",
        "memory_bytes": 1 << 30,
        "usable_bytes": 1 << 29,
        "tenant_bytes": 1 << 28,
        "resident_bytes": 1 << 27,
        "holders": [],
        "waiting": [],
        "online_slowdown": 0.03,
        "offline_health": {"state": "healthy", "why": None},
        "mps": {"why": None, "together": "user", "ended": 2, "faults": 3, "lost": ["7"]},
        "mode": "shared",
        "fault": None,
        "busy_percent": 50,
        "total": {figure.key: 0 for figure in ADDED},
        "handoff_times": {"bounds_s": [0.5, 1.0], "counts": [0, 0, 0], "sum_s": 0.0},
    } | said


def tenant(job_id: int, index: int = 0, *, opened: float = 1.0, **figures: float) -> dict[str, Any]:
    """A job on one device, with the figures that a test gives it."""
    return {
        "job_id": job_id,
        "uid": NO_UID,
        "opened": opened,
        "state": "idle",
        "resident_bytes": {UUIDS[index]: 4096},
        "slices": {UUIDS[index]: {"slice_s": None, "duty": 1.0, "why": "it is alone on the GPU"}},
        "gpus": {UUIDS[index]: {figure.key: 0 for figure in FIGURES} | figures},
    }


def status(
    tenants: Iterable[dict[str, Any]] = (), devices: Iterable[dict[str, Any]] | None = None
) -> Status:
    said = {
        "version": "1.2.3",
        "uptime_s": 7.5,
        "store_fault": None,
        "nvml_fault": None,
        "strays": {},
        "copies": None,
        "devices": [device()] if devices is None else list(devices),
        "tenants": list(tenants),
    }
    return cast(Status, said)


class Scraper:
    """Scrapes of what `says` says each time; nothing is kept between two but the counters."""

    def __init__(self, says: Callable[[], Status], most: int = 2048):
        ticks = iter(range(1_000_000))
        self.registry = CollectorRegistry()
        self.registry.register(Collector(Source(says, lambda: next(ticks)), most))

    def text(self) -> str:
        said: bytes = exposition.generate_latest(self.registry)
        return said.decode()

    def families(self) -> dict[str, Metric]:
        """By name, as the strict parser of OpenMetrics reads them."""
        return {
            family.name: family for family in parser.text_string_to_metric_families(self.text())
        }

    def values(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values of a sample by those of its labels; without such samples {}."""
        samples = (sample for family in self.families().values() for sample in family.samples)
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for sample in samples
            if sample.name == name
        }
