"""Makes the model that matches jobs from measured pairs: `python -m tests.gpu.fit_pairs FILE`.

FILE: as measure_pairs.py writes it. Writes leased/matching/pairs.json: profiles, speeds and
slowdowns of the pairs, the weights, and how far the model is off for pairs that it has not seen. It
is fitted to the pairs whose online program is a server: what never pauses leaves nothing beside it.
Weighted least squares with a little ridge, so that relative errors count; the ridge is the one of
RIDGES with the least error on unseen pairs. An online program's slowdown is that of its median
request, since on a busy host a mean of so few says more of the host. On the emulated GPU copies are
made by the machine's CPUs, and what waits for each step waits for them, so programs that do much of
either are left out there: `--without serve_copies,train_loader,copies,train_steps`.

`unseen_pairs`: the pairs are in FOLDS parts at random, and each part is predicted by a model of the
others: other pairs of the same programs have been seen. `unseen_programs`: each pair is predicted
by a model that has seen no pair with either of its programs, as for a user's own. `left_over`: the
same figures of nothing but the time that the online program leaves.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leased.matching.model import SHIPPED, USAGE, WHOLE, Speeds, Weights, features, left_over
from leased.matching.profile import Profile
from tests.gpu.pair_programs import PROGRAMS
from tests.support.together import zip_strict

FOLDS = 12
RIDGES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 1.0)
WITHIN = 0.1
LEAST = 0.1  # of a speed
FAIR = 0.25  # of a speed, from which on relative errors count
MOST_MS = 1000.0  # of a request, where none ended, and of the bursts of what never pauses
MIB = 1 << 20


class Row(NamedTuple):
    """A measured pair."""

    online: str
    offline: str
    speeds: Speeds


def profiles_of(alone: Mapping[str, Any], slower: float) -> dict[str, Profile]:
    """slower: how many times as long all took as it is to be counted."""
    return {name: _profile(name, one, slower) for name, one in alone.items()}


def _profile(name: str, one: Mapping[str, Any], slower: float) -> Profile:
    if not PROGRAMS[name].serves:
        return Profile(1.0, _memory(name), MOST_MS)
    busy = min(1.0, one["rate"] * one["mean_ms"] / 1e3)
    return Profile(round(busy, 4), _memory(name), round(one["mean_ms"] / slower, 4))


def _memory(name: str) -> int:
    program = PROGRAMS[name]
    swept = int(program.kernel.partition(":")[2] or 0)
    return (swept + max(program.mib_in, program.mib_out)) * MIB


def without(measured: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What was measured of other programs."""
    alone = {name: one for name, one in measured["alone"].items() if name not in names}
    pairs = [each for each in measured["pairs"] if not {*each["pair"]} & {*names}]
    return {**measured, "alone": alone, "pairs": pairs}


def rows_of(measured: Mapping[str, Any]) -> list[Row]:
    alone = measured["alone"]
    return [
        Row(
            each["pair"][0],
            each["pair"][1],
            Speeds(
                each["offline"]["rate"] / alone[each["pair"][1]]["rate"],
                each["online"].get("p50_ms", MOST_MS) / alone[each["pair"][0]]["p50_ms"],
            ),
        )
        for each in measured["pairs"]
    ]


@dataclass
class Fit:
    """Of one kind of features. ridge: the one that does best for unseen pairs."""

    rows: Sequence[Row]
    profiles: Mapping[str, Profile]
    kind: str
    ridge: float = 0.0

    def __post_init__(self) -> None:
        self.ridge = min(RIDGES, key=self._off)

    def _off(self, ridge: float) -> float:
        self.ridge = ridge
        found = errors(self.rows, self.unseen_pairs())
        return float(found["offline"]["p90"] + found["slowdown"]["p90"])

    def _features(self, row: Row) -> list[float]:
        return features(self.profiles[row.online], self.profiles[row.offline], self.kind)

    def weights(self, rows: Sequence[Row]) -> Weights:
        """Fitted to these."""
        inputs = np.array([self._features(row) for row in rows])
        kept = np.eye(inputs.shape[1]) * self.ridge * len(rows)
        kept[0, 0] = 0

        def solved(wanted: Any, weight: Any) -> tuple[float, ...]:
            weighted = inputs * weight[:, None]
            found = np.linalg.solve(weighted.T @ inputs + kept, weighted.T @ wanted)
            return tuple(round(float(one), 6) for one in found)

        speed = np.array([row.speeds.offline for row in rows])
        slower = np.log([max(1.0, row.speeds.slowdown) for row in rows])
        return Weights(
            solved(speed, 1 / np.maximum(speed, FAIR) ** 2), solved(slower, np.ones(len(rows)))
        )

    def predicted(self, rows: Sequence[Row], seen: Sequence[Row]) -> list[Speeds]:
        weights = self.weights(seen)
        return [weights.of(self._features(row)) for row in rows]

    def unseen_pairs(self) -> list[Speeds]:
        """What is predicted of each row when its part is left out."""
        order = list(range(len(self.rows)))
        random.Random(7).shuffle(order)
        found: dict[int, Speeds] = {}
        for part in range(FOLDS):
            out = order[part::FOLDS]
            seen = [row for n, row in enumerate(self.rows) if n not in set(out)]
            guesses = self.predicted([self.rows[n] for n in out], seen)
            found |= dict(zip_strict(out, guesses))
        return [found[n] for n in range(len(self.rows))]

    def unseen_programs(self) -> list[Speeds]:
        """What is predicted of each row when all pairs of its programs are left out."""
        return [
            self.predicted(
                [row],
                [each for each in self.rows if not {*row[:2]} & {*each[:2]}],
            )[0]
            for row in self.rows
        ]

    def errors(self) -> dict[str, Any]:
        return {
            "ridge": self.ridge,
            "unseen_pairs": errors(self.rows, self.unseen_pairs()),
            "unseen_programs": errors(self.rows, self.unseen_programs()),
        }


