"""The fit of the model that matches jobs, of pairs that follow a law."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from leased.matching.model import USAGE, WHOLE, left_over, read
from leased.matching.profile import Profile
from tests.gpu import fit_pairs
from tests.gpu.measure_pairs import Measured, all_pairs
from tests.gpu.pair_programs import PROGRAMS


def alone(number: int) -> dict[str, Any]:
    rate = 10.0 + number
    return {"rate": rate, "mean_ms": 4.0 + 8 * (number % 5), "p50_ms": 4.0}


def measured(slower: float = 1) -> dict[str, Any]:
    """An offline program has 0.9 of what is left; an online one is slowed by 0.1 at least, and by
    more the more of the time is left."""
    found = {name: alone(number) for number, name in enumerate(PROGRAMS)}
    profiles = fit_pairs.profiles_of(found, slower)
    left = {pair: left_over(*(profiles[name] for name in pair)) for pair in all_pairs()}
    pairs = [
        {
            "pair": [online, offline],
            "offline": {"rate": found[offline]["rate"] * 0.9 * left[online, offline]},
            "online": {"p50_ms": found[online]["p50_ms"] * math.exp(0.1 + left[online, offline])},
        }
        for online, offline in all_pairs()
    ]
    said = {"device": "Emulated", "emulated": True, "slower": slower, "options": ["", ""]}
    return {**said, "alone": found, "pairs": pairs}


def test_a_law_is_found_and_holds_for_what_was_not_seen() -> None:
    found = fit_pairs.made(measured())
    for kind in (USAGE, WHOLE):
        for unseen in ("unseen_pairs", "unseen_programs"):
            for of in ("offline", "slowdown"):
                assert found["errors"][kind][unseen][of]["p90"] < 0.02
    model = read(fit_pairs.text_of(found))
    online, offline = (Profile(**found["programs"][name]) for name in ("serve_long", "train_steps"))
    speeds = model.predict(online, offline)
    assert speeds.offline == pytest.approx(0.9 * left_over(online, offline), abs=0.02)
    assert speeds.slowdown == pytest.approx(math.exp(0.1 + left_over(online, offline)), rel=0.02)


def test_profiles_are_of_the_card_that_a_slow_model_stands_for() -> None:
    found = measured(slower=4)
    profiles = fit_pairs.profiles_of(found["alone"], 4)
    assert profiles["serve_small"].burst_ms == 1.0
    assert profiles["serve_small"].busy == pytest.approx(10 * 4 / 1000)
    assert profiles["train_small"].busy == 1.0


def test_what_was_not_seen_has_not_been_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the pair nor, where programs are left out, any pair of its programs."""
    found = measured()
    rows = fit_pairs.rows_of(found)
    fit = fit_pairs.Fit(rows, fit_pairs.profiles_of(found["alone"], 1), USAGE)
    asked: list[tuple[Any, Any]] = []
    real = fit.predicted

    def predicted(some: Any, seen: Any) -> Any:
        asked.append((some, seen))
        return real(some, seen)

    monkeypatch.setattr(fit, "predicted", predicted)
    fit.unseen_pairs()
    assert sorted(row for some, _ in asked for row in some) == sorted(rows)
    assert not any(set(some) & set(seen) for some, seen in asked)
    asked.clear()
    fit.unseen_programs()
    assert len(asked) == len(rows)
    assert not any({*one[:2]} & {*each[:2]} for [one], seen in asked for each in seen)


def test_each_program_is_in_as_many_of_the_first_pairs() -> None:
    names = list(PROGRAMS)
    some = all_pairs()[: 3 * len(names)]
    assert len(set(all_pairs())) == len(names) ** 2
    for name in names:
        assert [sum(pair[side] == name for pair in some) for side in (0, 1)] == [3, 3]


def test_measuring_goes_on_where_its_file_ends(tmp_path: Any) -> None:
    file = tmp_path / "pairs.json"
    first = Measured.of(file, {"options": ["a", "b"]})
    first.add_alone("copies", {"rate": 1})
    first.add_pair(("copies", "train_small"), {"rate": 1}, {"rate": 2})
    again = Measured.of(file, {"options": ["a", "b"]})
    assert again.has(("copies", "train_small"))
    assert not again.has(("train_small", "copies"))
    assert again.found == json.loads(file.read_text())
    with pytest.raises(SystemExit, match="measured otherwise"):
        Measured.of(file, {"options": ["a", "c"]})
