"""When a job will fit on a node, and who would make that later: against a search that ends job
after job and looks by rules of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from leased.placement.api import Request
from leased.placer.cluster import Cluster, Offer
from leased.placer.forecast import ENDLESS, Free, Stay, forecast, stay_of, take
from leased.placer.model import Ticket
from leased.placer.reserving import Reserved, delays
from leased.slurm.queue_json import QueuedJob
from tests.placer.scenes import T0, job, node

CPUS = 4
LABELS = st.sampled_from([None, None, None, "a", "b"])
REQUESTS = st.builds(
    Request,
    share=st.integers(0, 10).map(lambda tenths: tenths / 10),
    affinity=LABELS,
    anti_affinity=LABELS,
    exclusion=LABELS,
)
ENDS = st.sampled_from([T0 - 9, T0 - 5, T0 + 10, T0 + 20, T0 + 30, ENDLESS])
GPUS, SHARDS = st.integers(1, 2), st.integers(1, 3)
STAYS = st.lists(
    st.builds(
        Stay, ENDS, st.dictionaries(GPUS.map(lambda n: n - 1), SHARDS, min_size=1, max_size=1),
        REQUESTS, st.integers(0, 2),
    ),
    max_size=5,
)  # fmt: skip
JOBS = st.builds(
    lambda shards, cpus, limit_s: replace(job(1), shards=shards, cpus=cpus, limit_s=limit_s),
    SHARDS,
    st.integers(1, CPUS),
    st.sampled_from([0, 10, 15, 30]),
)


@dataclass(frozen=True)
class Scene:
    """A node with its jobs, and a job that waits with what it asks of a GPU."""

    gpus: int
    shards: int
    stays: list[Stay]
    wanted: QueuedJob
    asks: Request

    @property
    def cluster(self) -> Cluster:
        cluster = Cluster.of([node("n1", self.gpus, self.shards, idle_cpus=CPUS)], {})
        for stay in self.stays:
            take(cluster, "n1", stay)
        return cluster

    def fits(self, left: Sequence[Stay]) -> bool:
        """Whether it fits beside these, by rules of its own: Slurm's choice, then the labels."""
        on = [[stay for stay in left if gpu in stay.given] for gpu in range(self.gpus)]
        taken = [sum(stay.given[gpu] or 0 for stay in there) for gpu, there in enumerate(on)]
        room = [gpu for gpu in range(self.gpus) if self.shards - taken[gpu] >= self.wanted.shards]
        if not room or self.wanted.cpus > CPUS - sum(stay.cpus for stay in left):
            return False
        asks, there = self.asks, [stay.request for stay in on[room[0]]]
        labels = [{stay.request.affinity for stay in jobs} for jobs in on]
        together = room[0] if not there else None  # an idle GPU gets the label
        if any(asks.affinity in each for each in labels):
            together = room[0] if asks.affinity in labels[room[0]] else None
        return (
            (not asks.affinity or together is not None)
            and round(sum(request.share for request in there) * 10 + asks.share * 10) <= 10
            and all(request.exclusion == asks.exclusion for request in there)
            and asks.anti_affinity not in {r.anti_affinity for r in there if r.anti_affinity}
        )

    def searched(self) -> Free | None:
        if self.fits(self.stays):
            return Free(T0, 0)
        for at in sorted({max(T0, stay.end) for stay in self.stays if stay.end < ENDLESS}):
            if self.fits([stay for stay in self.stays if stay.end > at]):
                return Free(at, 0)
        endless = [stay for stay in self.stays if stay.end == ENDLESS]
        for ended in range(1, len(endless) + 1):
            if self.fits(endless[ended:]):
                return Free(ENDLESS, ended)
        return None


def scene(gpus: int, shards: int, stays: list[Stay], wanted: QueuedJob, asks: Request) -> Scene:
    return Scene(gpus, shards, [s for s in stays if max(s.given) < gpus], wanted, asks)


SCENES = st.builds(scene, GPUS, SHARDS, STAYS, JOBS, REQUESTS)


@settings(deadline=None, max_examples=150)
@given(SCENES)
def test_it_finds_the_time_that_a_search_finds(there: Scene) -> None:
    cluster, ticket = there.cluster, Ticket("", there.asks, 0)
    before = repr(cluster)
    best = there.searched()
    for latest in (None, Free(T0, 0), Free(T0 + 20, 0), Free(ENDLESS, 1)):
        found = forecast(
            *(cluster, "n1", there.stays, there.wanted, ticket),
            elsewhere=(),
            now=T0,
            latest=latest,
        )
        in_time = best is not None and (latest is None or best <= latest)
        assert found == (best if in_time else None)
    assert repr(cluster) == before, "a forecast changes nothing"


@settings(deadline=None, max_examples=150)
@given(SCENES, JOBS, REQUESTS, st.data())
def test_who_makes_it_later_is_who_a_search_says_does(
    there: Scene, other: QueuedJob, asks: Request, data: st.DataObject
) -> None:
    free = there.searched()
    if free is None:
        return
    ticket = Ticket("", there.asks, 0)
    kept = Reserved(there.wanted, ticket, "n1", free, there.asks.affinity, (), T0)
    gpu = data.draw(st.integers(0, there.gpus - 1))
    cluster, begin = there.cluster, T0 + data.draw(st.sampled_from([0, 5]))
    offer = Offer(cluster.by_node["n1"][gpu].device, asks, ("n1", gpu))
    said = delays(kept, cluster, {"n1": there.stays}, other, offer, begin=begin)
    stay = stay_of(other, begin, gpu, asks)
    then = replace(there, stays=[*there.stays, stay]).searched()
    assert said == (then is None or then > free)


def test_jobs_that_end_together_are_all_gone_before_it_fits() -> None:
    """Slurm then takes the first GPU, though the second one alone would do."""
    plain, alone = Request(), Request(exclusion="a")
    stays = [
        Stay(T0 + 10, {1: 3}, plain),
        Stay(T0 + 10, {0: 2}, plain),
        Stay(ENDLESS, {0: 1}, plain),
    ]
    there = Scene(2, 3, stays, job(1), alone)
    found = forecast(
        there.cluster, "n1", stays, there.wanted, Ticket("", alone, 0), elsewhere=(), now=T0
    )
    assert found == there.searched() == Free(ENDLESS, 1)
