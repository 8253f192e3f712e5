"""What holds of the controller whatever it is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leased.slices.by_shares import targets
from leased.slices.controller import SAME, Controller
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US, Seen
from tests.support.together import pairwise

PARTS = st.integers(0, 100).map(lambda percent: percent / 100)


@st.composite
def jobs(draw: st.DrawFn) -> Seen:
    limit = draw(st.integers(1, 100)) / 100
    request = draw(st.integers(0, int(limit * 100))) / 100 if draw(st.booleans()) else 0.0
    share = (request, limit) if draw(st.booleans()) else (0.0, 1.0)
    return Seen(
        draw(st.none() | PARTS | PARTS | PARTS),
        draw(st.integers(0, 9)) > 0,
        draw(st.integers(0, 9)) > 0,
        draw(st.integers(1, 8)),
        *share,
        draw(st.none() | PARTS),
    )


LOOKS = st.lists(st.dictionaries(st.integers(1, 4), jobs(), max_size=4), max_size=40)


@given(LOOKS, st.lists(st.integers(-(10**9), 5 * 10**9)))
def test_every_choice_can_be_kept(looks: list[dict[int, Seen]], steps: list[int]) -> None:
    controller, now = Controller(), 10**12
    for look, step in zip(looks, steps + [5 * 10**8] * len(looks)):
        now += step
        chosen = controller.look(now, look)
        holders = {job: seen for job, seen in look.items() if seen.holds}
        assert chosen.keys() == holders.keys()
        for job, seen in holders.items():
            slice_us, duty, why, begins, *_ = chosen[job]
            assert why
            assert slice_us == AS_MADE or SHORT_US <= slice_us <= LONG_US
            assert 1 <= duty <= ALWAYS
            assert 0 <= begins < ALWAYS
            if not seen.controlled:
                assert (slice_us, duty) == (AS_MADE, ALWAYS)
            elif len(holders) == 1:
                assert slice_us == AS_MADE
                assert duty >= round(seen.limit * ALWAYS) - 1
            if not any(one.has_share for one in holders.values()):
                assert duty == ALWAYS
        if all(seen.controlled for seen in holders.values()):
            windows = sorted((c.begins, c.duty) for c in chosen.values() if c.duty < ALWAYS)
            for (begins, duty), (after, _) in pairwise(windows):
                assert begins + duty <= after + 2 * SAME


@given(st.dictionaries(st.integers(1, 6), jobs(), min_size=1), st.data())
def test_targets_are_what_is_requested_and_no_more_than_there_is(
    found: dict[int, Seen], data: st.DataObject
) -> None:
    wants = {job: data.draw(PARTS) for job in found if data.draw(st.booleans())}
    parts = targets(found, wants)
    assert parts.keys() == found.keys()
    wanted = sum(parts[job] for job in wants)
    assert sum(parts.values()) <= max(1, wanted) + 1e-6
    for job, part in parts.items():
        assert 0 <= part <= found[job].limit + 1e-6
    hungry = {job: seen for job, seen in found.items() if job not in wants}
    if sum(seen.request for seen in hungry.values()) + wanted <= 1:
        assert all(parts[job] >= seen.request - 1e-6 for job, seen in hungry.items())