def errors(rows: Sequence[Row], predicted: Sequence[Speeds]) -> dict[str, Any]:
    """Of both speeds, relative to what was measured, or to LEAST where that was less."""
    return {
        name: _summary(
            [
                abs(guess[n] - row.speeds[n]) / max(LEAST, row.speeds[n])
                for row, guess in zip_strict(rows, predicted)
            ]
        )
        for n, name in enumerate(Speeds._fields)
    }


def _summary(off: Sequence[float]) -> dict[str, float]:
    ordered = sorted(off)
    return {
        "within_10_percent": round(sum(one <= WITHIN for one in ordered) / len(ordered), 3),
        "median": round(ordered[len(ordered) // 2], 4),
        "p90": round(ordered[math.ceil(len(ordered) * 0.9) - 1], 4),
    }


def made(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What pairs.json has."""
    profiles = profiles_of(measured["alone"], measured["slower"])
    rows = rows_of(measured)
    served = [row for row in rows if PROGRAMS[row.online].serves]
    fits = {kind: Fit(served, profiles, kind) for kind in (USAGE, WHOLE)}
    left = [Speeds(left_over(profiles[row.online], profiles[row.offline]), 1.0) for row in served]
    return {
        "about": "made by python -m tests.gpu.fit_pairs; pairs: online, offline, speed of the "
        "offline one, slowdown of the online one",
        **{key: measured[key] for key in ("device", "emulated", "options")},
        "weights": {kind: asdict(fit.weights(served)) for kind, fit in fits.items()},
        "errors": {"left_over": errors(served, left)}
        | {kind: fit.errors() for kind, fit in fits.items()},
        "programs": {name: asdict(profile) for name, profile in profiles.items()},
        "pairs": [[row.online, row.offline, *(round(x, 4) for x in row.speeds)] for row in rows],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="as measure_pairs.py writes it")
    parser.add_argument("--without", default="", help="programs that do not count")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    chosen = parser.parse_args()
    found = made(without(json.loads(chosen.file.read_text()), chosen.without.split(",")))
    chosen.out.write_text(text_of(found))
    print(table(found["errors"]))
    return 0


def table(wrong: Mapping[str, Any]) -> str:
    """The errors as docs/matching.md has them."""
    rows = [("left over", wrong["left_over"])]
    for kind, of in ((USAGE, "what the accounting knows"), (WHOLE, "whole profiles")):
        for unseen in ("unseen_pairs", "unseen_programs"):
            rows.append((f"{of}, {unseen.replace('_', ' ')}", wrong[kind][unseen]))
    head = ["predicted by"]
    for of in ("offline speed", "slowdown"):
        head += [f"{of}: within 10%", "median, 90th percentile of errors"]
    cells = [head, ["---"] * len(head)]
    for name, found in rows:
        row = [name]
        for each in (found[of] for of in Speeds._fields):
            row += [f"{each['within_10_percent']:.0%}", f"{each['median']:.1%}, {each['p90']:.1%}"]
        cells.append(row)
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(lines)


def text_of(found: Mapping[str, Any]) -> str:
    """JSON with a line for each pair."""
    pairs = ",\n".join(f"  {json.dumps(pair)}" for pair in found["pairs"])
    rest = json.dumps({key: each for key, each in found.items() if key != "pairs"}, indent=1)
    return f'{rest[:-2]},\n "pairs": [\n{pairs}\n ]\n}}\n'


if __name__ == "__main__":
    raise SystemExit(main())
