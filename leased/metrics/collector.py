"""Makes metrics of the daemon's status, for prometheus_client's registry."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from leased.api.answers import Device, Status, Tenant
from leased.base.words import user_of
from leased.metrics.families import (
    ABOUT_HANDOFFS,
    COUNTER,
    DEVICES,
    HANDOFF_SECONDS,
    JOBS,
    OF_DEVICE,
    OF_JOB,
    PREFIX,
    STATES,
    JobDevice,
    Row,
    T,
)
from leased.metrics.source import Source

LONGEST_LABEL = 128  # characters


def label(text: object) -> str:
    """A label's value: any text that UTF-8 can have, of bounded length."""
    return str(text)[:LONGEST_LABEL].encode("utf-8", "replace").decode()


def _family(row: Row[T], labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    names = (*labels, row.label) if row.label else labels
    made = CounterMetricFamily if row.type == COUNTER else GaugeMetricFamily
    return made(row.family, row.help, labels=names, unit=row.unit)


def _gauge(name: str, meaning: str, value: float, unit: str = "") -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value, unit=unit)


def handoffs(devices: Iterable[Device]) -> Metric:
    """A histogram for each device; none if the daemon does not tell handoff times."""
    family = HistogramMetricFamily(
        PREFIX + HANDOFF_SECONDS, ABOUT_HANDOFFS, labels=OF_DEVICE, unit="seconds"
    )
    for device in devices:
        times = device.get("handoff_times")
        if times is None:
            continue
        bounds = [*map(floatToGoString, times["bounds_s"]), "+Inf"]
        buckets = list(zip(bounds, accumulate(times["counts"])))
        place = [str(device["index"]), label(device["uuid"])]
        family.add_metric(place, buckets, times["sum_s"])
    return family


# The key of its counters, the values of its labels, and the device or job itself.
Shown = tuple[Hashable, tuple[str, ...], T]


class Rising:
    """The highest value of each counter, as Prometheus takes a lower one for a new beginning at 0.

    A daemon that was killed goes on up to a second behind what it had said, and bytes that were
    counted as moved are taken back when they turn out to be clean: such a counter stands still
    until it has caught up.
    """

    def __init__(self) -> None:
        self._highest: dict[Hashable, dict[Hashable, float]] = {}
        self._shown: set[Hashable] = set()

    def of(self, whose: Hashable, name: Hashable, value: float) -> float:
        """The value to show."""
        self._shown.add(whose)
        known = self._highest.setdefault(whose, {})
        known[name] = max(value, known.get(name, value))
        return known[name]

    def forget_others(self) -> None:
        """Forget the counters of which none was shown since this was last called."""
        for gone in self._highest.keys() - self._shown:
            del self._highest[gone]
        self._shown = set()


class Collector:
    """job_devices: how many series each metric of jobs may have."""

    def __init__(self, source: Source, job_devices: int):
        self._source = source
        self._most = job_devices
        self._rising = Rising()
        self._users: dict[int, str] = {}
        self._began, self._uptime_s = 0, 0.0
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """All families, each with its samples; without the daemon only that it is not there."""
        status = self._source.status()
        with self._lock:
            return list(self._all(status))

    def _all(self, status: Status | None) -> Iterator[Metric]:
        yield _gauge("up", "1: gpu-leased answers; 0: it does not.", float(status is not None))
        if status is None:
            return
        devices = sorted(status["devices"], key=lambda device: device["index"])
        shown, left_out = self._chosen(status["tenants"], {d["uuid"]: d for d in devices})
        yield from self._node(status, left_out)
        yield from self._devices(status, devices)
        yield from self._jobs(shown)
        self._rising.forget_others()

    # -- the node -------------------------------------------------------------------

    def _node(self, status: Status, left_out: int) -> Iterator[Metric]:
        build = InfoMetricFamily(PREFIX + "build", "The release of gpu-leased.")
        build.add_metric([], {"version": label(status["version"])})
        yield build
        yield _gauge(
            "uptime_seconds", "Seconds since gpu-leased began.", status["uptime_s"], "seconds"
        )
        jobs = GaugeMetricFamily(
            PREFIX + "jobs", "Jobs that share GPUs of the node, by state.", labels=["state"]
        )
        states = [tenant["state"] for tenant in status["tenants"]]
        for state in STATES:
            jobs.add_metric([state], states.count(state))
        yield jobs
        yield _gauge("jobs_left_out", "Jobs that metrics.job_devices leaves no series.", left_out)
        faults = GaugeMetricFamily(
            PREFIX + "fault", "1: this part of gpu-leased does not work.", labels=["part"]
        )
        faults.add_metric(["store"], float(status["store_fault"] is not None))
        faults.add_metric(["nvml"], float(status["nvml_fault"] is not None))
        yield faults

    # -- devices and jobs -------------------------------------------------------------

    def _devices(self, status: Status, devices: list[Device]) -> Iterator[Metric]:
        # Totals begin anew with each daemon.
        self._began += status["uptime_s"] < self._uptime_s
        self._uptime_s = status["uptime_s"]
        places = [
            (("", self._began, d["uuid"]), (str(d["index"]), label(d["uuid"])), d) for d in devices
        ]
        yield from self._families(DEVICES, OF_DEVICE, places)
        yield handoffs(devices)

    def _families(
        self, rows: Sequence[Row[T]], labels: tuple[str, ...], shown: Sequence[Shown[T]]
    ) -> Iterator[Metric]:
        """A family for all rows of one name, with a sample of each for all that is shown."""
        for _, alike in groupby(rows, lambda row: row.family):
            several = list(alike)
            family = _family(several[0], labels)
            for whose, place, one in shown:
                for row in several:
                    value = row.value(one)
                    if value is None:
                        continue
                    if row.type == COUNTER:
                        value = self._rising.of(whose, row.own, value)
                    family.add_metric([*place, row.what] if row.label else [*place], value)
            yield family

    def _chosen(
        self, tenants: list[Tenant], devices: dict[str, Device]
    ) -> tuple[list[tuple[JobDevice, Device]], int]:
        """The devices of jobs that have series, and how many jobs have none: the latest ones."""
        chosen: list[tuple[JobDevice, Device]] = []
        left_out = 0
        for tenant in sorted(tenants, key=lambda one: one["job_id"]):
            own = [(JobDevice(tenant, u), devices[u]) for u in tenant["gpus"] if u in devices]
            if left_out or len(chosen) + len(own) > self._most:
                left_out += 1
            else:
                chosen += own
        return chosen, left_out

    def _jobs(self, chosen: list[tuple[JobDevice, Device]]) -> Iterator[Metric]:
        uids = {one.job["uid"] for one, _ in chosen}
        self._users = {
            uid: self._users.get(uid) or label(user_of(uid) or uid) for uid in sorted(uids)
        }
        shown = []
        for one, device in chosen:
            job = one.job
            place = (str(job["job_id"]), self._users[job["uid"]])
            # A job that is requeued has its number again, and begins at 0.
            whose = (job["job_id"], job.get("opened"), one.uuid)
            shown.append((whose, (*place, str(device["index"]), label(one.uuid)), one))
        yield from self._families(JOBS, OF_JOB, shown)
