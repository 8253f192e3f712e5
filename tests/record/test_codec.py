"""Every event and action can be written into a record and read again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.core import actions, events
from leased.record import codec
from leased.record.codec import ACTIONS, EVENTS, Damaged

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
EVERY = EVENTS | ACTIONS


def test_every_class_of_the_modules_is_in_a_table() -> None:
    there = {
        cls
        for module in (actions, events)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if is_dataclass(cls) and cls.__module__ == module.__name__ and not cls.__subclasses__()
    }
    assert there == {*EVENTS.values(), *ACTIONS.values()}
    assert not EVENTS.keys() & ACTIONS.keys()


def test_no_field_is_named_as_the_type_is() -> None:
    assert all(field.name != codec.TYPE for cls in EVERY.values() for field in fields(cls))


@given(st.one_of([st.from_type(cls) for cls in EVERY.values()]))
def test_written_events_are_read_again(thing: Any) -> None:
    text = json.dumps(codec.to_json(thing), default=codec.plain)
    read = codec.event_of if type(thing) in EVENTS.values() else codec.action_of
    again = read(json.loads(text))
    assert type(again) is type(thing)
    assert again == thing
    assert json.dumps(codec.to_json(again), default=codec.plain) == text


@given(st.sampled_from(sorted(EVENTS)), st.data())
def test_a_value_of_another_type_is_damage(name: str, data: st.DataObject) -> None:
    thing = data.draw(st.from_type(EVENTS[name]))
    value = codec.to_json(thing)
    keys = [key for key in value if key != codec.TYPE]
    if not keys:
        return
    value[data.draw(st.sampled_from(keys))] = {"a": ["list"]}
    with pytest.raises(Damaged, match=name):
        codec.event_of(json.loads(json.dumps(value, default=codec.plain)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {},
        {"type": "Nothing"},
        {"type": ["Tick"]},
        {"type": "Grant"},
        {"type": "Tick", "more": 1},
        {"type": "Closed"},
        {"type": "Closed", "tenant": "1"},
        {"type": "Closed", "tenant": True},
        {"type": "Closed", "tenant": 1.0},
        {"type": "DrainSet", "device": "d0", "drained": 1},
    ],
)
def test_anything_but_an_event_is_damage(value: Any) -> None:
    with pytest.raises(Damaged):
        codec.event_of(value)


def test_a_field_of_an_unknown_kind_is_found_at_once() -> None:
    @dataclass(frozen=True)
    class Odd:
        found: Mapping[int, str]

    with pytest.raises(TypeError, match="no place in a record"):
        codec.reader_of(Mapping[int, str])
    with pytest.raises(TypeError, match="no place in a record"):
        codec.plain(Odd({}))
