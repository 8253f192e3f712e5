"""Events and actions as JSON values; both directions are made from the fields of their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from leased.core.actions import Action
from leased.core.events import Event
from leased.usage.gauge import WorkPart

TYPE = "type"  # the key of the class's name, beside the fields

Reader = Callable[[Any], Any]


class Damaged(ValueError):
    """What was read is nothing that a recorder writes."""


def _table(base: type) -> dict[str, type]:
    """By its name, each kind of it that has no further kinds."""
    found: dict[str, type] = {}
    for kind in base.__subclasses__():
        found |= _table(kind) if kind.__subclasses__() else {kind.__name__: kind}
    return found


# Every class that may stand in a record, by its name.
EVENTS = _table(Event)
ACTIONS = _table(Action)


def to_json(thing: Event | Action) -> dict[str, Any]:
    """For json.dumps with `plain` as its default."""
    names = FIELDS[type(thing)]
    return {TYPE: type(thing).__name__, **{name: getattr(thing, name) for name in names}}


def plain(value: object) -> object:
    """A mapping of any kind, or a part of an event, as an object that JSON knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, WorkPart):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no place in a record")


def event_of(value: Any) -> Event:
    """Damaged: it is no event."""
    found: Event = _read(value, EVENTS)
    return found


def action_of(value: Any) -> Action:
    """What another release has written of it, and this one does not know, is left out: nothing
    follows from an action. Damaged: it is none."""
    cls = ACTIONS.get(str(value.get(TYPE))) if isinstance(value, dict) else None
    if cls is not None:
        value = {name: each for name, each in value.items() if name in (TYPE, *FIELDS[cls])}
    found: Action = _read(value, ACTIONS)
    return found


def _read(value: Any, table: Mapping[str, type]) -> Any:
    name = value.get(TYPE) if isinstance(value, dict) else None
    cls = table.get(name) if isinstance(name, str) else None
    if cls is None:
        raise Damaged(f"{name!r:.60} is not known here")
    return READERS[cls]({key: each for key, each in value.items() if key != TYPE})


# -- values ---------------------------------------------------------------------------


def _of_type(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Damaged(f"{value!r:.60} is not of type {kind.__name__}")
        return value

    return read


def _either(readers: list[Reader]) -> Reader:
    def read(value: Any) -> Any:
        for each in readers[:-1]:
            try:
                return each(value)
            except Damaged:
                continue
        return readers[-1](value)

    return read


def _tuple_of(item: Reader) -> Reader:
    of_list = _of_type(list)
    return lambda value: tuple(item(each) for each in of_list(value))


def _mapping_of(item: Reader) -> Reader:
    of_dict = _of_type(dict)
    return lambda value: {key: item(each) for key, each in of_dict(value).items()}


def _object_of(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    readers = {field.name: reader_of(hints[field.name]) for field in fields(cls)}
    of_dict = _of_type(dict)
    # Releases before have not written fields that were added since: those have a default.
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}

    def read(value: Any) -> Any:
        if not needed <= of_dict(value).keys() <= readers.keys():
            raise Damaged(f"{cls.__name__} has the fields {', '.join(sorted(value))!r:.100}")
        try:
            return cls(**{name: readers[name](each) for name, each in value.items()})
        except Damaged as fault:
            raise Damaged(f"{cls.__name__}: {fault}") from None

    return read


def reader_of(hint: Any) -> Reader:
    """What reads a value of this type. TypeError: no record can hold one."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in (int, float, str, bool, type(None)):
        return _of_type(hint)
    if is_dataclass(hint):
        return _object_of(hint)
    if origin is list and parts == (Any,):
        return _of_type(list)
    if origin is Union:
        return _either([reader_of(part) for part in parts])
    if origin is tuple and len(parts) == 2 and parts[1] is ...:
        return _tuple_of(reader_of(parts[0]))
    if origin is Mapping and parts[0] is str:
        return _mapping_of(reader_of(parts[1]))
    raise TypeError(f"{hint} has no place in a record")


READERS: dict[type, Reader] = {cls: reader_of(cls) for cls in (*EVENTS.values(), *ACTIONS.values())}
FIELDS = {cls: tuple(field.name for field in fields(cast(Any, cls))) for cls in READERS}
