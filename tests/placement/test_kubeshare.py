"""KubeShare's rules, case by case (Yeh et al., HPDC 2020, Algorithm 1)."""

from __future__ import annotations

from typing import Any

import pytest

from leased.chains.membership import JOBS_MOST
from leased.placement.api import Answer, Device, NoDevice, Placed, Request
from leased.placement.kubeshare import place

WHOLE = 100


def device(name: str, *tenants: Request, capacity: int = WHOLE) -> Device:
    return Device(name, capacity, tenants)


def half(**labels: Any) -> Request:
    return Request(0.5, 50, **labels)


def small(**labels: Any) -> Request:
    return Request(0.1, 10, **labels)


def name_of(answer: Answer) -> str:
    assert isinstance(answer, Placed), answer
    return answer.device.name


def reason_of(answer: Answer) -> str:
    assert isinstance(answer, NoDevice), answer
    return answer.reason


IDLE = device("idle")


def test_a_label_of_affinity_is_followed_though_another_device_fits_better() -> None:
    devices = [IDLE, device("full", Request(0.9, 90)), device("theirs", small(affinity="a"))]
    assert name_of(place(small(affinity="a"), devices)) == "theirs"


@pytest.mark.parametrize(
    ("request_", "there", "words"),
    [
        (small(affinity="a", exclusion="x"), small(affinity="a"), "a job without exclusion:x"),
        (small(affinity="a"), small(affinity="a", exclusion="x"), "only jobs with exclusion:x"),
        (
            small(affinity="a", anti_affinity="n"),
            small(affinity="a", anti_affinity="n"),
            "a job with anti-affinity:n is there",
        ),
        (Request(0.6, 1, "a"), half(affinity="a"), "0.5 of its time is left"),
        (Request(0.1, 60, "a"), half(affinity="a"), "memory does not fit"),
    ],
)
def test_a_tenant_that_cannot_join_its_label_goes_nowhere_else(
    request_: Request, there: Request, words: str
) -> None:
    said = reason_of(place(request_, [device("theirs", there), IDLE]))
    assert said.startswith("affinity:a is on theirs")
    assert words in said


def test_a_new_label_of_affinity_gets_an_idle_device() -> None:
    used = device("used", small())
    assert name_of(place(small(affinity="a"), [used, IDLE])) == "idle"
    assert "affinity:a yet" in reason_of(place(small(affinity="a"), [used]))


def test_another_exclusion_is_kept_away_in_both_directions() -> None:
    mine, others, none = (device(n, small(exclusion=n)) for n in "xyz"), IDLE, small()
    assert name_of(place(small(exclusion="y"), [*mine, others])) == "y"
    assert name_of(place(small(exclusion="v"), [device("plain", none), IDLE])) == "idle"
    assert name_of(place(none, [device("x", small(exclusion="x")), IDLE])) == "idle"


def test_an_exclusion_does_not_join_a_device_where_only_some_have_it() -> None:
    mixed = device("mixed", small(exclusion="x"), small())
    assert name_of(place(small(exclusion="x"), [mixed, IDLE])) == "idle"


def test_a_common_label_of_anti_affinity_keeps_apart() -> None:
    other = device("other", Request(0.3, 30, anti_affinity="m"))
    devices = [device("same", half(anti_affinity="n")), other, IDLE]
    assert name_of(place(small(anti_affinity="n"), devices)) == "other"
    assert name_of(place(small(), devices)) == "same"


def test_the_best_fit_is_taken_among_devices_without_a_label_of_affinity() -> None:
    devices = [
        IDLE,
        device("loose", small()),
        device("tight", half()),
        device("tighter than it may be", Request(0.95, 50)),
        device("labelled", Request(0.85, 10, affinity="a")),
    ]
    assert name_of(place(small(), devices)) == "tight"


def test_of_equal_shares_the_one_with_less_memory_left_is_the_better_fit() -> None:
    devices = [device("much", Request(0.5, 10)), device("little", Request(0.5, 40))]
    assert name_of(place(small(), devices)) == "little"


def test_the_worst_fit_is_taken_among_devices_with_a_label_of_affinity() -> None:
    devices = [
        IDLE,
        device("tight", half(affinity="a")),
        device("loose", small(affinity="b")),
        device("full", Request(1.0, 10)),
    ]
    assert name_of(place(small(), devices)) == "loose"


def test_an_idle_device_is_the_last_resort() -> None:
    full = device("full", Request(1.0, 10))
    assert name_of(place(small(), [IDLE, full])) == "idle"
    said = reason_of(place(small(), [full] * 5))
    assert said == (
        "no GPU can take the job; "
        + "; ".join(["full: 0 of its time is left, and the job requests 0.1"] * 3)
        + "; 2 more"
    )


def test_the_smallest_idle_device_that_suffices_is_taken() -> None:
    devices = [device(str(n), capacity=n) for n in (80, 40, 60)]
    assert name_of(place(half(), devices)) == "60"
    assert "memory does not fit" in reason_of(place(Request(0.1, 81), devices))


def test_requests_that_make_up_the_whole_device_fit_it() -> None:
    third = Request(0.333333)
    devices = [device("two thirds", third, Request(0.333334))]
    assert name_of(place(third, devices)) == "two thirds"
    assert isinstance(place(Request(0.3334), devices), NoDevice)


def test_memory_of_nobody_need_not_fit() -> None:
    assert name_of(place(Request(0.1), [device("full of memory", Request(0.1, WHOLE))]))


def test_a_device_whose_shards_are_taken_takes_nobody() -> None:
    taken = Device("taken", WHOLE, (small(),), spare=0)
    assert "all its shards are taken" in reason_of(place(small(), [taken]))
    assert name_of(place(small(), [taken.left(small())])) == "taken"


def test_without_devices_there_is_a_reason() -> None:
    assert "no GPU that jobs share" in reason_of(place(small(), []))


CHAIN = (1000, "c")


def test_a_chain_begins_where_there_is_room_and_stays_together() -> None:
    used, theirs = device("used", half()), device("theirs", small(chain=(1001, "c")))
    assert name_of(place(small(chain=CHAIN), [IDLE, used, theirs])) == "used"
    mine = device("mine", small(chain=CHAIN), small(affinity="a"))
    assert name_of(place(small(chain=CHAIN), [IDLE, used, mine])) == "mine"
    affine = device("affine", small(affinity="a"))
    assert name_of(place(small(chain=CHAIN, affinity="a"), [mine, affine])) == "mine"
    crowded = device("crowded", *[Request(chain=CHAIN)] * JOBS_MOST)
    assert "chain:c is on crowded, where the job cannot be: its chain has 16" in reason_of(
        place(small(chain=CHAIN), [crowded, IDLE])
    )
