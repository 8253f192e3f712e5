"""The queries of the dashboard, and what of them a scrape does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser

from tests.conftest import ROOT

FILE = ROOT / "packaging" / "grafana" / "gpu-lease.json"
# Grafana puts these in; and Prometheus these labels on what it scrapes.
PUT_IN = {"$__rate_interval": "5m", "$instance": ".*", "$gpu": ".*", "$user": ".*"}
OF_PROMETHEUS = {"instance", "job"}
VARIABLE = re.compile(r"label_values\((.*), ([a-z_]+)\)")


@dataclass(frozen=True)
class Selector:
    """A metric that is asked for, by the name of its samples. labels: those that must be there,
    with the value that one of them must have where it is a plain one."""

    name: str
    labels: tuple[tuple[str, str | None], ...]


def dashboard() -> dict[str, Any]:
    said: dict[str, Any] = json.loads(FILE.read_text())
    return said


def expressions() -> list[str]:
    """Of all panels and variables, as Prometheus gets them."""
    said = dashboard()
    found = [target["expr"] for panel in said["panels"] for target in panel["targets"]]
    for variable in said["templating"]["list"]:
        asked = VARIABLE.fullmatch(str(variable.get("definition", "")))
        if asked:
            found.append(f"count by ({asked[2]}) ({asked[1]})")
    return [_filled(text) for text in found]


def _filled(text: str) -> str:
    for name, value in PUT_IN.items():
        text = text.replace(name, value)
    assert "$" not in text, f"{text} has a variable that this test does not know"
    return text


def selectors(expression: str) -> list[Selector]:
    """All that an expression asks for. ValueError: it is no PromQL."""
    return list(_found(promql_parser.parse(expression), ()))


def _found(node: Any, grouped: tuple[str, ...]) -> Iterator[Selector]:
    """grouped: labels by which what is inside is put together."""
    if isinstance(node, promql_parser.VectorSelector):
        wanted = {matcher.name: _plain(matcher) for matcher in node.matchers.matchers}
        yield Selector(str(node.name), tuple((dict.fromkeys(grouped) | wanted).items()))
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _found(node.vector_selector, grouped)
    elif isinstance(node, promql_parser.AggregateExpr):
        labels = tuple(node.modifier.labels) if node.modifier else ()
        yield from _found(node.expr, grouped + labels)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _found(argument, grouped)
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from _found(node.lhs, grouped)
        yield from _found(node.rhs, grouped)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from _found(node.expr, grouped)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), f"{node} is not looked into"


def _plain(matcher: Any) -> str | None:
    """The value that is asked for; None: any that matches."""
    return str(matcher.value) if matcher.op == promql_parser.MatchOp.Equal else None


def unknown(samples: Mapping[str, Collection[Mapping[str, str]]]) -> list[str]:
    """What the dashboard asks for and a scrape has not. samples: labels by name of a sample."""
    return [
        f"{selector.name} {dict(selector.labels)}: {expression}"
        for expression in expressions()
        for selector in selectors(expression)
        if not any(_has(labels, selector) for labels in samples.get(selector.name, ()))
    ]


def _has(labels: Mapping[str, str], selector: Selector) -> bool:
    return all(
        name in OF_PROMETHEUS or (name in labels and value in (None, labels[name]))
        for name, value in selector.labels
    )
